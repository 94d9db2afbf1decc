// Macros shared by reductions and scaling with AVX2.
//
// Plan 9 writes the operands from right to left: VADDPS Y1, Y0, Y0 is Y0 = Y0 + Y1. The order matters, because x86
// returns the first operand that is a NaN.

// NONE stands for no constants.
#define NONE

#define BROADCAST32(value, X, Y) \
	MOVL $value, AX; \
	VMOVD AX, X; \
	VPBROADCASTD X, Y

#define BROADCAST64(value, X, Y) \
	MOVQ $value, AX; \
	VMOVQ AX, X; \
	VPBROADCASTQ X, Y

// NARROW_PH rounds the float32 of Y0 and Y2 to float16, to nearest, ties to even (the 0).
#define NARROW_PH \
	VCVTPS2PH $0, Y0, X0; \
	VCVTPS2PH $0, Y2, X2; \
	VINSERTI128 $1, X2, Y0, Y0

// A pair of bfloat16 in 32 bits is two float32: the odd element with its lower bits masked, the even element shifted
// up.
#define CONSTANTS_BF \
	BROADCAST32(0xffff0000, X15, Y15); \
	BROADCAST32(1, X14, Y14); \
	BROADCAST32(0x7fff, X13, Y13)

// NARROW_BF rounds the float32 of Y0 to the odd elements, those of Y2 to the even ones. It adds half of the last place,
// less one if that place is even. This can't carry out of a NaN whose lower 16 bits are zero, and NaNs from bfloat16
// operands all are such (scaleVectors ensures that for the constant).
#define NARROW_BF \
	VPSRLD $16, Y0, Y1; \
	VPSRLD $16, Y2, Y3; \
	VPAND Y14, Y1, Y1; \
	VPAND Y14, Y3, Y3; \
	VPADDD Y13, Y0, Y0; \
	VPADDD Y13, Y2, Y2; \
	VPADDD Y1, Y0, Y0; \
	VPADDD Y3, Y2, Y2; \
	VPSRLD $16, Y2, Y2; \
	VPBLENDW $0xaa, Y0, Y2, Y0
