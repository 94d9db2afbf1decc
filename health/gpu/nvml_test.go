//go:build cgo && linux

package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
)

// dgx is a mocked DGX A100 with 8 GPUs that have what the mock leaves out.
func dgx() *dgxa100.Server {
	server := dgxa100.New()
	for i := range server.Devices {
		d := server.Devices[i].(*dgxa100.Device)
		d.UUID = fmt.Sprintf("GPU-%08x-0000", 0xa0+i)
		d.MemoryInfo.Used = uint64(i) << 20
		d.GetTotalEccErrorsFunc = func(kind nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
			return 3 - 2*uint64(kind), nvml.SUCCESS // 3 corrected, 1 uncorrected
		}
		d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) {
			return nvml.ClocksThrottleReasonGpuIdle | nvml.ClocksThrottleReasonHwThermalSlowdown |
				nvml.ClocksThrottleReasonSwPowerCap, nvml.SUCCESS
		}
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 40, nvml.SUCCESS }
		d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 1, 1, true, false, nvml.SUCCESS }
		d.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
			switch {
			case link >= 12:
				return 0, nvml.ERROR_INVALID_ARGUMENT
			case link == 3:
				return nvml.FEATURE_DISABLED, nvml.SUCCESS
			default:
				return nvml.FEATURE_ENABLED, nvml.SUCCESS
			}
		}
		d.GetNvLinkErrorCounterFunc = func(link int, counter nvml.NvLinkErrorCounter) (uint64, nvml.Return) {
			if counter == nvml.NVLINK_ERROR_DL_CRC_DATA {
				return 0, nvml.ERROR_NOT_SUPPORTED
			}
			return uint64(link), nvml.SUCCESS
		}
	}
	return server
}

func labels(devices []device) string {
	var all []string
	for _, d := range devices {
		all = append(all, d.identity().label)
	}
	return strings.Join(all, " ")
}

func TestNVMLDevicesAndVisibility(t *testing.T) {
	for value, want := range map[string]string{
		"all": "0 1 2 3 4 5 6 7", "2,0": "2 0", "GPU-000000a3": "3", "GPU-000000a3-0000,1": "3 1", "9,1": "",
		"1,9,2": "1", "MIG-x": "", "": "",
	} {
		d := &nvmlDriver{lib: dgx()}
		got, err := d.devices(parseVisible(value, value != "all"))
		if err != nil || labels(got) != want {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q: GPUs %q, %v; want %q", value, labels(got), err, want)
		}
	}
}

func TestNVMLOneGPUOfEightIsLost(t *testing.T) {
	server := dgx()
	find := server.DeviceGetHandleByIndexFunc
	server.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 4 {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return find(i)
	}
	d := &nvmlDriver{lib: server}
	if got, err := d.devices(visibility{all: true}); err != nil || labels(got) != "0 1 2 3 5 6 7" {
		t.Errorf("GPUs %q, %v", labels(got), err)
	}
	server.DeviceGetHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return nil, nvml.ERROR_GPU_IS_LOST }
	if _, err := d.devices(visibility{all: true}); !errors.Is(err, errLost) {
		t.Errorf("all are lost: %v", err)
	}
}

