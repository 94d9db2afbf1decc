package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
)

func codes(all []Condition) []string {
	var codes []string
	for _, c := range all {
		codes = append(codes, c.Code+" "+c.GPU)
	}
	return codes
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestNoDriverIsWellAndALateOneIsFound(t *testing.T) {
	d := newFake(fakeGPU("0"))
	d.missing = fmt.Errorf("%w: no NVML library is installed", errNoDriver)
	watched(t, d, func(t *testing.T, m *Monitor, told *told) {
		s := m.Read(t.Context())
		if !strings.HasPrefix(s.Status, "no GPU") || len(s.GPUs) != 0 || len(s.Conditions) != 0 {
			t.Errorf("without a driver: %+v", s)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := d.opened.Load(); n > 20 {
			t.Errorf("a driver that isn't there was looked for %d times in an hour", n)
		}
		d.set(func() { d.missing = nil })
		time.Sleep(lastRetry)
		synctest.Wait()
		if s := m.Read(t.Context()); s.Status != "GPUs: 1" || len(s.GPUs) != 1 || s.GPUs[0].Memory == nil {
			t.Errorf("with a driver that came late: %+v", s)
		}
		expect(t, "told", told.take())
	})
}

func TestADriverThatFailsIsACondition(t *testing.T) {
	d := newFake(fakeGPU("0"))
	d.missing = errors.New("driver/library version mismatch")
	watched(t, d, func(t *testing.T, m *Monitor, told *told) {
		expect(t, "conditions", codes(m.Snapshot().Conditions), "gpu_nvml ")
		d.set(func() { d.missing = nil })
		time.Sleep(firstRetry)
		synctest.Wait()
		expect(t, "conditions", codes(m.Snapshot().Conditions))
		expect(t, "told", told.take(), "gpu.lost gpu_nvml ", "gpu.recovered gpu_nvml ")
	})
}

func TestNoGPUIsLeft(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	d := newFake(fakeGPU("0"))
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor(Config{}, d)
		m.Start()
		synctest.Wait()
		if s := m.Snapshot().Status; !strings.HasPrefix(s, "no GPU: CUDA_VISIBLE_DEVICES") || d.opened.Load() != 0 {
			t.Errorf("status %q, NVML was opened %d times", s, d.opened.Load())
		}
		if err := m.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAnXidIsToldAtOnce(t *testing.T) {
	watched(t, newFake(fakeGPU("0"), fakeGPU("1")), func(t *testing.T, m *Monitor, told *told) {
		d := m.driver.(*fakeDriver)
		began := time.Now()
		d.happen <- event{code: CodeXid, xid: 31, device: "GPU-1", instance: wholeGPU}
		d.happen <- event{code: CodeXid, xid: 31, device: "GPU-1", instance: wholeGPU}
		d.happen <- event{code: CodeXid, xid: 48, device: "GPU-0", instance: wholeGPU}
		d.happen <- event{code: CodeECC, device: "GPU-0", instance: wholeGPU}
		d.happen <- event{code: CodeCorrected, device: "GPU-1", instance: wholeGPU}
		synctest.Wait()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("it took %v", waited)
		}
		expect(t, "told", told.take(), "gpu.xid gpu_xid 1", "gpu.xid gpu_xid 0", "gpu.ecc gpu_ecc 0",
			"gpu.ecc gpu_ecc_fixed 1")
		all := m.Snapshot().Conditions
		expect(t, "conditions", codes(all), "gpu_ecc 0", "gpu_xid 0", "gpu_ecc_fixed 1", "gpu_xid 1")
		if c := all[3]; c.Xid != 31 || c.Count != 2 || c.Severity != bus.Warning ||
			!strings.Contains(c.Text, "GPU 1: the driver reported Xid 31 (GPU memory page fault)") {
			t.Errorf("%+v", c)
		}
		if all[1].Severity != bus.Critical {
			t.Errorf("a double bit error: %+v", all[1])
		}
		time.Sleep(Remembered + waitTime)
		synctest.Wait()
		expect(t, "told later", told.take(), "gpu.recovered gpu_ecc_fixed 1", "gpu.recovered gpu_xid 1")
		expect(t, "conditions that stay", codes(m.Snapshot().Conditions), "gpu_ecc 0", "gpu_xid 0")
	})
}

func TestEventsOfMIGDevices(t *testing.T) {
	one, two := fakeGPU("0:1"), fakeGPU("0:2")
	first, second := uint32(1), uint32(2)
	one.id.uuid, one.id.instance = "GPU-0", &first
	two.id.uuid, two.id.instance = "GPU-0", &second
	watched(t, newFake(one, two), func(t *testing.T, m *Monitor, told *told) {
		d := m.driver.(*fakeDriver)
		d.happen <- event{code: CodeXid, xid: 13, device: "GPU-0", instance: 2}
		synctest.Wait()
		expect(t, "of one instance", told.take(), "gpu.xid gpu_xid 0:2")
		d.happen <- event{code: CodeXid, xid: 79, device: "GPU-0", instance: wholeGPU}
		synctest.Wait()
		expect(t, "of the GPU", told.take(), "gpu.xid gpu_xid 0:1", "gpu.xid gpu_xid 0:2")
	})
}

func TestAGPUFallsOffTheBus(t *testing.T) {
	lost := fakeGPU("1")
	watched(t, newFake(fakeGPU("0"), lost), func(t *testing.T, m *Monitor, told *told) {
		d := m.driver.(*fakeDriver)
		lost.set(func(g *fakeDevice) { g.err = errLost })
		d.broken <- errLost
		synctest.Wait()
		expect(t, "told", told.take(), "gpu.lost gpu_lost 1")
		s := m.Read(t.Context())
		if s.GPUs[0].Lost || !s.GPUs[1].Lost || s.GPUs[1].Memory != nil {
			t.Errorf("%+v", s.GPUs)
		}
		time.Sleep(firstRetry + time.Second)
		synctest.Wait()
		d.set(func() {
			if n := len(d.sets); n != 2 || !slices.Equal(d.sets[1], []string{"0"}) {
				t.Errorf("sets of events: %q", d.sets)
			}
		})
		d.happen <- event{code: CodeXid, xid: 43, device: "GPU-0", instance: wholeGPU}
		synctest.Wait()
		expect(t, "of the other GPU", told.take(), "gpu.xid gpu_xid 0")
		lost.set(func(g *fakeDevice) { g.err = nil })
		m.Read(t.Context())
		synctest.Wait()
		expect(t, "when it is back", told.take(), "gpu.recovered gpu_lost 1")
	})
}

func TestNVMLHangs(t *testing.T) {
	g := fakeGPU("0")
	watched(t, newFake(g), func(t *testing.T, m *Monitor, told *told) {
		hang := make(chan struct{})
		g.set(func(g *fakeDevice) { g.hang = hang })
		time.Sleep(MaxAge)
		began := time.Now()
		s := m.Read(t.Context())
		if waited := time.Since(began); waited != Deadline || s.GPUs[0].Memory == nil {
			t.Errorf("waited %v and know %+v", waited, s.GPUs[0])
		}
		synctest.Wait()
		expect(t, "told", told.take(), "gpu.lost gpu_nvml_hung ")
		reads := g.reads.Load()
		for range 100 {
			if m.Read(t.Context()); time.Since(began) != Deadline {
				t.Fatal("who asks later waits, too")
			}
		}
		if g.reads.Load() != reads {
			t.Error("a reading began while another hangs")
		}
		if metrics := gathered(t, m); !strings.Contains(metrics, `ccl_gpu_devices{state="unread"} 1`) {
			t.Errorf("metrics:\n%s", metrics)
		}
		g.set(func(g *fakeDevice) { g.hang = nil })
		close(hang)
		synctest.Wait()
		expect(t, "told", told.take(), "gpu.recovered gpu_nvml_hung ")
	})
}

func TestNVMLHangsWhereverItCan(t *testing.T) {
	for _, place := range []string{"open", "wait"} {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newFake(fakeGPU("0"))
				m := newMonitor(Config{All: true}, d)
				hang := make(chan struct{})
				if place == "open" {
					d.hang = hang
				}
				m.Start()
				synctest.Wait()
				d.set(func() { d.hang = hang })
				time.Sleep(openDeadline + time.Second)
				expect(t, "conditions", codes(m.Snapshot().Conditions), "gpu_nvml_hung ")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := m.Stop(ctx); err == nil {
					t.Error("Stop gave NVML back while it hangs")
				}
				d.set(func() { d.hang = nil })
				close(hang)
				if err := m.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				expect(t, "conditions", codes(m.Snapshot().Conditions))
			})
		})
	}
}

func TestAskingOftenAsksTheDriverOnce(t *testing.T) {
	g := fakeGPU("0")
	watched(t, newFake(g), func(t *testing.T, m *Monitor, _ *told) {
		if n := g.reads.Load(); n != 1 {
			t.Errorf("read %d times at the start", n)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := g.reads.Load(); n != 1 {
			t.Errorf("read %d times in a day in which nobody asked", n)
		}
		for range 10 {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { m.Read(t.Context()) })
			}
			all.Wait()
			time.Sleep(MaxAge / 5)
		}
		if n := g.reads.Load(); n != 3 {
			t.Errorf("1000 questions in two seconds were %d readings, not 2", n-1)
		}
		m.Read(t.Context())
		before := g.reads.Load()
		m.driver.(*fakeDriver).happen <- event{code: CodeECC, device: "GPU-0", instance: wholeGPU}
		synctest.Wait()
		m.Read(t.Context())
		m.Read(t.Context())
		if n := g.reads.Load() - before; n != 1 {
			t.Errorf("after an event: %d readings, not 1", n)
		}
	})
}

func TestStopWithoutStart(t *testing.T) {
	m := New(Config{})
	if err := m.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	m.Start() // too late
	if err := m.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
