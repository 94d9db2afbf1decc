// Package carrier tests what is said of a rank that carries messages for others and is stopped or killed meanwhile.
package carrier
