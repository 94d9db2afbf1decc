#include "textflag.h"
#include "avx512.h"

// Reductions with AVX-512 F, BW and DQ.
//
// Every function is the same loop around a different operation. An operation is a macro that takes a vector of a in Z0
// and one of b in Z1, leaves the result in Z0, may use Z2 to Z7, K2 and K3, and has its constants in Z12 to Z15.

// VECTOR combines 64 bytes.
#define VECTOR(offset, OPERATION) \
	VMOVDQU64 offset(SI), Z0; \
	VMOVDQU64 offset(DX), Z1; \
	OPERATION; \
	VMOVDQU64 Z0, offset(DI)

// REDUCE is the body of func(dst, a, b *byte, n int). An incomplete vector is masked: K1 has a bit for each byte, and
// bytes without a bit are neither read nor written.
#define REDUCE(CONSTANTS, OPERATION) \
	MOVQ dst+0(FP), DI; \
	MOVQ a+8(FP), SI; \
	MOVQ b+16(FP), DX; \
	MOVQ n+24(FP), CX; \
	CONSTANTS; \
	SUBQ $256, CX; \
	JLT rest; \
four: \
	VECTOR(0, OPERATION); \
	VECTOR(64, OPERATION); \
	VECTOR(128, OPERATION); \
	VECTOR(192, OPERATION); \
	ADDQ $256, SI; \
	ADDQ $256, DX; \
	ADDQ $256, DI; \
	SUBQ $256, CX; \
	JGE four; \
rest: \
	ADDQ $(256-64), CX; \
	JLT tail; \
one: \
	VECTOR(0, OPERATION); \
	ADDQ $64, SI; \
	ADDQ $64, DX; \
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
	VMOVDQU8.Z (DX), K1, Z1; \
	OPERATION; \
	VMOVDQU8 Z0, K1, (DI); \
done: \
	VZEROUPPER; \
	RET

#define SINGLE(INSTRUCTION) INSTRUCTION Z1, Z0, Z0

// Minimum and maximum of floats. VRANGE orders -0 below +0 (4 is the minimum, 5 the maximum, with the sign of the
// result), but prefers a number to a NaN. If there is a NaN, the sum has the right one.

#define RANGE_PS(SELECT) \
	VRANGEPS SELECT, Z1, Z0, Z2; \
	VCMPPS $3, Z1, Z0, K2; \
	VADDPS Z1, Z0, K2, Z2; \
	VMOVDQA64 Z2, Z0

#define RANGE_PD(SELECT) \
	VRANGEPD SELECT, Z1, Z0, Z2; \
	VCMPPD $3, Z1, Z0, K2; \
	VADDPD Z1, Z0, K2, Z2; \
	VMOVDQA64 Z2, Z0

// Arithmetic on float16: widened by halves, combined, and rounded.

#define WIDEN_PH \
	VEXTRACTI64X4 $1, Z0, Y2; \
	VEXTRACTI64X4 $1, Z1, Y3; \
	VCVTPH2PS Y0, Z0; \
	VCVTPH2PS Y1, Z1; \
	VCVTPH2PS Y2, Z2; \
	VCVTPH2PS Y3, Z3

#define SUM_PH \
	WIDEN_PH; \
	VADDPS Z1, Z0, Z0; \
	VADDPS Z3, Z2, Z2; \
	NARROW_PH

#define PROD_PH \
	WIDEN_PH; \
	VMULPS Z1, Z0, Z0; \
	VMULPS Z3, Z2, Z2; \
	NARROW_PH

// Arithmetic on bfloat16.

// WIDEN_BF leaves the odd elements in Z0 and Z1, the even ones in Z2 and Z3.
#define WIDEN_BF \
	VPSLLD $16, Z0, Z2; \
	VPSLLD $16, Z1, Z3; \
	VPANDD Z15, Z0, Z0; \
	VPANDD Z15, Z1, Z1

#define SUM_BF \
	WIDEN_BF; \
	VADDPS Z1, Z0, Z0; \
	VADDPS Z3, Z2, Z2; \
	NARROW_BF

