// Package kernels does arithmetic on buffers: it reduces two buffers element by element, scales, divides and copies,
// for every data type that a collective may carry.
//
// A reduction is a value: [ReducerOf] looks up the function for a data type and an operator once, at the beginning of a
// collective, and the loop that moves data calls it without any further switch.
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
// All three give the same bits. The plain Go loops define the result; the vector code is compared with them bit by bit.
// The rules:
//
//   - Integers wrap around.
//   - Floats of 16 and 8 bits are widened to float32, combined there, and rounded once on the way back, to nearest,
//     ties to even. Subnormal numbers are kept everywhere.
//   - Overflow of float16, bfloat16 and float8 e5m2 gives an infinity. Float8 e4m3 has none (OCP 8-bit Floating
//     Point Specification 1.0) and saturates at ±448, infinite factors of Scale included.
//   - Min and Max give a NaN if either operand is a NaN, and order -0 below +0, as minimum and maximum of IEEE
//     754-2019.
//   - A NaN result is the first operand that is a NaN, made quiet, with its sign and payload kept. If no operand is a
//     NaN (infinity minus infinity, zero times infinity), it is the NaN that x86 makes: negative, quiet, no payload.
//     Float8 e4m3 keeps the sign, having nothing else to keep.
//
// Elements are in the machine's byte order and need not be aligned, as plain loads on amd64 and arm64 don't require it.
//
// Every function may be called concurrently on different buffers. None blocks. None allocates, except for the tables of
// 8-bit floats, which the first reduction of a kind makes (64 KiB).
package kernels
