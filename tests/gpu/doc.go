// Package gpu has the tests that need NVIDIA GPUs: a driver, and nvcc. They are built with the tag gpu:
//
//	go test -tags gpu -v ./gpu
//
// Beside them, run.sh runs PyTorch jobs on NCCL under carillon attach, both healthy and faulty ones, and prints a table
// of what was reported about them, and of the cost of a call. It needs no Go, and one GPU is enough. With --perf it
// compares the durations of operations, which needs two GPUs. The tests of package attach run it on the fake NCCL.
package gpu
