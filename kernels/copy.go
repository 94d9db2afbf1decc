package kernels

// Copy copies len(dst) bytes from src, which is at least as long.
func Copy(dst, src []byte) { copy(dst, src[:len(dst)]) }
