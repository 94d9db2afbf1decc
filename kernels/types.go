package kernels

// DataType names the type of one element of a buffer. The values are
// ncclDataType_t's, so that a number read from an NCCL trace means the same here.
type DataType uint8

// The data types, in ncclDataType_t's order.
const (
	Int8 DataType = iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	Float32
	Float64
	BFloat16
	Float8E4M3
	Float8E5M2
	numDataTypes
)

// F16 is an IEEE 754 binary16 number, held as its bits.
type F16 uint16

// BF16 is a bfloat16 number (the upper half of a float32), held as its bits.
type BF16 uint16

// E4M3 is an OCP 8-bit float with 4 exponent and 3 mantissa bits (no infinities), held as its bits.
type E4M3 uint8

// E5M2 is an OCP 8-bit float with 5 exponent and 2 mantissa bits, held as its bits.
type E5M2 uint8

// Element is any Go type that a buffer may hold.
type Element interface {
	int8 | uint8 | int32 | uint32 | int64 | uint64 | float32 | float64 | F16 | BF16 | E4M3 | E5M2
}

// Reduction names how elements are combined. The values are ncclRedOp_t's; PreMulSum, which NCCL makes at run
// time, has the first number behind them.
type Reduction uint8

// The reductions, in ncclRedOp_t's order.
const (
	Sum Reduction = iota
	Prod
	Max
	Min
	Avg
	PreMulSum
	numReductions
)