func TestNVMLReading(t *testing.T) {
	server := dgx()
	d := &nvmlDriver{lib: server}
	all, err := d.devices(visibility{all: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := all[2].read()
	if err != nil {
		t.Fatal(err)
	}
	if r.Memory.Used != 2<<20 || r.Memory.Total != 40<<30 || *r.ECC != (ECC{Corrected: 3, Uncorrected: 1}) ||
		*r.Temperature != 40 || !r.Rows.Pending {
		t.Errorf("%+v %+v %+v %+v", r, r.Memory, r.ECC, r.Rows)
	}
	if want := []string{powerCap, "hw_thermal"}; !slices.Equal(r.Throttled, want) {
		t.Errorf("throttled: %q, want %q", r.Throttled, want)
	}
	if want := []int{0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11}; !slices.Equal(r.NVLink.Up, want) ||
		r.NVLink.Errors != 3*(66-3) {
		t.Errorf("links: %+v, want %v up and %d errors", r.NVLink, want, 3*(66-3))
	}
	for ret, want := range map[nvml.Return]error{
		nvml.ERROR_GPU_IS_LOST: errLost, nvml.ERROR_RESET_REQUIRED: errReset,
		nvml.ERROR_UNKNOWN: nil,
	} {
		mocked := server.Devices[2].(*dgxa100.Device)
		mocked.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, ret }
		if r, err := all[2].read(); !errors.Is(err, want) || r.Memory != nil || (r.ECC == nil) != (want != nil) {
			t.Errorf("%v: %+v, %v", ret, r, err)
		}
	}
}

// TestNVMLOldLibrary checks that a function that the library may not have is looked up, and that what isn't supported
// is left out.
func TestNVMLOldLibrary(t *testing.T) {
	server := dgx()
	server.LookupSymbolFunc = func(string) error { return errors.New("undefined symbol") }
	mocked := server.Devices[0].(*dgxa100.Device)
	mocked.GetRemappedRowsFunc = nil // would panic
	mocked.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	mocked.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	all, err := (&nvmlDriver{lib: server}).devices(visibility{all: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r, err := all[0].read(); err != nil || r.Rows != nil || r.NVLink != nil || r.ECC != nil || r.Memory == nil {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if n := len(mocked.GetNvLinkStateCalls()); n != 1 {
		t.Errorf("a GPU without links was asked for them %d times", n)
	}
}

func TestNVMLMIGDevice(t *testing.T) {
	server := dgx()
	parent := server.Devices[3].(*dgxa100.Device)
	mig := dgxa100.NewDevice(0)
	mig.UUID, mig.MemoryInfo = "MIG-1", nvml.Memory{Used: 7, Total: 5 << 30}
	mig.GetDeviceHandleFromMigDeviceHandleFunc = func() (nvml.Device, nvml.Return) { return parent, nvml.SUCCESS }
	mig.GetGpuInstanceIdFunc = func() (int, nvml.Return) { return 9, nvml.SUCCESS }
	server.DeviceGetHandleByUUIDFunc = func(uuid string) (nvml.Device, nvml.Return) {
		if uuid != mig.UUID {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return mig, nvml.SUCCESS
	}
	all, err := (&nvmlDriver{lib: server}).devices(parseVisible("MIG-1", true))
	if err != nil || labels(all) != "3:9" || all[0].identity().uuid != "MIG-1" {
		t.Fatalf("GPUs %q, %v", labels(all), err)
	}
	r, err := all[0].read()
	if err != nil || r.Memory.Used != 7 || r.ECC.Corrected != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	events := &nvmlEvents{}
	for instance, want := range map[uint32]bool{9: true, 8: false, wholeGPU: true} {
		if got := events.about(event{device: nvml.Device(parent), instance: instance}, all[0]); got != want {
			t.Errorf("an event of instance %d is about it: %v", instance, got)
		}
	}
	if events.about(event{device: server.Devices[0], instance: wholeGPU}, all[0]) {
		t.Error("another GPU's event is about it")
	}
}

func TestNVMLEvents(t *testing.T) {
	server := dgx()
	var data nvml.EventData
	var answer nvml.Return
	set := &mock.EventSet{
		WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
			if ms != 500 {
				t.Errorf("waits %d ms", ms)
			}
			return data, answer
		},
		FreeFunc: func() nvml.Return { return nvml.SUCCESS },
	}
	server.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return set, nvml.SUCCESS }
	const all = uint64(nvml.EventTypeAll)
	for i, c := range []struct {
		supported  uint64
		ret        nvml.Return
		registered uint64
	}{
		{
			all, nvml.SUCCESS,
			nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError | nvml.EventTypeSingleBitEccError,
		},
		{nvml.EventTypeXidCriticalError | nvml.EventTypeClock, nvml.SUCCESS, nvml.EventTypeXidCriticalError},
		{nvml.EventTypeClock | nvml.EventTypePState, nvml.SUCCESS, 0},
		{0, nvml.ERROR_NOT_SUPPORTED, 0},
	} {
		mocked := server.Devices[i].(*dgxa100.Device)
		mocked.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return c.supported, c.ret }
		mocked.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	}
	server.Devices[4].(*dgxa100.Device).GetSupportedEventTypesFunc = func() (uint64, nvml.Return) {
		return 0,
			nvml.ERROR_GPU_IS_LOST
	}
	d := &nvmlDriver{lib: server}
	devices, err := d.devices(visibility{all: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.newEvents()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint64{11, 8, 0, 0} {
		if err := s.add(devices[i]); err != nil {
			t.Errorf("GPU %d: %v", i, err)
		}
		calls := server.Devices[i].(*dgxa100.Device).RegisterEventsCalls()
		switch {
		case want == 0 && len(calls) != 0:
			t.Errorf("GPU %d: registered %v", i, calls)
		case want != 0 && (len(calls) != 1 || calls[0].V != want):
			t.Errorf("GPU %d: registered %v, want %d", i, calls, want)
		}
	}
	if err := s.add(devices[4]); !errors.Is(err, errLost) {
		t.Errorf("a lost GPU: %v", err)
	}
	data = nvml.EventData{
		Device: server.Devices[1], EventType: nvml.EventTypeXidCriticalError, EventData: 31,
		GpuInstanceId: wholeGPU,
	}
	if e, err := s.wait(500 * time.Millisecond); err != nil || e.code != CodeXid || e.xid != 31 ||
		!s.about(e, devices[1]) || s.about(e, devices[0]) {
		t.Errorf("%+v, %v", e, err)
	}
	for kind, want := range map[uint64]string{
		nvml.EventTypeDoubleBitEccError: CodeECC,
		nvml.EventTypeSingleBitEccError: CodeCorrected,
	} {
		data.EventType = kind
		if e, err := s.wait(500 * time.Millisecond); err != nil || e.code != want {
			t.Errorf("%+v, %v", e, err)
		}
	}
	for ret, want := range map[nvml.Return]error{nvml.ERROR_TIMEOUT: errTimeout, nvml.ERROR_GPU_IS_LOST: errLost} {
		answer = ret
		if _, err := s.wait(500 * time.Millisecond); !errors.Is(err, want) {
			t.Errorf("%v: %v", ret, err)
		}
	}
	s.free()
	if len(set.FreeCalls()) != 1 {
		t.Error("the set was not freed")
	}
}

func TestNVMLErrors(t *testing.T) {
	for ret, want := range map[nvml.Return]error{
		nvml.SUCCESS: nil, nvml.ERROR_LIBRARY_NOT_FOUND: errNoDriver, nvml.ERROR_DRIVER_NOT_LOADED: errNoDriver,
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: nvml.ERROR_LIB_RM_VERSION_MISMATCH,
	} {
		server := dgx()
		server.InitFunc = func() nvml.Return { return ret }
		d := &nvmlDriver{lib: server}
		if err := d.open(); !errors.Is(err, want) {
			t.Errorf("%v: %v", ret, err)
		}
		d.close()
		if len(server.ShutdownCalls()) != 1 {
			t.Error("not shut down")
		}
	}
}

// NVML has one wait at a time, whichever Monitor waits; a wait that spins is detected.
func TestNVMLWaitsOneAtATime(t *testing.T) {
	inside := make(chan int, 1)
	inside <- 0
	overlaps := 0
	wait := func(spin time.Duration) func(uint32) (nvml.EventData, nvml.Return) {
		return func(uint32) (nvml.EventData, nvml.Return) {
			select {
			case <-inside:
			default:
				overlaps++
				return nvml.EventData{}, nvml.ERROR_TIMEOUT
			}
			for began := threadTime(); threadTime()-began < spin; {
				runtime.Gosched()
			}
			inside <- 0
			return nvml.EventData{}, nvml.ERROR_TIMEOUT
		}
	}
	const timeout = 20 * time.Millisecond
	sleeps, spins := &nvmlEvents{&mock.EventSet{WaitFunc: wait(timeout / 4)}},
		&nvmlEvents{&mock.EventSet{WaitFunc: wait(timeout)}}
	in := func(s *nvmlEvents) error {
		defer new(nvmlDriver).turn()()
		_, err := s.wait(timeout)
		return err
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := in(sleeps); !errors.Is(err, errTimeout) {
				t.Errorf("one that sleeps: %v", err)
			}
			if err := in(spins); !errors.Is(err, errSpins) {
				t.Errorf("one that spins: %v", err)
			}
		})
	}
	wg.Wait()
	if overlaps > 0 {
		t.Errorf("%d waited while another did", overlaps)
	}
}
