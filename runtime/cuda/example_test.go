//go:build linux && cgo

package cuda_test

import (
	"fmt"

	"github.com/carillon-rt/carillon/runtime/cuda"
)

// A copy to the device, and one back. A program passes an empty path.
func Example() {
	driver, err := cuda.Open(library)
	if err != nil {
		fmt.Println(err) // no driver, or no GPU
		return
	}
	device, err := driver.Device(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	context, err := device.Retain()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = context.Release() }()
	memory, err := context.Alloc(5)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = context.CopyToDevice(memory, []byte("hello"))
	text := make([]byte, 5)
	_ = context.CopyToHost(text, memory)
	fmt.Printf("%s\n", text)
	fmt.Println(context.Free(memory))
	fmt.Println(context.Free(memory))
	// Output:
	// hello
	// <nil>
	// cuMemFree: invalid argument (CUDA_ERROR_INVALID_VALUE, 1)
}
