#include "textflag.h"

// func handlerPC() uintptr
TEXT ·handlerPC(SB), NOSPLIT, $0-8
	LEAQ handler<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// handler is called by the kernel with the signal in DI, its siginfo in SI, and the context in DX. It returns to
// rt_sigreturn, which restores all registers.
TEXT handler<>(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	CMPL 8(SI), $0          // si_code: the kernel's own are positive, and only they have an address
	JLE  pass
	MOVQ 16(SI), CX         // si_addr
	MOVQ ·regions(SB), BX

look:
	TESTQ BX, BX
	JZ    pass
	MOVQ  CX, AX
	SUBQ  0(BX), AX         // start
	CMPQ  AX, 8(BX)         // size
	JB    found
	MOVQ  24(BX), BX        // next
	JMP   look

found:
	MOVQ DI, R12
	MOVQ SI, R13
	MOVQ DX, R15
	MOVQ $9, AX             // mmap
	MOVQ 0(BX), DI
	MOVQ 8(BX), SI
	MOVQ $3, DX             // PROT_READ | PROT_WRITE
	MOVQ $0x32, R10         // MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS
	MOVQ $-1, R8
	MOVQ $0, R9
	SYSCALL
	CMPQ AX, 0(BX)
	JNE  failed
	MOVQ $1, 16(BX)         // lost
	RET

failed:
	MOVQ R12, DI
	MOVQ R13, SI
	MOVQ R15, DX

pass:
	MOVQ ·previous(SB), AX
	JMP  AX
