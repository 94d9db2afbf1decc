#include "textflag.h"
#include "avx2.h"

// Reductions with AVX2 and F16C.
//
// Every function is the same loop around a different operation. An operation is a macro that takes a vector of a in Y0
// and one of b in Y1, leaves the result in Y0, may use Y2 to Y7, and has its constants in Y12 to Y15.

// VECTOR combines 32 bytes.
#define VECTOR(offset, OPERATION) \
	VMOVDQU offset(SI), Y0; \
	VMOVDQU offset(DX), Y1; \
	OPERATION; \
	VMOVDQU Y0, offset(DI)

// REDUCE is the body of func(dst, a, b *byte, n int), n being a multiple of 32.
#define REDUCE(CONSTANTS, OPERATION) \
	MOVQ dst+0(FP), DI; \
	MOVQ a+8(FP), SI; \
	MOVQ b+16(FP), DX; \
	MOVQ n+24(FP), CX; \
	CONSTANTS; \
	SUBQ $128, CX; \
	JLT rest; \
four: \
	VECTOR(0, OPERATION); \
	VECTOR(32, OPERATION); \
	VECTOR(64, OPERATION); \
	VECTOR(96, OPERATION); \
	ADDQ $128, SI; \
	ADDQ $128, DX; \
	ADDQ $128, DI; \
	SUBQ $128, CX; \
	JGE four; \
rest: \
	ADDQ $128, CX; \
	JZ done; \
one: \
	VECTOR(0, OPERATION); \
	ADDQ $32, SI; \
	ADDQ $32, DX; \
	ADDQ $32, DI; \
	SUBQ $32, CX; \
	JNZ one; \
done: \
	VZEROUPPER; \
	RET

#define SINGLE(INSTRUCTION) INSTRUCTION Y1, Y0, Y0

// Minimum and maximum of floats. MINPS returns its second operand if the operands are zeros or one is a NaN. With the
// operands in both orders, the two results differ only in the signs of zeros: OR keeps a minus, AND a plus. If there is
// a NaN, the sum has the right one.

#define NAN_PS \
	VCMPPS $3, Y1, Y0, Y4; \
	VADDPS Y1, Y0, Y0; \
	VBLENDVPS Y4, Y0, Y2, Y0

#define MIN_PS \
	VMINPS Y1, Y0, Y2; \
	VMINPS Y0, Y1, Y3; \
	VORPS Y3, Y2, Y2; \
	NAN_PS

#define MAX_PS \
	VMAXPS Y1, Y0, Y2; \
	VMAXPS Y0, Y1, Y3; \
	VANDPS Y3, Y2, Y2; \
	NAN_PS

#define NAN_PD \
	VCMPPD $3, Y1, Y0, Y4; \
	VADDPD Y1, Y0, Y0; \
	VBLENDVPD Y4, Y0, Y2, Y0

#define MIN_PD \
	VMINPD Y1, Y0, Y2; \
	VMINPD Y0, Y1, Y3; \
	VORPD Y3, Y2, Y2; \
	NAN_PD

#define MAX_PD \
	VMAXPD Y1, Y0, Y2; \
	VMAXPD Y0, Y1, Y3; \
	VANDPD Y3, Y2, Y2; \
	NAN_PD

// Arithmetic on float16: widened by halves, combined, and rounded.

#define WIDEN_PH \
	VEXTRACTI128 $1, Y0, X2; \
	VEXTRACTI128 $1, Y1, X3; \
	VCVTPH2PS X0, Y0; \
	VCVTPH2PS X1, Y1; \
	VCVTPH2PS X2, Y2; \
	VCVTPH2PS X3, Y3

#define SUM_PH \
	WIDEN_PH; \
	VADDPS Y1, Y0, Y0; \
	VADDPS Y3, Y2, Y2; \
	NARROW_PH

#define PROD_PH \
	WIDEN_PH; \
	VMULPS Y1, Y0, Y0; \
	VMULPS Y3, Y2, Y2; \
	NARROW_PH

// Arithmetic on bfloat16.

// WIDEN_BF leaves the odd elements in Y0 and Y1, the even ones in Y2 and Y3.
#define WIDEN_BF \
	VPSLLD $16, Y0, Y2; \
	VPSLLD $16, Y1, Y3; \
	VPAND Y15, Y0, Y0; \
	VPAND Y15, Y1, Y1

#define SUM_BF \
	WIDEN_BF; \
	VADDPS Y1, Y0, Y0; \
	VADDPS Y3, Y2, Y2; \
	NARROW_BF

