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
	margin := bytes.Repeat([]byte{0xa5}, 64)
	for name, c := range map[string]func(dst, src []byte){
		"Copy":                   Copy,
		"CopyPiece of a part":    func(dst, src []byte) { CopyPiece(dst, src, copyCached) },
		"CopyPiece of the whole": func(dst, src []byte) { CopyPiece(dst, src, copyCached+1) },
	} {
		for _, n := range []int{
			0, 1, 7, 31, 127, 128, 158, 159, 160, 300, copyPiece, copyUncached - 1, copyUncached, copyUncached + 1,
			3*copyPiece + 5, copyCached, copyCached + 1,
		} {
			for at := range 33 { // every alignment
				if n > copyUncached && at > 1 {
					break
				}
				dst := bytes.Repeat([]byte{0xa5}, at+n+len(margin))
				c(dst[at:at+n], src[3:])
				if !bytes.Equal(dst[at:at+n], src[3:3+n]) {
					t.Errorf("%s, %d bytes at %d: dst is not src", name, n, at)
				}
				if !bytes.Equal(dst[:at], margin[:at]) || !bytes.Equal(dst[at+n:], margin) {
					t.Errorf("%s, %d bytes at %d: wrote beside dst", name, n, at)
				}
			}
		}
	}
}
