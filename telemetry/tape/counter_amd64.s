#include "textflag.h"
#include "go_asm.h"

// func readCounter() uint64
TEXT ·readCounter(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET

// func readClock(c *counted) int64
//
// It is counted.now where nothing is out of the ordinary, and goes there else.
TEXT ·readClock(SB), NOSPLIT, $0-16
	MOVQ  c+0(FP), BX
	MOVQ  counted_version(BX), R8
	MOVQ  R8, CX
	ANDQ  $1, CX
	IMUL3Q $line__size, CX, CX
	LEAQ  counted_lines(BX)(CX*1), CX
	MOVQ  line_ticks(CX), R9
	MOVQ  line_mono(CX), R10
	MOVQ  line_slope(CX), R11
	TESTQ R11, R11
	JEQ   other // and the counter isn't read where it can't be
	RDTSC
	SHLQ  $32, DX
	ORQ   DX, AX
	SUBQ  R9, AX
	CMPQ  AX, $const_anchorTicks
	JAE   other
	CMPQ  R8, counted_version(BX)
	JNE   other
	IMULQ R11, AX
	SHRQ  $32, AX
	ADDQ  R10, AX
	MOVQ  AX, ret+8(FP)
	RET

other:
	JMP ·lookAgain(SB)
