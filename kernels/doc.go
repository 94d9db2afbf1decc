// Package kernels does arithmetic on buffers: it reduces two of them element by element, scales, divides and
// copies, for every data type a collective may carry.
//
// Its one idea: a reduction is a value. [ReducerOf] looks the function for a data type and an operator up once, at
// the beginning of a collective, and the loop that moves data calls it with no switch left inside.
//
//	         ReducerOf(Float16, Sum)
//	                   |
//	    what this machine can do (DetectSIMD)
//	    what the user allows     (LimitSIMD)
//	      /            |            \
//	 plain Go        AVX2         AVX-512
//	(reference)   whole vectors,   masked
//	              rest in Go        tail
//
// All three give the same bits. The plain Go loops say what the result is; the vector code is compared with them
// bit by bit. What they agree on:
//
//   - Integers wrap around.
//   - Floats of 16 and 8 bits are widened to float32, combined there, and rounded once on the way back, to nearest,
//     ties to even. Subnormal numbers are kept everywhere.
//   - Overflow of float16, bfloat16 and float8 e5m2 gives an infinity. Float8 e4m3 has none (OCP 8-bit Floating
//     Point Specification 1.0) and saturates at ±448, infinite factors of Scale included.
//   - Min and Max give a NaN if either operand is one, and order -0 below +0, as IEEE 754-2019's minimum and maximum.
//   - A NaN result is the first operand that is a NaN, made quiet, its sign and payload kept. Where none of the
//     operands is one (infinity minus infinity, zero times infinity) it is the NaN that x86 makes: negative, quiet,
//     no payload. Float8 e4m3 keeps the sign, having nothing else to keep.
//
// Elements are in the machine's byte order and need not be aligned, as on amd64 and arm64 they need not be for any
// plain load.
//
// Every function may be called concurrently on different buffers. None blocks; none allocates, but for the tables of
// 8-bit floats, which the first reduction of a kind makes (64 KiB).
package kernels
