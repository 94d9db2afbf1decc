package algo_test

// Value is an element that remembers how it was made.
type Value struct {
	Sum  uint64 // sum of its originals: the result of a reduction in any order
	Expr uint64 // a hash of the expression, with its order and parentheses: equal only if a float's bits would be equal
}

// Original returns element i of rank r's In.
func Original(r, i int) Value {
	v := mix(uint64(r)<<40 | uint64(i) + 1)
	return Value{Sum: v, Expr: v}
}

// Combine returns v op w. Its Expr is neither commutative nor associative.
func (v Value) Combine(w Value) Value {
	return Value{Sum: v.Sum + w.Sum, Expr: mix(3*mix(v.Expr) + mix(w.Expr))}
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
