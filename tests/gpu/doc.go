// Package gpu has the tests that need NVIDIA GPUs: a driver, and nvcc. They are built with the tag gpu:
//
//	go test -tags gpu -v ./gpu
//
// Beside them, run.sh runs PyTorch jobs on NCCL under carillon attach, well ones and ones with a fault, and prints a
// table of what was said of them, and what it costs a call. It needs no Go, and one GPU is enough. With --perf it
// compares what operations take, which needs two. The tests of package attach run it on the fake NCCL.
package gpu
