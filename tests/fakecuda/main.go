// Command fakecuda builds the fake CUDA driver and its kernels in a folder, and prints a shell command after which
// programs find them.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/carillon-rt/carillon/runtime/cuda/fakecuda"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string) error {
	driver, err := fakecuda.Build(dir)
	if err != nil {
		return err
	}
	kernels, err := fakecuda.BuildKernels(dir, filepath.Join("..", "kernels", "cuda", "*.cu"))
	if err != nil {
		return err
	}
	fmt.Printf("export LD_LIBRARY_PATH=%q FAKECUDA_KERNELS=%q FAKECUDA_DEVICES=2\n", filepath.Dir(driver), kernels)
	return nil
}
