package kernels

import "fmt"

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

// String returns the data type's name, such as "float32" or "float8_e4m3".
func (d DataType) String() string { return nameOf("DataType", dataTypeNames[:], d) }

var (
	dataTypeSizes = [numDataTypes]int{
		Int8: 1, Uint8: 1, Int32: 4, Uint32: 4, Int64: 8, Uint64: 8, Float16: 2, Float32: 4, Float64: 8, BFloat16: 2,
		Float8E4M3: 1, Float8E5M2: 1,
	}
	dataTypeNames = [numDataTypes]string{
		Int8: "int8", Uint8: "uint8", Int32: "int32", Uint32: "uint32", Int64: "int64", Uint64: "uint64",
		Float16: "float16", Float32: "float32", Float64: "float64", BFloat16: "bfloat16",
		Float8E4M3: "float8_e4m3", Float8E5M2: "float8_e5m2",
	}
	reductionNames = [numReductions]string{
		Sum: "sum", Prod: "prod", Max: "max", Min: "min", Avg: "avg", PreMulSum: "premul_sum",
	}
	simdNames = [numSIMD]string{NoSIMD: "off", AVX2: "avx2", AVX512: "avx512"}
)

// nameOf returns the name of a value of a type; for an invalid value, the name contains its number.
func nameOf[T ~uint8](kind string, names []string, v T) string {
	if int(v) >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, uint8(v))
	}
	return names[v]
}

// Valid reports whether d is one of the data types above.
func (d DataType) Valid() bool { return d < numDataTypes }

// Size returns the bytes of one element, 0 if d is not valid.
func (d DataType) Size() int {
	if !d.Valid() {
		return 0
	}
	return dataTypeSizes[d]
}

// Reduction is a way to combine elements. The values are ncclRedOp_t's. PreMulSum, which NCCL makes at run time, has
// the first number after them.
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

// String returns the reduction's name, such as "sum" or "premul_sum".
func (r Reduction) String() string { return nameOf("Reduction", reductionNames[:], r) }

// Valid reports whether r is one of the reductions above.
func (r Reduction) Valid() bool { return r < numReductions }
