package kernels

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestCopy(t *testing.T) {
	r := rand.NewChaCha8([32]byte{6})
	src := make([]byte, copyCached+100)
	r.Read(src)
	for _, n := range []int{
		0, 1, 7, 300, copyPiece, copyUncached - 1, copyUncached, copyUncached + 1, 3*copyPiece + 5,
		copyCached, copyCached + 1,
	} {
		dst := bytes.Repeat([]byte{0xa5}, n+8)
		Copy(dst[:n], src[3:])
		if !bytes.Equal(dst[:n], src[3:3+n]) {
			t.Errorf("%d bytes: dst is not src", n)
		}
		if !bytes.Equal(dst[n:], bytes.Repeat([]byte{0xa5}, 8)) {
			t.Errorf("%d bytes: wrote behind dst", n)
		}
	}
}
