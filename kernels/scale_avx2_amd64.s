#include "textflag.h"
#include "avx2.h"

// Multiplication and division by a constant with AVX2 and F16C.
//
// Every function is the same loop around a different operation. An operation is a macro that takes a vector in Y0,
// leaves the result there, may use Y1 to Y7, and has the constant in every lane of Y11 and others in Y12 to Y15.

// ONE scales 32 bytes.
#define ONE(offset, OPERATION) \
	VMOVDQU offset(SI), Y0; \
	OPERATION; \
	VMOVDQU Y0, offset(DI)

// SCALE is the body of func(dst, src *byte, n int, by uint64), n being a multiple of 32.
#define SCALE(CONSTANTS, SPREAD, OPERATION) \
	MOVQ dst+0(FP), DI; \
	MOVQ src+8(FP), SI; \
	MOVQ n+16(FP), CX; \
	SPREAD by+24(FP), Y11; \
	CONSTANTS; \
	SUBQ $128, CX; \
	JLT rest; \
four: \
	ONE(0, OPERATION); \
	ONE(32, OPERATION); \
	ONE(64, OPERATION); \
	ONE(96, OPERATION); \
	ADDQ $128, SI; \
	ADDQ $128, DI; \
	SUBQ $128, CX; \
	JGE four; \
rest: \
	ADDQ $128, CX; \
	JZ done; \
one: \
	ONE(0, OPERATION); \
	ADDQ $32, SI; \
	ADDQ $32, DI; \
	SUBQ $32, CX; \
	JNZ one; \
done: \
	VZEROUPPER; \
	RET

#define SCALE_SINGLE(INSTRUCTION) INSTRUCTION Y11, Y0, Y0

#define SCALE_PH(INSTRUCTION) \
	VEXTRACTI128 $1, Y0, X2; \
	VCVTPH2PS X0, Y0; \
	VCVTPH2PS X2, Y2; \
	INSTRUCTION Y11, Y0, Y0; \
	INSTRUCTION Y11, Y2, Y2; \
	NARROW_PH

#define SCALE_BF(INSTRUCTION) \
	VPSLLD $16, Y0, Y2; \
	VPAND Y15, Y0, Y0; \
	INSTRUCTION Y11, Y0, Y0; \
	INSTRUCTION Y11, Y2, Y2; \
	NARROW_BF

TEXT ·mulFloat32AVX2(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSS, SCALE_SINGLE(VMULPS))

TEXT ·mulFloat64AVX2(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSD, SCALE_SINGLE(VMULPD))

TEXT ·mulFloat16AVX2(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSS, SCALE_PH(VMULPS))

TEXT ·mulBFloat16AVX2(SB), NOSPLIT, $0-32
	SCALE(CONSTANTS_BF, VBROADCASTSS, SCALE_BF(VMULPS))

TEXT ·divFloat32AVX2(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSS, SCALE_SINGLE(VDIVPS))

TEXT ·divFloat64AVX2(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSD, SCALE_SINGLE(VDIVPD))

TEXT ·divFloat16AVX2(SB), NOSPLIT, $0-32
	SCALE(NONE, VBROADCASTSS, SCALE_PH(VDIVPS))

TEXT ·divBFloat16AVX2(SB), NOSPLIT, $0-32
	SCALE(CONSTANTS_BF, VBROADCASTSS, SCALE_BF(VDIVPS))