#define PROD_BF \
	WIDEN_BF; \
	VMULPS Z1, Z0, Z0; \
	VMULPS Z3, Z2, Z2; \
	NARROW_BF

// Minimum and maximum of both 16-bit floats, without converting them. After all bits but the sign are flipped where the
// sign is set, floats order like signed integers, with -0 just below +0; the same flip restores them. NaNs are beyond
// infinity and are blended in afterwards, the first operand's over the second's.

#define CONSTANTS_PH \
	BROADCAST32(0x7fff7fff, Z15); \
	BROADCAST32(0x7c007c00, Z14); \
	BROADCAST32(0x02000200, Z13)

#define CONSTANTS_MINMAX_BF \
	BROADCAST32(0x7fff7fff, Z15); \
	BROADCAST32(0x7f807f80, Z14); \
	BROADCAST32(0x00400040, Z13)

// FLIP's last line is to = to & Z15 ^ from.
#define FLIP(from, to) \
	VPSRAW $15, from, to; \
	VPTERNLOGD $0x6a, from, Z15, to

#define MINMAX_W(SELECT) \
	FLIP(Z0, Z2); \
	FLIP(Z1, Z3); \
	SELECT Z3, Z2, Z3; \
	FLIP(Z3, Z2); \
	VPANDD Z15, Z0, Z4; \
	VPANDD Z15, Z1, Z5; \
	VPCMPGTW Z14, Z4, K2; \
	VPCMPGTW Z14, Z5, K3; \
	VPORD Z13, Z0, Z0; \
	VPORD Z13, Z1, Z1; \
	VMOVDQU16 Z1, K3, Z2; \
	VMOVDQU16 Z0, K2, Z2; \
	VMOVDQA64 Z2, Z0

TEXT ·sumFloat32AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VADDPS))

TEXT ·prodFloat32AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VMULPS))

TEXT ·maxFloat32AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, RANGE_PS($5))

TEXT ·minFloat32AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, RANGE_PS($4))

TEXT ·sumFloat64AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VADDPD))

TEXT ·prodFloat64AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VMULPD))

TEXT ·maxFloat64AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, RANGE_PD($5))

TEXT ·minFloat64AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, RANGE_PD($4))

TEXT ·sumFloat16AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SUM_PH)

TEXT ·prodFloat16AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, PROD_PH)

TEXT ·maxFloat16AVX512(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_PH, MINMAX_W(VPMAXSW))

TEXT ·minFloat16AVX512(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_PH, MINMAX_W(VPMINSW))

TEXT ·sumBFloat16AVX512(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_BF, SUM_BF)

TEXT ·prodBFloat16AVX512(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_BF, PROD_BF)

TEXT ·maxBFloat16AVX512(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_MINMAX_BF, MINMAX_W(VPMAXSW))

TEXT ·minBFloat16AVX512(SB), NOSPLIT, $0-32
	REDUCE(CONSTANTS_MINMAX_BF, MINMAX_W(VPMINSW))

TEXT ·sumInt8AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPADDB))

TEXT ·maxInt8AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMAXSB))

TEXT ·minInt8AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMINSB))

TEXT ·maxUint8AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMAXUB))

TEXT ·minUint8AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMINUB))

TEXT ·sumInt32AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPADDD))

TEXT ·prodInt32AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMULLD))

TEXT ·maxInt32AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMAXSD))

TEXT ·minInt32AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMINSD))

TEXT ·maxUint32AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMAXUD))

TEXT ·minUint32AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMINUD))

TEXT ·sumInt64AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPADDQ))

TEXT ·prodInt64AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMULLQ))

TEXT ·maxInt64AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMAXSQ))

TEXT ·minInt64AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMINSQ))

TEXT ·maxUint64AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMAXUQ))

TEXT ·minUint64AVX512(SB), NOSPLIT, $0-32
	REDUCE(NONE, SINGLE(VPMINUQ))
