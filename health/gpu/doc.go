// Package gpu watches the GPUs of a process by NVIDIA's management library (NVML).
//
// The driver announces Xid errors and ECC errors by an NVML event set, for which one goroutine waits. Everything else
// (memory, ECC and NVLink counters, throttling) is read on request: for a scrape or a health check. A reading is reused
// for a second.
//
//	NVML event set ──► Monitor ──► Config.OnEvent       each event, once
//	NVML counters  ──►         ──► Monitor.Snapshot     what is wrong now, since when, and what to do
//	(on request)               ──► prometheus.Collector
//
// NVML can hang, when a GPU has fallen off the bus or the driver is being replaced. So nothing here waits for it longer
// than a deadline, at most two of its calls are in progress, and an NVML that doesn't answer is itself a condition. A
// machine without a driver is well; a Monitor on it says "no GPU" and looks again from time to time, as containers may
// get a driver late.
//
// NVML spins if two threads of a process wait for events. The Monitors of a process take turns. If another library
// waits, too, they notice, log it, and try again after seconds, then minutes. Xids are not seen meanwhile, but no
// processor is lost to the job.
//
// A process watches the GPUs of CUDA_VISIBLE_DEVICES, or all if that is not set. The label "gpu" of metrics is NVML's
// index of the GPU on the host, "3"; for a MIG device it is the GPU's index and the GPU instance's id, "3:1": memory is
// of the instance, everything else of the GPU.
//
// NVML is loaded at run time, which needs cgo. Without cgo, or on another system than Linux, the package builds and
// says that it can't read the GPUs.
package gpu