#define PROD_BF \
	WIDEN_BF; \
	VMULPS Y1, Y0, Y0; \
	VMULPS Y3, Y2, Y2; \
	NARROW_BF

// Minimum and maximum of both 16-bit floats, without converting them. After all bits but the sign are flipped where the
// sign is set, floats order like signed integers, with -0 just below +0; the same flip restores them. NaNs are beyond
// infinity and are blended in afterwards, the first operand's over the second's.

#define CONSTANTS_PH \
	BROADCAST32(0x7fff7fff, X15, Y15); \
	BROADCAST32(0x7c007c00, X14, Y14); \
	BROADCAST32(0x02000200, X13, Y13)

#define CONSTANTS_MINMAX_BF \
	BROADCAST32(0x7fff7fff, X15, Y15); \
	BROADCAST32(0x7f807f80, X14, Y14); \
	BROADCAST32(0x00400040, X13, Y13)

#define FLIP(from, to) \
	VPSRAW $15, from, to; \
	VPAND Y15, to, to; \
	VPXOR from, to, to

#define MINMAX_W(SELECT) \
	FLIP(Y0, Y2); \
	FLIP(Y1, Y3); \
	SELECT Y3, Y2, Y3; \
	FLIP(Y3, Y2); \
	VPAND Y15, Y0, Y4; \
	VPAND Y15, Y1, Y5; \
	VPCMPGTW Y14, Y4, Y4; \
	VPCMPGTW Y14, Y5, Y5; \
	VPBLENDVB Y4, Y0, Y1, Y0; \
	VPOR Y13, Y0, Y0; \
	VPOR Y5, Y4, Y4; \
	VPBLENDVB Y4, Y0, Y2, Y0

// Minimum and maximum of 64-bit integers, for which AVX2 has a signed comparison only.

#define CONSTANTS_UQ BROADCAST64(0x8000000000000000, X15, Y15)

#define MIN_SQ \
	VPCMPGTQ Y1, Y0, Y2; \
	VBLENDVPD Y2, Y1, Y0, Y0

#define MAX_SQ \
	VPCMPGTQ Y1, Y0, Y2; \
	VBLENDVPD Y2, Y0, Y1, Y0

#define GREATER_UQ \
	VPXOR Y15, Y0, Y2; \
	VPXOR Y15, Y1, Y3; \
	VPCMPGTQ Y3, Y2, Y2

#define MIN_UQ \
	GREATER_UQ; \
	VBLENDVPD Y2, Y1, Y0, Y0

#define MAX_UQ \
	GREATER_UQ; \
	VBLENDVPD Y2, Y0, Y1, Y0

TEXT ·sumFloat32AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VADDPS))

TEXT ·prodFloat32AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VMULPS))

TEXT ·maxFloat32AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, MAX_PS)

TEXT ·minFloat32AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, MIN_PS)

TEXT ·sumFloat64AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VADDPD))

TEXT ·prodFloat64AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VMULPD))

TEXT ·maxFloat64AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, MAX_PD)

TEXT ·minFloat64AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, MIN_PD)

TEXT ·sumFloat16AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SUM_PH)

TEXT ·prodFloat16AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, PROD_PH)

TEXT ·maxFloat16AVX2(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_PH, MINMAX_W(VPMAXSW))

TEXT ·minFloat16AVX2(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_PH, MINMAX_W(VPMINSW))

TEXT ·sumBFloat16AVX2(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_BF, SUM_BF)

TEXT ·prodBFloat16AVX2(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_BF, PROD_BF)

TEXT ·maxBFloat16AVX2(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_MINMAX_BF, MINMAX_W(VPMAXSW))

TEXT ·minBFloat16AVX2(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_MINMAX_BF, MINMAX_W(VPMINSW))

TEXT ·sumInt8AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPADDB))

TEXT ·maxInt8AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMAXSB))

TEXT ·minInt8AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMINSB))

TEXT ·maxUint8AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMAXUB))

TEXT ·minUint8AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMINUB))

TEXT ·sumInt32AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPADDD))

TEXT ·prodInt32AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMULLD))

TEXT ·maxInt32AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMAXSD))

TEXT ·minInt32AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMINSD))

TEXT ·maxUint32AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMAXUD))

TEXT ·minUint32AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMINUD))

TEXT ·sumInt64AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPADDQ))

TEXT ·maxInt64AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, MAX_SQ)

TEXT ·minInt64AVX2(SB), NOSPLIT, $0-32
	REDUCE(NONE, MIN_SQ)

TEXT ·maxUint64AVX2(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_UQ, MAX_UQ)

TEXT ·minUint64AVX2(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_UQ, MIN_UQ)
