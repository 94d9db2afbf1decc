package kernels

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDetectAgreesWithTheKernel compares DetectSIMD with the features that Linux lists as present and enabled.
func TestDetectAgreesWithTheKernel(t *testing.T) {
	f, err := os.Open("/proc/cpuinfo")
	if os.IsNotExist(err) {
		return // another system, which has no list
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var flags []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, list, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "flags" {
			flags = strings.Fields(list)
			break
		}
	}
	all := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(flags, n) })
	}
	want := NoSIMD
	if all("avx", "avx2", "f16c") {
		want = AVX2
		if all("bmi2", "avx512f", "avx512dq", "avx512bw") {
			want = AVX512
		}
	}
	if got := DetectSIMD(); got != want {
		t.Errorf("detected %v, Linux says %v (%v)", got, want, flags)
	}
}
