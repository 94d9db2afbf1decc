package kernels

import (
	"fmt"
	"testing"
)

var benchmarkSizes = []struct {
	name  string
	bytes int
}{{"4KiB", 4 << 10}, {"256KiB", 256 << 10}, {"16MiB", 16 << 20}}

// BenchmarkReduce measures dst = dst op b, what an all-reduce does. MB/s counts the bytes of dst.
func BenchmarkReduce(b *testing.B) {
	for dt := range numDataTypes {
		for _, op := range []Reduction{Sum, Prod, Min} {
			for level := NoSIMD; level <= DetectSIMD(); level++ {
				reduce := reference[dt][op]
				if level > NoSIMD {
					if reduce = vectorReducer(level, dt, op); reduce == nil {
						continue
					}
				}
				for _, size := range benchmarkSizes {
					b.Run(fmt.Sprintf("type=%v/op=%v/simd=%v/size=%s", dt, op, level, size.name), func(b *testing.B) {
						dst, src := touched(size.bytes), touched(size.bytes)
						b.SetBytes(int64(size.bytes))
						b.ReportAllocs()
						for b.Loop() {
							reduce(dst, dst, src)
						}
					})
				}
			}
		}
	}
}

// BenchmarkReduceSmall measures a look-up and a reduction of a few bytes.
func BenchmarkReduceSmall(b *testing.B) {
	for _, n := range []int{8, 64, 256} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			dst, src := touched(n), touched(n)
			b.ReportAllocs()
			for b.Loop() {
				ReducerOf(Float32, Sum)(dst, dst, src)
			}
		})
	}
}

// BenchmarkScale measures the first step of PreMulSum in place, BenchmarkDivide the last one of Avg.
func BenchmarkScale(b *testing.B) {
	benchmarkInPlace(b, func(buf []byte, dt DataType) { Scale(buf, buf, dt, 1) })
}

func BenchmarkDivide(b *testing.B) {
	benchmarkInPlace(b, func(buf []byte, dt DataType) { Divide(buf, dt, 3) })
}

func benchmarkInPlace(b *testing.B, f func(buf []byte, dt DataType)) {
	for dt := range numDataTypes {
		b.Run(fmt.Sprintf("type=%v/size=256KiB", dt), func(b *testing.B) {
			buf := touched(256 << 10)
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				f(buf, dt)
			}
		})
	}
}

// BenchmarkCopy measures Copy and Go's copy, side by side.
func BenchmarkCopy(b *testing.B) {
	for _, kib := range []int{4, 256, 1 << 10, 4 << 10, 8 << 10, 16 << 10} {
		dst, src := touched(kib<<10), touched(kib<<10)
		for name, f := range map[string]func(dst, src []byte){
			"Copy": Copy,
			"copy": func(dst, src []byte) { copy(dst, src) },
		} {
			b.Run(fmt.Sprintf("size=%dKiB/with=%s", kib, name), func(b *testing.B) {
				b.SetBytes(int64(len(dst)))
				for b.Loop() {
					f(dst, src)
				}
			})
		}
	}
}

// touched returns memory that is mapped, holding small numbers of every type.
func touched(n int) []byte {
	buf := make([]byte, n)
	for i := range buf {
		buf[i] = byte(i%8) + 0x38
	}
	return buf
}
