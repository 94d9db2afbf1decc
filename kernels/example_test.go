package kernels_test

import (
	"fmt"

	"github.com/carillon-rt/carillon/kernels"
)

func ExampleReducerOf() {
	mine := []float32{1, 2, 3}
	theirs := []float32{10, 20, 30}

	add := kernels.ReducerOf(kernels.TypeOf[float32](), kernels.Sum)
	add(kernels.Bytes(mine), kernels.Bytes(mine), kernels.Bytes(theirs))
	fmt.Println(mine)
	// Output: [11 22 33]
}

// An average over ranks is a sum divided by the number of ranks at the end.
func ExampleDivide() {
	a := []kernels.BF16{kernels.ToBF16(1), kernels.ToBF16(5)}
	b := []kernels.BF16{kernels.ToBF16(2), kernels.ToBF16(-5)}

	kernels.ReducerOf(kernels.BFloat16, kernels.Avg)(kernels.Bytes(a), kernels.Bytes(a), kernels.Bytes(b))
	kernels.Divide(kernels.Bytes(a), kernels.BFloat16, 2)
	fmt.Println(a[0].Float32(), a[1].Float32())
	// Output: 1.5 0
}

func ExampleLimitSIMD() {
	fmt.Println(kernels.LimitSIMD(kernels.NoSIMD)) // as CARILLON_SIMD=off does
	kernels.LimitSIMD(kernels.AVX512)              // back to all instructions
	// Output: off
}
