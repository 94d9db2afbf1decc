//go:build linux && cgo

package cuda_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	gpu "github.com/carillon-rt/carillon/runtime/engine/cuda"
)

// A refuser is a kind of device that can't be opened.
type refuser struct{}

func (refuser) Name() string { return "refuser" }

func (refuser) Open(context.Context, *engine.Comm, func([]byte) ([][]byte, error), func(error)) (engine.Device, error) {
	return nil, errors.New("the fallback was asked")
}

// TestApart checks that for GPUs that can't map memory together, another engine is used, or an error says what would
// help.
func TestApart(t *testing.T) {
	for help, variables := range map[string][]string{
		"SYS_NICE":  {"FAKECUDA_NO_PEERS", "1", "FAKECUDA_FAIL", "cuMemCreate:800:3"},
		"error 801": {"FAKECUDA_FAIL", "cuMemExportToShareableHandle:801"},
	} {
		for says, fallback := range map[string]engine.DeviceKind{help: nil, "the fallback was asked": refuser{}} {
			d, o := driver(t, 2, variables...), options
			o.Fallback = fallback
			kinds := make([]engine.DeviceKind, 2)
			for r := range kinds {
				opened, err := open(at(t, d, r), o)
				must(t, err)
				kinds[r] = opened.gpu
			}
			_, err := runtime(t).InitAll(t.Context(), 2, ccl.WithDevice(kinds...))
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %s", err, says)
			}
		}
	}
}

// TestRefused checks that impossible calls are refused before anything is put on a stream, and change nothing.
func TestRefused(t *testing.T) {
	all := ranks(t, 2)
	r, other := &all[0], &all[1]
	good, freed := memory(t, r, 8), memory(t, r, 8)
	must(t, r.context.Free(freed.Pointer()))
	call := func(comm *ccl.Comm, s *cuda.Stream, send, recv cuda.Buffer[int32]) error {
		return ccl.AllReduceOn(t.Context(), comm, s, send, recv, ccl.Sum)
	}
	plain, err := runtime(t).InitAll(t.Context(), 1)
	must(t, err)
	defer plain[0].Close() //nolint:errcheck // a test's
	odd := cuda.Wrap[int32](good.Pointer()+2, 4)
	for want, err := range map[string]error{
		"the stream is nil":                call(r.Comm, nil, good, good),
		"the stream is of device 1":        call(r.Comm, other.stream, good, good),
		"is no memory of a GPU":            call(r.Comm, r.stream, freed, good),
		"it is memory of device 1":         call(r.Comm, r.stream, memory(t, other, 8), good),
		"is no multiple of an element's 4": call(r.Comm, r.stream, odd, odd),
		"it has 36 bytes, and its allocation has 32": call(r.Comm, r.stream, cuda.Wrap[int32](good.Pointer(), 9),
			cuda.Wrap[int32](good.Pointer(), 9)),
		"recv has 8 elements and send 4": call(r.Comm, r.stream, good.Slice(0, 4), good),
		"must be the same slice":         call(r.Comm, r.stream, good.Slice(0, 4), good.Slice(1, 5)),
		"the communicator is on no GPU":  call(plain[0], r.stream, good, good),
		"the communicator is nil":        call(nil, r.stream, good, good),
	} {
		if usage, ok := errors.AsType[*ccl.UsageError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v (%v)", want, err, usage)
		}
	}
	compare(t, all, []int{10})
}

// TestDifferentOptions checks that ranks that would choose different kernels, or lay out windows differently, don't
// begin.
func TestDifferentOptions(t *testing.T) {
	d := driver(t, 2)
	tuned, fallen := options, options
	tuned.Tuning = gpu.Tuning{2: {OneShot: 8}}
	fallen.Fallback = on(t, at(t, d, 0)).gpu
	for says, o := range map[string]gpu.Options{
		"ranks 0 and 1 have different options": tuned, `ranks 0 and 1 have different fallbacks ("" and "cuda")`: fallen,
	} {
		kinds := make([]engine.DeviceKind, 2)
		for r, o := range []gpu.Options{options, o} {
			g, err := gpu.New(on(t, at(t, d, r)).context, o)
			must(t, err)
			kinds[r] = g
		}
		_, err := runtime(t).InitAll(t.Context(), 2, ccl.WithDevice(kinds...))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// TestTuning checks that limits come from a file, and are those of the next larger number of ranks.
func TestTuning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tuning.json")
	for text, want := range map[string]string{
		`{"2": {"one_shot": 1}}`:  "",
		`{"2": {"one_shot": -1}}`: "for 2 ranks the limits are",
		`{"0": {}}`:               "for 0 ranks the limits are",
		`[]`:                      "cannot unmarshal",
	} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		tuning, err := gpu.ReadTuning(path)
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		case want == "" && (err != nil || tuning[2].OneShot != 1):
			t.Errorf("%s: %v, %v", text, tuning, err)
		}
	}
	tuning := gpu.Tuning{2: {OneShot: 2}, 4: {OneShot: 4}, 8: {OneShot: 8}}
	for ranks, want := range map[int]int{1: 2, 2: 2, 3: 4, 5: 8, 8: 8, 9: 8} {
		if got := tuning.For(ranks).OneShot; got != want {
			t.Errorf("%d ranks have the limits of %d, want %d", ranks, got, want)
		}
	}
}

// TestSharedDevice checks that ranks share a GPU if that is allowed, and otherwise are told what it needs. They read
// each other's buffers, whatever their size.
func TestSharedDevice(t *testing.T) {
	dev, err := driver(t, 1).Device(0)
	must(t, err)
	one := on(t, dev)
	_, err = runtime(t).InitAll(t.Context(), 2, ccl.WithDevice(one.gpu))
	if err == nil || !strings.Contains(err.Error(), "ranks 0 and 1 share a GPU") {
		t.Errorf("two ranks on a GPU: %v", err)
	}
	shared := options
	shared.Shared = true
	g, err := gpu.New(one.context, shared)
	must(t, err)
	devices := []*opener{{GPU: g}, {GPU: g}}
	comms, err := runtime(t).InitAll(t.Context(), 2, ccl.WithDevice(devices[0], devices[1]))
	must(t, err)
	all := make([]rank, 2)
	for r := range all {
		s, err := one.context.Stream(0)
		must(t, err)
		all[r] = rank{Comm: comms[r], gpu: g, context: one.context, stream: s}
	}
	each(t, all, func(r *rank) error {
		b := memory(t, r, 7001)
		return errors.Join(ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum), r.Wait(t.Context()))
	})
	for r, d := range devices {
		if reach := gpu.Reached(d.Device); reach.Pushes != 0 {
			t.Errorf("rank %d pushes to a rank on its own GPU: %+v", r, reach)
		}
	}
	compare(t, all, []int{300, 7001})
}

// TestNoMemory checks that if one rank has no memory for its window, all ranks are told which one, and why.
func TestNoMemory(t *testing.T) {
	d := driver(t, 2, "FAKECUDA_FAIL", "cuMemCreate:2:2")
	var kinds []engine.DeviceKind
	for r := range 2 {
		dev, err := d.Device(r)
		must(t, err)
		kinds = append(kinds, on(t, dev).gpu)
	}
	_, err := runtime(t).InitAll(t.Context(), 2, ccl.WithDevice(kinds...))
	if err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("without memory: %v", err)
	}
}
