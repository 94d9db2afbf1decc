// Macros shared by reductions and scaling with AVX-512.
//
// Plan 9 writes the operands from right to left: VADDPS Z1, Z0, Z0 is Z0 = Z0 + Z1. The order matters, because x86
// returns the first operand that is a NaN.

// NONE stands for no constants.
#define NONE

#define BROADCAST32(value, Z) \
	MOVL $value, AX; \
	VPBROADCASTD AX, Z

// NARROW_PH rounds the float32 of Z0 and Z2 to float16, to nearest, ties to even (the 0).
#define NARROW_PH \
	VCVTPS2PH $0, Z0, Y0; \
	VCVTPS2PH $0, Z2, Y2; \
	VINSERTI64X4 $1, Y2, Z0, Z0

// A pair of bfloat16 in 32 bits is two float32: the odd element with its lower bits masked, the even element shifted
// up.
#define CONSTANTS_BF \
	BROADCAST32(0xffff0000, Z15); \
	BROADCAST32(1, Z14); \
	BROADCAST32(0x7fff, Z13)

// NARROW_BF rounds the float32 of Z0 to the odd elements, those of Z2 to the even ones. It adds half of the last place,
// less one if that place is even. This can't carry out of a NaN whose lower 16 bits are zero, and NaNs from bfloat16
// operands all are such (scaleVectors ensures that for the constant). AVX512_BF16 would round in one instruction, but
// flushes subnormal numbers to zero. The last line is Z0 = Z2 | Z15 & Z0.
#define NARROW_BF \
	VPSRLD $16, Z0, Z1; \
	VPSRLD $16, Z2, Z3; \
	VPANDD Z14, Z1, Z1; \
	VPANDD Z14, Z3, Z3; \
	VPADDD Z13, Z0, Z0; \
	VPADDD Z13, Z2, Z2; \
	VPADDD Z1, Z0, Z0; \
	VPADDD Z3, Z2, Z2; \
	VPSRLD $16, Z2, Z2; \
	VPTERNLOGD $0xea, Z2, Z15, Z0
