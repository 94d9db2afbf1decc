package gpu

import "fmt"

// Scope says what an Xid error puts out of service.
type Scope uint8

// The scopes, the least first.
const (
	ScopeNone    Scope = iota // nothing stops working; a warning
	ScopeProcess              // the process that used the GPU; the GPU is well
	ScopeGPU                  // the GPU, until it is reset or replaced
)

// String is "nothing", "the process" or "the GPU".
func (s Scope) String() string {
	switch s {
	case ScopeProcess:
		return "the process"
	case ScopeGPU:
		return "the GPU"
	default:
		return "nothing"
	}
}

// Xid is what is known of an Xid error: a message of NVIDIA's driver, by its number.
type Xid struct {
	Number uint64
	Name   string // as NVIDIA's catalogue has it
	Scope  Scope  // what is out of service
	Advice string // what to do
}

// String is "Xid 79 (GPU has fallen off the bus)".
func (x Xid) String() string { return fmt.Sprintf("Xid %d (%s)", x.Number, x.Name) }

// What to do, where it is the same for several.
const (
	adviseProgram = "find the kernel at fault with compute-sanitizer; the GPU is well if other programs run on it"
	adviseReset   = "drain the node and reset the GPU (nvidia-smi --gpu-reset) or reboot; if it comes again, test the " +
		"GPU with dcgmi diag -r 3"
	adviseEarlier = "look for the Xid before it: this one only follows"
	adviseLink    = "look at nvidia-smi nvlink -e and at the fabric manager's log; reset both GPUs of the link; if it " +
		"comes again, have it checked"
	adviseReboot = "collect nvidia-bug-report.sh, then reboot the node; if it comes again, update the driver or have " +
		"the GPU checked"
)

// catalogue has the common ones of https://docs.nvidia.com/deploy/xid-errors.
var catalogue = map[uint64]Xid{
	8:  {Name: "GPU stopped processing", Scope: ScopeProcess, Advice: adviseProgram},
	13: {Name: "graphics engine exception", Scope: ScopeProcess, Advice: adviseProgram},
	31: {Name: "GPU memory page fault", Scope: ScopeProcess, Advice: adviseProgram},
	32: {Name: "invalid or corrupted push buffer stream", Scope: ScopeProcess, Advice: adviseReboot},
	38: {Name: "driver firmware error", Scope: ScopeGPU, Advice: adviseReboot},
	43: {Name: "GPU stopped processing", Scope: ScopeProcess, Advice: adviseProgram},
	45: {Name: "preemptive cleanup, due to previous errors", Scope: ScopeProcess, Advice: adviseEarlier},
	48: {Name: "double bit ECC error", Scope: ScopeGPU, Advice: adviseReset},
	61: {Name: "internal micro-controller breakpoint or warning", Scope: ScopeGPU, Advice: adviseReboot},
	62: {Name: "internal micro-controller halt", Scope: ScopeGPU, Advice: adviseReboot},
	63: {
		Name: "ECC page retirement or row remapping recorded", Scope: ScopeNone,
		Advice: "reset the GPU when the job has ended: that puts the spare memory in use",
	},
	64: {Name: "ECC page retirement or row remapping not recorded", Scope: ScopeGPU, Advice: adviseReset},
	68: {Name: "video decoder exception", Scope: ScopeProcess, Advice: adviseProgram},
	69: {Name: "graphics engine class error", Scope: ScopeProcess, Advice: adviseProgram},
	74: {Name: "NVLink error", Scope: ScopeGPU, Advice: adviseLink},
	79: {Name: "GPU has fallen off the bus", Scope: ScopeGPU, Advice: "drain the node and power-cycle it; look at " +
		"power, cooling and seating, and at the kernel's log for PCIe errors"},
	92: {
		Name: "high single-bit ECC error rate", Scope: ScopeNone,
		Advice: "errors were corrected; reset the GPU when the job has ended, and have it checked if the rate stays",
	},
	94: {
		Name: "contained ECC error", Scope: ScopeProcess,
		Advice: "restart the job from its last checkpoint; reset the GPU when it can be spared",
	},
	95: {Name: "uncontained ECC error", Scope: ScopeGPU, Advice: adviseReset},
	109: {
		Name: "context switch timeout", Scope: ScopeProcess,
		Advice: "restart the program; if it comes again, reset the GPU and update the driver",
	},
	119: {Name: "GSP RPC timeout", Scope: ScopeGPU, Advice: adviseReboot},
	120: {Name: "GSP error", Scope: ScopeGPU, Advice: adviseReboot},
	140: {Name: "unrecovered ECC error", Scope: ScopeGPU, Advice: adviseReset},
	143: {Name: "GPU initialization error", Scope: ScopeGPU, Advice: adviseReset},
}

// LookupXid is what is known of an Xid error. Of one that is not in the catalogue, nothing is claimed.
func LookupXid(number uint64) Xid {
	x, ok := catalogue[number]
	if !ok {
		x = Xid{
			Name: "not in the catalogue", Scope: ScopeNone,
			Advice: "look it up at https://docs.nvidia.com/deploy/xid-errors",
		}
	}
	x.Number = number
	return x
}
