//go:build cgo && linux

package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// nvmlDriver is NVML, loaded while the process runs.
type nvmlDriver struct {
	lib nvml.Interface
}

func newDriver() driver { return &nvmlDriver{lib: nvml.New()} }

// wrap turns NVML's return value into an error.
func wrap(call string, ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_TIMEOUT:
		return errTimeout
	case nvml.ERROR_GPU_IS_LOST:
		return errLost
	case nvml.ERROR_RESET_REQUIRED:
		return errReset
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("%w: no NVML library (libnvidia-ml.so.1) is installed", errNoDriver)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("%w: no NVIDIA driver is loaded", errNoDriver)
	default:
		return fmt.Errorf("%s: %w", call, ret)
	}
}

func (d *nvmlDriver) open() error { return wrap("nvmlInit", d.lib.Init()) }

func (d *nvmlDriver) close() { d.lib.Shutdown() }

// devices finds the GPUs. Indices are NVML's, by PCI address. They equal CUDA's, unless a host's GPUs differ and
// CUDA_DEVICE_ORDER is not PCI_BUS_ID.
func (d *nvmlDriver) devices(v visibility) ([]device, error) {
	count, ret := d.lib.DeviceGetCount()
	if err := wrap("nvmlDeviceGetCount", ret); err != nil {
		return nil, err
	}
	var all []device
	var errs []error
	for i := range count {
		h, ret := d.lib.DeviceGetHandleByIndex(i)
		if err := wrap("nvmlDeviceGetHandleByIndex", ret); err != nil {
			errs = append(errs, fmt.Errorf("GPU %d: %w", i, err)) // the others may be well
			continue
		}
		all = append(all, d.device(h, strconv.Itoa(i), nil))
	}
	if len(all) == 0 && len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if v.all {
		return all, nil
	}
	var own []device
	for _, entry := range v.devices {
		found := d.find(entry, all)
		if found == nil {
			break // as CUDA does
		}
		own = append(own, found)
	}
	return own, nil
}

// find is the device that an entry of CUDA_VISIBLE_DEVICES names, nil if none does.
func (d *nvmlDriver) find(entry string, all []device) device {
	if strings.HasPrefix(entry, "MIG-") {
		if h, ret := d.lib.DeviceGetHandleByUUID(entry); ret == nvml.SUCCESS {
			return d.instance(h, all)
		}
		return nil
	}
	for _, dev := range all {
		if id := dev.identity(); id.label == entry ||
			strings.HasPrefix(entry, "GPU-") && strings.HasPrefix(id.uuid, entry) {
			return dev
		}
	}
	return nil
}

func (d *nvmlDriver) instance(h nvml.Device, all []device) device {
	parent, ret := h.GetDeviceHandleFromMigDeviceHandle()
	if ret != nvml.SUCCESS {
		return nil
	}
	number, ret := h.GetGpuInstanceId()
	if ret != nvml.SUCCESS {
		return nil
	}
	for _, dev := range all {
		whole := dev.(*nvmlDevice)
		if whole.handle != parent {
			continue
		}
		m := d.device(parent, fmt.Sprintf("%s:%d", whole.id.label, number), h)
		m.id.instance = new(uint32(number))
		return m
	}
	return nil
}

func (d *nvmlDriver) device(h nvml.Device, label string, mig nvml.Device) *nvmlDevice {
	dev := &nvmlDevice{handle: h, memory: h, id: identity{label: label}, links: nvml.NVLINK_MAX_LINKS}
	if mig != nil {
		dev.memory = mig
	}
	dev.id.uuid, _ = dev.memory.GetUUID() // a GPU without a name can still be watched
	dev.id.name, _ = dev.memory.GetName()
	// Calling a function that this driver's library lacks would end the process.
	dev.rows = d.lib.Extensions().LookupSymbol("nvmlDeviceGetRemappedRows") == nil
	return dev
}

type nvmlDevice struct {
	handle nvml.Device
	memory nvml.Device // the MIG device, else handle
	id     identity
	links  int  // how many NVLinks there can be
	rows   bool // the library knows of remapped rows
}

func (d *nvmlDevice) identity() identity { return d.id }

// asked keeps the worst result of several calls of NVML.
type asked struct{ err error }

// ok tells whether the call succeeded, and notes if the GPU is lost or needs a reset.
func (a *asked) ok(ret nvml.Return) bool {
	if ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED && a.err == nil {
		a.err = wrap("", ret)
	}
	return ret == nvml.SUCCESS
}

