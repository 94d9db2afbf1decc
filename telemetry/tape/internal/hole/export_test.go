//go:build linux && (amd64 || arm64)

package hole

// Lost tells whether the memory has been replaced: its contents are gone, and writes don't reach the file.
func (r *Region) Lost() bool { return r.lost.Load() != 0 }
