//go:build !amd64

package kernels

// vectorReducer returns nil: there is no vector code for this architecture.
func vectorReducer(SIMD, DataType, Reduction) Reducer { return nil }

func scaleVectors(SIMD, scaling, []byte, []byte, DataType, float64) (done int) { return 0 }
