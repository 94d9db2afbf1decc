//go:build !linux || (!amd64 && !arm64)

package hole

func installHandler() {}