func (d *nvmlDevice) read() (reading, error) {
	var r reading
	var a asked
	if m, ret := d.memory.GetMemoryInfo(); a.ok(ret) {
		r.Memory = &Memory{Used: m.Used, Total: m.Total}
	}
	if errors.Is(a.err, errLost) {
		return reading{}, a.err // every further call could take as long as this one
	}
	corrected, ret1 := d.handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC)
	uncorrected, ret2 := d.handle.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	if a.ok(ret1) && a.ok(ret2) {
		r.ECC = &ECC{Corrected: corrected, Uncorrected: uncorrected}
	}
	// The new name of it, nvmlDeviceGetCurrentClocksEventReasons, is not in all libraries; this one is.
	if mask, ret := d.handle.GetCurrentClocksThrottleReasons(); a.ok(ret) {
		r.Throttled = []string{}
		for _, reason := range throttleReasons {
			if mask&reason.bit != 0 {
				r.Throttled = append(r.Throttled, reason.name)
			}
		}
	}
	if t, ret := d.handle.GetTemperature(nvml.TEMPERATURE_GPU); a.ok(ret) {
		r.Temperature = &t
	}
	if d.rows {
		if _, _, pending, failed, ret := d.handle.GetRemappedRows(); a.ok(ret) {
			r.Rows = &Rows{Pending: pending, Failed: failed}
		}
	}
	r.NVLink = d.readLinks(&a)
	if a.err != nil {
		return reading{}, a.err
	}
	return r, nil
}

var linkErrors = []nvml.NvLinkErrorCounter{
	nvml.NVLINK_ERROR_DL_REPLAY, nvml.NVLINK_ERROR_DL_RECOVERY, nvml.NVLINK_ERROR_DL_CRC_FLIT,
	nvml.NVLINK_ERROR_DL_CRC_DATA,
}

// readLinks is nil for a GPU without NVLinks.
func (d *nvmlDevice) readLinks(a *asked) *NVLink {
	var n *NVLink
	for link := range d.links {
		state, ret := d.handle.GetNvLinkState(link)
		if ret == nvml.ERROR_INVALID_ARGUMENT || ret == nvml.ERROR_NOT_SUPPORTED && link == 0 {
			d.links = link // there are no more
			break
		}
		if !a.ok(ret) {
			continue
		}
		if n == nil {
			n = &NVLink{}
		}
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		n.Up = append(n.Up, link)
		for _, counter := range linkErrors {
			if errs, ret := d.handle.GetNvLinkErrorCounter(link, counter); a.ok(ret) {
				n.Errors += errs
			}
		}
	}
	return n
}

// inEvents lets only one Monitor of the process at a time call NVML about events. While one call waits for an event,
// another one would spin on a lock of the library and take a core from the job (seen with driver 580).
var inEvents sync.Mutex

func (d *nvmlDriver) turn() (end func()) {
	inEvents.Lock()
	return inEvents.Unlock
}

type nvmlEvents struct{ set nvml.EventSet }

func (d *nvmlDriver) newEvents() (events, error) {
	set, ret := d.lib.EventSetCreate()
	if err := wrap("nvmlEventSetCreate", ret); err != nil {
		return nil, err
	}
	return &nvmlEvents{set}, nil
}

// wanted are the events that a Monitor uses. Events for clocks and performance states would come with every kernel.
const wanted = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError | nvml.EventTypeSingleBitEccError

func (s *nvmlEvents) add(dev device) error {
	handle := dev.(*nvmlDevice).handle
	supported, ret := handle.GetSupportedEventTypes()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return nil
	}
	if err := wrap("nvmlDeviceGetSupportedEventTypes", ret); err != nil {
		return err
	}
	if supported &= wanted; supported == 0 {
		return nil
	}
	if ret = handle.RegisterEvents(supported, s.set); ret == nvml.ERROR_NOT_SUPPORTED {
		return nil
	}
	return wrap("nvmlDeviceRegisterEvents", ret)
}

func (s *nvmlEvents) wait(timeout time.Duration) (event, error) {
	runtime.LockOSThread()
	before := threadTime()
	data, ret := s.set.Wait(uint32(timeout.Milliseconds()))
	used := threadTime() - before
	runtime.UnlockOSThread()
	if ret == nvml.ERROR_TIMEOUT && used > timeout/2 {
		return event{}, errSpins
	}
	if err := wrap("nvmlEventSetWait", ret); err != nil {
		return event{}, err
	}
	e := event{device: data.Device, instance: data.GpuInstanceId}
	switch data.EventType {
	case nvml.EventTypeXidCriticalError:
		e.code, e.xid = CodeXid, data.EventData
	case nvml.EventTypeDoubleBitEccError:
		e.code = CodeECC
	case nvml.EventTypeSingleBitEccError:
		e.code = CodeCorrected
	}
	return e, nil
}

// errSpins ends a wait that took a core instead of sleeping. Until the next attempt, no Xid is seen.
var errSpins = errors.New("the wait for NVML's events spins: another library in this process waits for them, too")

// threadTime is the CPU time of this thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) // every Linux has this clock
	return time.Duration(ts.Nano())
}

func (s *nvmlEvents) about(e event, dev device) bool {
	d := dev.(*nvmlDevice)
	return e.device == any(d.handle) && (d.id.instance == nil || e.instance == wholeGPU || e.instance == *d.id.instance)
}

func (s *nvmlEvents) free() {
	s.set.Free()
}
