package gpu

import "fmt"

// Scope is what an Xid error puts out of service.
type Scope string

// The scopes, the least first.
const (
	ScopeNone    Scope = "nothing"     // nothing; it is a warning
	ScopeProcess Scope = "the process" // the process that used the GPU; the GPU itself works
	ScopeGPU     Scope = "the GPU"     // the GPU, until it is reset or replaced
)

// Xid is what is known about an Xid error, a numbered message of NVIDIA's driver.
type Xid struct {
	Number uint64
	Name   string // from NVIDIA's catalogue
	Scope  Scope  // what is out of service
	Advice string // what to do
}

// String is "Xid 79 (GPU has fallen off the bus)".
func (x Xid) String() string { return fmt.Sprintf("Xid %d (%s)", x.Number, x.Name) }

// What to do.
const (
	adviseProgram = "find the kernel at fault with compute-sanitizer; the GPU is well if other programs run on it"
	adviseReset   = "drain the node and reset the GPU (nvidia-smi --gpu-reset) or reboot; if it happens " +
		"again, test the GPU with dcgmi diag -r 3"
	adviseCycle = "drain the node and power-cycle it; look at power, cooling and seating, and at the " +
		"kernel's log for PCIe errors"
	adviseEarlier = "look for the Xid before it, of which this one is a consequence"
	adviseLink    = "look at nvidia-smi nvlink -e and at the fabric manager's log; reset both GPUs of the " +
		"link; if it happens again, have it checked"
	adviseReboot = "run nvidia-bug-report.sh, then reboot the node; if it happens again, update the driver or have " +
		"the GPU checked"
	adviseSpare = "reset the GPU when the job has ended: that puts the spare memory in use"
	adviseRate  = "errors were corrected; reset the GPU when the job has ended, and have it checked if " +
		"the rate stays"
	adviseContained = "restart the job from its last checkpoint; reset the GPU when it can be spared"
	adviseTimeout   = "restart the program; if it happens again, reset the GPU and update the driver"
	adviseDriver    = "check whether nvidia-smi works; after an update of the driver, reboot or reload it"
	adviseKernelLog = "look for Xids in the kernel's log (dmesg | grep NVRM): a GPU may have fallen off the " +
		"bus; a driver update may be under way"
	adviseCorrected = "no data is lost; if it goes on, reset the GPU when the job has ended"
	adviseLater     = "reset the GPU when the job has ended"
	adviseCooling   = "look at cooling and power supply (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER): " +
		"every collective waits for the slowest GPU"
)

// catalogue has the common Xids of https://docs.nvidia.com/deploy/xid-errors.
var catalogue = map[uint64]Xid{
	8:   {8, "GPU stopped processing", ScopeProcess, adviseProgram},
	13:  {13, "graphics engine exception", ScopeProcess, adviseProgram},
	31:  {31, "GPU memory page fault", ScopeProcess, adviseProgram},
	32:  {32, "invalid or corrupted push buffer stream", ScopeProcess, adviseReboot},
	38:  {38, "driver firmware error", ScopeGPU, adviseReboot},
	43:  {43, "GPU stopped processing", ScopeProcess, adviseProgram},
	45:  {45, "preemptive cleanup, due to previous errors", ScopeProcess, adviseEarlier},
	48:  {48, "double bit ECC error", ScopeGPU, adviseReset},
	61:  {61, "internal micro-controller breakpoint or warning", ScopeGPU, adviseReboot},
	62:  {62, "internal micro-controller halt", ScopeGPU, adviseReboot},
	63:  {63, "ECC page retirement or row remapping recorded", ScopeNone, adviseSpare},
	64:  {64, "ECC page retirement or row remapping not recorded", ScopeGPU, adviseReset},
	68:  {68, "video decoder exception", ScopeProcess, adviseProgram},
	69:  {69, "graphics engine class error", ScopeProcess, adviseProgram},
	74:  {74, "NVLink error", ScopeGPU, adviseLink},
	79:  {79, "GPU has fallen off the bus", ScopeGPU, adviseCycle},
	92:  {92, "high single-bit ECC error rate", ScopeNone, adviseRate},
	94:  {94, "contained ECC error", ScopeProcess, adviseContained},
	95:  {95, "uncontained ECC error", ScopeGPU, adviseReset},
	109: {109, "context switch timeout", ScopeProcess, adviseTimeout},
	119: {119, "GSP RPC timeout", ScopeGPU, adviseReboot},
	120: {120, "GSP error", ScopeGPU, adviseReboot},
	140: {140, "unrecovered ECC error", ScopeGPU, adviseReset},
	143: {143, "GPU initialization error", ScopeGPU, adviseReset},
}

// LookupXid returns what is known about an Xid error. One that isn't in the catalogue has ScopeNone.
func LookupXid(number uint64) Xid {
	if x, ok := catalogue[number]; ok {
		return x
	}
	return Xid{number, "not in the catalogue", ScopeNone, "look it up at https://docs.nvidia.com/deploy/xid-errors"}
}
