// Package gpu has the tests that need NVIDIA GPUs: a driver, and nvcc for the program that is to fail. They are built
// with the tag gpu:
//
//	go test -tags gpu -v ./gpu
package gpu
