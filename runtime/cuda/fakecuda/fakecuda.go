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
//
// What differs from a real one: the default stream waits for no other, priorities are all alike, and every allocation
// is one of the operating system's.
package fakecuda

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed src
var source embed.FS

// Build compiles the driver in a folder with the C++ compiler CXX, or else g++, and returns its path. Args are more
// for the compiler, such as -fsanitize=thread.
func Build(dir string, args ...string) (string, error) {
	if err := os.CopyFS(dir, source); err != nil {
		return "", fmt.Errorf("fakecuda: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "src", "*.cc"))
	if err != nil {
		return "", fmt.Errorf("fakecuda: %w", err)
	}
	compiler := os.Getenv("CXX")
	if compiler == "" {
		compiler = "g++"
	}
	library := filepath.Join(dir, "libcuda.so.1")
	args = append(args, "-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-fPIC",
		"-pthread", "-shared", "-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete", "-o", library)
	if out, err := exec.Command(compiler, append(args, files...)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("fakecuda: %s: %w (Debian: apt-get install g++)\n%s", compiler, err, out)
	}
	return library, nil
}
