#include "textflag.h"

// func handlerPC() uintptr
TEXT ·handlerPC(SB), NOSPLIT, $0-8
	MOVD $handler<>(SB), R0
	MOVD R0, ret+0(FP)
	RET

// handler is called by the kernel with the signal in R0, its siginfo in R1, and the context in R2. It returns to
// rt_sigreturn, which restores all registers.
TEXT handler<>(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVW 8(R1), R3          // si_code: the kernel's own are positive, and only they have an address
	CMPW $0, R3
	BLE  pass
	MOVD 16(R1), R9         // si_addr
	MOVD ·regions(SB), R10

look:
	CBZ  R10, pass
	MOVD 0(R10), R11        // start
	MOVD 8(R10), R12        // size
	SUB  R11, R9, R3
	CMP  R12, R3
	BLO  found
	MOVD 24(R10), R10       // next
	B    look

found:
	MOVD R0, R13
	MOVD R1, R14
	MOVD R2, R15
	MOVD $222, R8           // mmap
	MOVD R11, R0
	MOVD R12, R1
	MOVD $3, R2             // PROT_READ | PROT_WRITE
	MOVD $0x32, R3          // MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS
	MOVD $-1, R4
	MOVD $0, R5
	SVC
	CMP  R11, R0
	BNE  failed
	MOVD $1, R3
	MOVD R3, 16(R10)        // lost
	RET

failed:
	MOVD R13, R0
	MOVD R14, R1
	MOVD R15, R2

pass:
	MOVD ·previous(SB), R3
	JMP  (R3)
