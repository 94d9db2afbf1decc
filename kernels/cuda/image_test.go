package cuda

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestImages checks that the loaded modules have every function that has a name.
func TestImages(t *testing.T) {
	images, err := Images(7, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range images {
		var entries []string
		for _, m := range regexp.MustCompile(`\.entry (\w+)`).FindAllSubmatch(image.Code, -1) {
			entries = append(entries, string(m[1]))
		}
		slices.Sort(entries)
		slices.Sort(image.Functions)
		if !slices.Equal(entries, image.Functions) {
			t.Errorf("%s.cu has the functions %v, and %v have names", image.Name, entries, image.Functions)
		}
	}
}

// TestStartsEarly checks that where a kernel may be started early, each kernel first waits, and at its end allows the
// next one to start.
func TestStartsEarly(t *testing.T) {
	for major, early := range map[int]bool{7: false, 8: false, 9: true, 10: true} {
		images, err := Images(major, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, image := range images {
			if image.StartsEarly != early {
				t.Errorf("%s for %d.0 starts early: %v", image.Name, major, !early)
			}
			want, header := 0, ".version 6.2\n.target sm_70\n"
			if early { // these have the instructions
				want, header = len(image.Functions), ".version 7.8\n.target sm_90\n"
			}
			if !bytes.Contains(image.Code, []byte(header)) {
				t.Errorf("%s for %d.0 doesn't have the header %q", image.Name, major, header)
			}
			for _, instruction := range []string{"wait", "launch_dependents"} {
				if n := bytes.Count(image.Code, []byte("\tgriddepcontrol."+instruction+";")); n != want {
					t.Errorf("%s for %d.0 has %s %d times, not %d", image.Name, major, instruction, n, want)
				}
			}
		}
	}
}

// TestCubins checks that the cubins are made from the current PTX.
func TestCubins(t *testing.T) {
	sums, err := os.ReadFile("sm_90.sums")
	if err != nil {
		t.Fatal(err)
	}
	images, err := Images(9, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range images {
		sum := sha256.Sum256(bytes.TrimRight(image.Code, "\x00"))
		if line := fmt.Sprintf("%x  %s.ptx\n", sum, image.Name); !strings.Contains(string(sums), line) {
			t.Errorf("%s.sm_90.cubin.gz is not of this PTX (generate.go says how to make it): %s", image.Name, line)
		}
	}
	cubins, err := Images(9, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, cubin := range cubins {
		if !bytes.HasPrefix(cubin.Code, []byte("\x7fELF")) || !bytes.Contains(cubin.Code, []byte(".text.carillon_")) {
			t.Errorf("%s: no cubin", cubin.Name)
		}
	}
}

// TestLoadsBeforeBarriers checks that no load is under way at a barrier: after it, a block tells other ranks that it
// has read their buffers. On sm_90, a load names one of six counters, or 7 for none; an instruction that needs the
// value waits for the counter.
func TestLoadsBeforeBarriers(t *testing.T) {
	const load, barrier = 0x981, 0xb1d // LDG, BAR
	images, err := Images(9, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	image := images[slices.IndexFunc(images, func(i Image) bool { return i.Name == "fifos" })]
	binary.LittleEndian.PutUint32(image.Code[20:], uint32(elf.EV_CURRENT)) // this field has the version of CUDA
	f, err := elf.NewFile(bytes.NewReader(image.Code))
	if err != nil {
		t.Fatal(err)
	}
	kernels, loads, barriers := 0, 0, 0
	for _, s := range f.Sections {
		name, ok := strings.CutPrefix(s.Name, ".text.carillon_")
		if !ok {
			continue
		}
		kernels++
		code, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		under := uint64(0) // under way: bit set of counters
		for ; len(code) >= 16; code = code[16:] {
			low, high := binary.LittleEndian.Uint64(code), binary.LittleEndian.Uint64(code[8:])
			under &^= high >> 52 & 0x3f
			switch low & 0xfff {
			case load:
				loads++
				under |= 1 << (high >> 46 & 7)
			case barrier:
				barriers++
				if under&0x3f != 0 {
					t.Errorf("%s: a load is under way at the barrier before the last %d bytes", name, len(code))
				}
			}
		}
	}
	if kernels != len(image.Functions) || loads < 40*kernels || barriers < 5*kernels {
		t.Errorf("there are %d loads and %d barriers in %d kernels", loads, barriers, kernels)
	}
}

// TestArgs checks that Go's parameter has the layout of C++'s, which asserts the same.
func TestArgs(t *testing.T) {
	if n := binary.Size(Args{}); n != 8*4+(10+MaxRanks+1)*8 {
		t.Errorf("the parameter has %d bytes", n)
	}
	if n := binary.Size(Reach{}); n != NumBuffers*MaxRanks*8+8 {
		t.Errorf("what says where buffers are reached has %d bytes", n)
	}
	if n := binary.Size(ExchangeArgs{}); n != binary.Size(ReduceArgs{})+18*4+MaxMessages*16 {
		t.Errorf("that of an exchange has %d bytes", n)
	}
	if n := binary.Size(Words{}); n != 32 {
		t.Errorf("words have %d bytes", n)
	}
}
