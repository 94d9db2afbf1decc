// Package fakecuda is a CUDA driver for machines without a GPU: a libcuda.so.1 whose devices are host memory, and whose
// streams are threads. It is for tests, and as strict as a driver should be: using a handle that has ended, memory that
// was freed, or an object of another device is an error.
//
// These variables are read when the library is loaded:
//
//	FAKECUDA_DEVICES=2                devices
//	FAKECUDA_FAIL=cuMemAlloc_v2:2:3   the third call of a function returns code 2; without :3, every call; a code from
//	                                  700 on that is one of the device's own stays with the context
//	FAKECUDA_DELAY=cuMemcpyAsync:500  operations that the function enqueues on a stream take 500 µs longer
//	FAKECUDA_MIG=1                    the devices are instances of a divided GPU
//	FAKECUDA_NO_PEERS=1               no device can access another one's memory
//	FAKECUDA_NO_NVLINK=1              devices have no native atomic operations on another one's memory
//	FAKECUDA_KERNELS=path             the library from BuildKernels; without it no module has a function, except for
//	                                  those whose PTX is only ret
//
// Differences from a real driver: the default stream waits for no other, all priorities are the same, and every
// allocation is a separate one of the operating system.
package fakecuda

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

//go:embed src
var source embed.FS

// Build compiles the driver in a folder with the C++ compiler CXX, or else g++, and returns its path.
//
// If FAKECUDA_CACHE is set, it is a folder that caches compiled files by their source, across processes: Build and
// BuildKernels first look there.
func Build(dir string) (string, error) {
	if err := os.CopyFS(dir, source); err != nil {
		return "", fmt.Errorf("fakecuda: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "src", "*.cc"))
	if err != nil {
		return "", fmt.Errorf("fakecuda: %w", err)
	}
	sources := []string{"-x", "c++", os.DevNull}
	for _, file := range files { // compiled as one, which takes half as long
		sources = append(sources, "-include", file)
	}
	library := filepath.Join(dir, "libcuda.so.1")
	return library, compile(library, sources,
		"-g", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete")
}

// BuildKernels compiles kernels for the driver, from the files that match a pattern (filepath.Glob), and returns the
// library's path. Kernels are written in CUDA C++ that also compiles as C++. Each has a function NAME_host, which is
// called once for each thread of a grid (kernels/cuda/host.h says how), and the sizes of its parameters, NAME_params,
// ending with 0.
func BuildKernels(dir, pattern string) (string, error) {
	library := filepath.Join(dir, "kernels.so")
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		return "", errors.Join(err, fmt.Errorf("fakecuda: there are no kernels in %s", pattern))
	}
	return library, compile(library, append([]string{"-x", "c++"}, files...),
		"-ffp-contract=off", "-Wno-maybe-uninitialized")
}

func compile(library string, sources []string, flags ...string) error {
	flags = append(flags, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread", "-shared")
	cache := os.Getenv("FAKECUDA_CACHE")
	if cache == "" {
		_, err := run(append(append(flags, "-o", library), sources...)...)
		return err
	}
	text, err := run(append(append(flags, "-E", "-P"), sources...)...)
	if err != nil {
		return err
	}
	kept := filepath.Join(cache, fmt.Sprintf("%x.so", sha256.Sum256(fmt.Appendf(text, "%s %q", compiler(), flags))))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("fakecuda: %w", err)
	}
	lock, err := os.Create(kept + ".lock")
	if err != nil {
		return fmt.Errorf("fakecuda: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("fakecuda: lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(kept); errors.Is(err, fs.ErrNotExist) {
		if _, err := run(append(append(flags, "-o", kept+".new"), sources...)...); err != nil {
			return err
		}
		if err := os.Rename(kept+".new", kept); err != nil {
			return fmt.Errorf("fakecuda: %w", err)
		}
	}
	data, err := os.ReadFile(kept)
	if err == nil {
		err = os.WriteFile(library, data, 0o755)
	}
	if err != nil {
		return fmt.Errorf("fakecuda: %w", err)
	}
	return nil
}

func compiler() string {
	return cmp.Or(os.Getenv("CXX"), "g++")
}

// run runs the compiler and returns what it writes.
func run(args ...string) ([]byte, error) {
	var errs bytes.Buffer
	cmd := exec.Command(compiler(), args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("fakecuda: %s: %w (Debian: apt-get install g++)\n%s", compiler(), err, errs.Bytes())
	}
	return out, nil
}
