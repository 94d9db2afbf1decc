// Package tests holds what needs more than one process: jobs of real ranks, killed, stopped and signalled as operators
// and kernels do. It is a module of its own, so that what only tests need never reaches a user's go.sum. make e2e runs
// it.
//
//	e2e     builds the command and the examples, starts jobs, reads what they print
//	run     tests of carillon run
//	digits  tests of the example that trains, and of training that outlives ranks
//	grow    tests of a job that takes in new processes
//	chaos   kills, stops and parts ranks in network namespaces, and holds what RAS tells of it against what was done
//	soak    watches a healthy job beside far too many busy processes: RAS must not say a word
//	jaeger  starts a real Jaeger, sends it jobs' spans, asks it what a person would
//	polling asks a job's health endpoints far too often, and abuses its ports, and sees whether the job notices
//	gpu     tests of what needs NVIDIA GPUs; only with the build tag gpu
//	prometheus  holds the dashboards folder against a running job, and asks a real Prometheus for its alerts
package tests
