// Package fakecuda is a CUDA driver for machines without a GPU: a libcuda.so.1 whose devices are host memory, and whose
// streams are threads. It is for tests, and as strict as a driver should be: handles that ended, memory that was freed,
// and what belongs to another device are errors.
//
// These variables are read when the library is loaded:
//
//	FAKECUDA_DEVICES=2                devices
//	FAKECUDA_FAIL=cuMemAlloc_v2:2:3   the third call of a function answers code 2; without :3, every call; a code from
//	                                  700 on that is one of the device's own stays with the context
//	FAKECUDA_DELAY=cuMemcpyAsync:500  what the function puts on a stream takes 500 µs longer
//	FAKECUDA_MIG=1                    the devices are instances of a divided GPU
//	FAKECUDA_NO_PEERS=1               no device reaches another one's memory
//	FAKECUDA_NO_NVLINK=1              devices have no native atomic operations on another one's memory
//	FAKECUDA_KERNELS=path             the library that BuildKernels makes; without it no module has a function, but
//	                                  for those whose PTX is ret alone
//
// What differs from a real one: the default stream waits for no other, priorities are all alike, and every allocation
// is one of the operating system's.
package fakecuda

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed src
var source embed.FS

// Build compiles the driver in a folder with the C++ compiler CXX, or else g++, and returns its path.
func Build(dir string) (string, error) {
	if err := os.CopyFS(dir, source); err != nil {
		return "", fmt.Errorf("fakecuda: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "src", "*.cc"))
	if err != nil {
		return "", fmt.Errorf("fakecuda: %w", err)
	}
	library := filepath.Join(dir, "libcuda.so.1")
	args := []string{"-g", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete"}
	args = append(args, "-x", "c++", os.DevNull)
	for _, file := range files { // as one, which takes half as long
		args = append(args, "-include", file)
	}
	return library, compile(library, args...)
}

// BuildKernels compiles kernels for the driver, of the files that match a pattern (filepath.Glob), and returns the
// library's path. They are CUDA C++ that compiles as C++, too. Each has a function NAME_host, which is called once for
// each thread of a grid (kernels/cuda/host.h says how), and the sizes of its parameters, NAME_params, with 0 behind
// them.
func BuildKernels(dir, pattern string) (string, error) {
	library := filepath.Join(dir, "kernels.so")
	sources, err := filepath.Glob(pattern)
	if err != nil || len(sources) == 0 {
		return "", errors.Join(err, fmt.Errorf("fakecuda: there are no kernels in %s", pattern))
	}
	return library, compile(library, append([]string{"-x", "c++", "-ffp-contract=off", "-Wno-maybe-uninitialized"},
		sources...)...)
}

func compile(library string, args ...string) error {
	compiler := os.Getenv("CXX")
	if compiler == "" {
		compiler = "g++"
	}
	args = append([]string{
		"-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread", "-shared",
		"-o", library,
	}, args...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("fakecuda: %s: %w (Debian: apt-get install g++)\n%s", compiler, err, out)
	}
	return nil
}
