#include "textflag.h"
#include "avx512.h"

// Multiplication and division by a constant with AVX-512 F and BW.
//
// Every function is the same loop around a different operation. An operation is a macro that takes a vector in Z0,
// leaves the result there, may use Z1 to Z7, and has the constant in every lane of Z11 and others in Z12 to Z15.

// ONE scales 64 bytes.
#define ONE(offset, OPERATION) \
	VMOVDQU64 offset(SI), Z0; \
	OPERATION; \
	VMOVDQU64 Z0, offset(DI)

// SCALE is the body of func(dst, src *byte, n int, by uint64).
#define SCALE(CONSTANTS, SPREAD, OPERATION) \
	MOVQ dst+0(FP), DI; \
	MOVQ src+8(FP), SI; \
	MOVQ n+16(FP), CX; \
	SPREAD by+24(FP), Z11; \
	CONSTANTS; \
	SUBQ $256, CX; \
	JLT rest; \
four: \
	ONE(0, OPERATION); \
	ONE(64, OPERATION); \
	ONE(128, OPERATION); \
	ONE(192, OPERATION); \
	ADDQ $256, SI; \
	ADDQ $256, DI; \
	SUBQ $256, CX; \
	JGE four; \
rest: \
	ADDQ $(256-64), CX; \
	JLT tail; \
one: \
	ONE(0, OPERATION); \
	ADDQ $64, SI; \
	ADDQ $64, DI; \
	SUBQ $64, CX; \
	JGE one; \
tail: \
	ADDQ $64, CX; \
	JZ done; \
	MOVQ $-1, AX; \
	BZHIQ CX, AX, AX; \
	KMOVQ AX, K1; \
	VMOVDQU8.Z (SI), K1, Z0; \
	OPERATION; \
	VMOVDQU8 Z0, K1, (DI); \
done: \
	VZEROUPPER; \
	RET

#define SCALE_SINGLE(INSTRUCTION) INSTRUCTION Z11, Z0, Z0

#define SCALE_PH(INSTRUCTION) \
	VEXTRACTI64X4 $1, Z0, Y2; \
	VCVTPH2PS Y0, Z0; \
	VCVTPH2PS Y2, Z2; \
	INSTRUCTION Z11, Z0, Z0; \
	INSTRUCTION Z11, Z2, Z2; \
	NARROW_PH

#define SCALE_BF(INSTRUCTION) \
	VPSLLD $16, Z0, Z2; \
	VPANDD Z15, Z0, Z0; \
	INSTRUCTION Z11, Z0, Z0; \
	INSTRUCTION Z11, Z2, Z2; \
	NARROW_BF

TEXT ·mulFloat32AVX512(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSS, SCALE_SINGLE(VMULPS))

TEXT ·mulFloat64AVX512(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSD, SCALE_SINGLE(VMULPD))

TEXT ·mulFloat16AVX512(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSS, SCALE_PH(VMULPS))

TEXT ·mulBFloat16AVX512(SB), NOSPLIT, $0-32
	SCALE(CONSTANTS_BF, VBROADCASTSS, SCALE_BF(VMULPS))

TEXT ·divFloat32AVX512(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSS, SCALE_SINGLE(VDIVPS))

TEXT ·divFloat64AVX512(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSD, SCALE_SINGLE(VDIVPD))

TEXT ·divFloat16AVX512(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSS, SCALE_PH(VDIVPS))

TEXT ·divBFloat16AVX512(SB), NOSPLIT, $0-32
	SCALE(CONSTANTS_BF, VBROADCASTSS, SCALE_BF(VDIVPS))
