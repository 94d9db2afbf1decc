// Package gpu tells how the GPUs of a process are, from NVIDIA's management library (NVML).
//
// What the driver announces arrives without being asked for: Xid errors and ECC errors come through an NVML event set,
// for which one goroutine waits in the kernel. What it does not announce (memory, ECC and NVLink counters, throttling)
// is read when somebody looks: a scrape, a health check. A reading is kept for a second.
//
//	NVML event set ──► Monitor ──► Config.OnEvent       what happened, once
//	NVML counters  ──►         ──► Monitor.Snapshot     what is wrong now, since when, and what to do
//	(when asked)               ──► prometheus.Collector
//
// NVML can hang: with a GPU that fell off the bus, or a driver that is being replaced. So nothing here waits for it
// longer than a deadline, at most two of its calls are ever under way, and a library that doesn't answer is itself a
// condition. A machine without a driver is well; a Monitor on it says "no GPU" and looks again now and then, since
// drivers of containers may come late.
//
// NVML spins where two wait for events in one process. The Monitors of a process take turns; where another library
// waits, too, they notice, say so, and try again after seconds that become minutes, in which Xids are not seen: the
// job's processors come first.
//
// A process watches the GPUs that CUDA_VISIBLE_DEVICES leaves it, or all if that is not set. The label "gpu" of metrics
// is NVML's index of the GPU on the host, "3"; for a MIG device it is the GPU's index and the GPU instance's id, "3:1",
// since memory is the instance's own and all else is the GPU's.
//
// NVML is loaded while the process runs, and needs cgo. Without cgo, or on another system than Linux, the package
// builds and says that it can't look.
package gpu
