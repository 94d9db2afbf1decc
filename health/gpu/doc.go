// Package gpu watches the GPUs of a process with NVIDIA's management library (NVML).
//
// The driver announces Xid errors and ECC errors through an NVML event set, on which one goroutine waits. Everything
// else (memory, ECC and NVLink counters, throttling) is read on request, for a scrape or a health check. A reading is
// reused for a second.
//
//	NVML event set ──► Monitor ──► Config.OnEvent       each event, once
//	NVML counters  ──►         ──► Monitor.Snapshot     what is wrong now, since when, and what to do
//	(on request)               ──► prometheus.Collector
//
// NVML can hang if a GPU has fallen off the bus or the driver is being replaced. So nothing here waits for it longer
// than a deadline, at most two of its calls are in progress, and an NVML that doesn't answer is itself a condition. A
// machine without a driver is fine; a Monitor on it says "no GPU" and looks again from time to time, as containers may
// get a driver late.
//
// NVML spins if two threads of a process wait for events. So the Monitors of a process take turns. If another library
// also waits, they notice and log it, and try again after seconds, then minutes. Xids are not seen meanwhile, but the
// job loses no processor.
//
// A process watches the GPUs of CUDA_VISIBLE_DEVICES, or all if that is not set. The label "gpu" of metrics is NVML's
// index of the GPU on the host, "3". For a MIG device it is the GPU's index and the GPU instance's id, "3:1"; memory is
// then the instance's, and everything else the GPU's.
//
// NVML is loaded at run time, which needs cgo. Without cgo, or on other systems than Linux, the package builds and
// reports that it can't read the GPUs.
package gpu
