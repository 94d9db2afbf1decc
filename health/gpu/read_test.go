package gpu

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

func TestWhatReadingsTell(t *testing.T) {
	g := fakeGPU("0")
	watched(t, newFake(g), func(t *testing.T, m *Monitor, told *told) {
		for _, step := range []struct {
			what   string
			change func(*fakeDevice)
			told   []string
			text   string // of the worst condition
		}{
			{"nothing new", func(*fakeDevice) {}, nil, ""},
			{"at the power limit", func(g *fakeDevice) { g.tells.Throttled = []string{powerCap} }, nil, ""},
			{
				"hot", func(g *fakeDevice) {
					celsius := uint32(91)
					g.tells.Throttled, g.tells.Temperature = []string{powerCap, "hw_thermal"}, &celsius
				},
				[]string{"gpu.throttled gpu_throttled 0"},
				"GPU 0: it is throttled: hw_thermal, at 91 °C",
			},
			{"cool", func(g *fakeDevice) {
				g.tells.Throttled = []string{}
			}, []string{"gpu.recovered gpu_throttled 0"}, ""},
			{
				"link errors", func(g *fakeDevice) { g.tells.NVLink = &NVLink{Up: []int{0, 1}, Errors: 8} },
				[]string{"gpu.nvlink gpu_nvlink 0"},
				"GPU 0: its NVLinks made 3 errors; transfers are repeated and slow",
			},
			{
				"link down", func(g *fakeDevice) { g.tells.NVLink = &NVLink{Up: []int{1}, Errors: 2} },
				[]string{"gpu.nvlink gpu_nvlink_down 0"},
				"GPU 0: NVLinks that were up are down: 0",
			},
			{
				"link up", func(g *fakeDevice) { g.tells.NVLink = &NVLink{Up: []int{0, 1}, Errors: 2} },
				[]string{"gpu.recovered gpu_nvlink_down 0"},
				"GPU 0: its NVLinks made 3 errors; transfers are repeated and slow",
			},
			{
				"rows pending", func(g *fakeDevice) { g.tells.Rows = &Rows{Pending: true} },
				[]string{"gpu.ecc gpu_row_remap 0"},
				"GPU 0: its NVLinks made 3 errors; transfers are repeated and slow",
			},
			{
				"rows failed", func(g *fakeDevice) { g.tells.Rows = &Rows{Failed: true} },
				[]string{"gpu.ecc gpu_row_remap 0"},
				"GPU 0: bad memory could not be replaced by spare memory",
			},
			{
				"rows replaced", func(g *fakeDevice) { g.tells.Rows = &Rows{} },
				[]string{"gpu.recovered gpu_row_remap 0"},
				"GPU 0: its NVLinks made 3 errors; transfers are repeated and slow",
			},
			{
				"in need of a reset", func(g *fakeDevice) { g.err = errReset },
				[]string{"gpu.lost gpu_lost 0"},
				"GPU 0: it needs a reset and does nothing before",
			},
			{
				"back, with lost data", func(g *fakeDevice) { g.err, g.tells.ECC = nil, &ECC{Uncorrected: 1} },
				[]string{"gpu.recovered gpu_lost 0", "gpu.ecc gpu_ecc 0"},
				"GPU 0: its memory had errors that could not be corrected; results since then can't be trusted",
			},
		} {
			g.set(step.change)
			time.Sleep(MaxAge)
			s := m.Read(t.Context())
			synctest.Wait()
			expect(t, step.what, told.take(), step.told...)
			text := ""
			if len(s.Conditions) > 0 {
				text = s.Conditions[0].Text
			}
			if text != step.text {
				t.Errorf("%s: %q, want %q", step.what, text, step.text)
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	silent := &fakeDevice{id: identity{label: "1"}}
	lost := fakeGPU("2")
	lost.err = errLost
	hot := fakeGPU("0")
	hot.tells.Throttled = []string{"sw_thermal"}
	watched(t, newFake(hot, silent, lost), func(t *testing.T, m *Monitor, _ *told) {
		m.driver.(*fakeDriver).happen <- event{code: CodeXid, xid: 13, device: "GPU-0", instance: wholeGPU}
		synctest.Wait()
		const want = `
ccl_gpu_devices{state="lost"} 1
ccl_gpu_devices{state="ok"} 2
ccl_gpu_devices{state="unread"} 0
ccl_gpu_ecc_errors_total{gpu="0",type="corrected"} 2
ccl_gpu_ecc_errors_total{gpu="0",type="uncorrected"} 0
ccl_gpu_memory_total_bytes{gpu="0"} 8.589934592e+10
ccl_gpu_memory_used_bytes{gpu="0"} 1.073741824e+09
ccl_gpu_nvlink_errors_total{gpu="0"} 5
ccl_gpu_throttled{gpu="0",reason="hw_power_brake"} 0
ccl_gpu_throttled{gpu="0",reason="hw_slowdown"} 0
ccl_gpu_throttled{gpu="0",reason="hw_thermal"} 0
ccl_gpu_throttled{gpu="0",reason="sw_power_cap"} 0
ccl_gpu_throttled{gpu="0",reason="sw_thermal"} 1
ccl_gpu_throttled{gpu="0",reason="sync_boost"} 0
ccl_gpu_xid_errors_total{gpu="0",xid="13"} 1
`
		if got := gathered(t, m); got != want[1:] {
			t.Errorf("metrics:\n%s\nwant:%s", got, want)
		}
	})
}

func TestMetricsWithoutGPU(t *testing.T) {
	d := newFake()
	d.missing = errNoDriver
	watched(t, d, func(t *testing.T, m *Monitor, _ *told) {
		const want = "ccl_gpu_devices{state=\"lost\"} 0\nccl_gpu_devices{state=\"ok\"} " +
			"0\nccl_gpu_devices{state=\"unread\"} 0\n"
		if got := gathered(t, m); got != want {
			t.Errorf("metrics:\n%s\nwant:\n%s", got, want)
		}
	})
}

// gathered returns the samples of m.
func gathered(t *testing.T, m *Monitor) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	var samples strings.Builder
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			samples.WriteString(line)
		}
	}
	return samples.String()
}

func TestVisibleDevices(t *testing.T) {
	for value, want := range map[string]string{
		"0": "0", "3,1": "3 1", " 2 , 0": "2 0", "": "", "-1": "", "0,-1,2": "0", "0,x,2": "0", "1,1,2": "1",
		"GPU-8932f937,MIG-41b3": "GPU-8932f937 MIG-41b3", "NoDevFiles": "",
	} {
		if got := parseVisible(value, true); got.all || strings.Join(got.devices, " ") != want {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q: %+v, want %q", value, got, want)
		}
	}
	if !parseVisible("", false).all {
		t.Error("not set is all")
	}
}

func TestXids(t *testing.T) {
	for _, number := range []uint64{
		13, 31, 43, 45, 48, 61, 62, 63, 64, 68, 69, 74, 79, 92, 94, 95, 109, 119, 120, 140,
	} {
		if _, ok := catalogue[number]; !ok {
			t.Errorf("Xid %d is not in the catalogue", number)
		}
	}
	for number := range catalogue {
		if x := LookupXid(number); x.Number != number || x.Name == "" || x.Advice == "" {
			t.Errorf("%+v", x)
		}
	}
	if x := LookupXid(79); x.Scope != ScopeGPU || x.String() != "Xid 79 (GPU has fallen off the bus)" {
		t.Errorf("%s puts %s out of service", x, x.Scope)
	}
	if x := LookupXid(31); x.Scope != ScopeProcess {
		t.Errorf("%s puts %s out of service", x, x.Scope)
	}
	if x := LookupXid(999); x.Scope != ScopeNone || !strings.Contains(x.Advice, "https://docs.nvidia.com") {
		t.Errorf("%+v", x)
	}
}
