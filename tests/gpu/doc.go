// Package gpu has the tests that need NVIDIA GPUs: a driver, and nvcc. They are built with the tag gpu:
//
//	go test -tags gpu -v ./gpu
package gpu
