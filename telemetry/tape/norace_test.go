//go:build !race

package tape

const raceFactor = 1
