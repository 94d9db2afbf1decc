package kernels

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// buffers draws a data type, a reduction and two buffers of equal length.
func buffers(t *rapid.T) (dt DataType, op Reduction, a, b []byte) {
	dt = DataType(rapid.IntRange(0, int(numDataTypes)-1).Draw(t, "dt"))
	op = Reduction(rapid.IntRange(0, int(numReductions)-1).Draw(t, "op"))
	n := rapid.IntRange(0, 200).Draw(t, "n")
	a, b = make([]byte, n*dt.Size()), make([]byte, n*dt.Size())
	element := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom(special(dt)))
	for i := range n {
		put(a, dt, i, element.Draw(t, "a"))
		put(b, dt, i, element.Draw(t, "b"))
	}
	return dt, op, a, b
}

// numbers reports whether no element is a NaN. For two NaNs, it matters which comes first.
func numbers(formats map[DataType]small, dt DataType, buf []byte) bool {
	switch dt {
	case Float32:
		for _, x := range view[float32](buf) {
			if x != x {
				return false
			}
		}
	case Float64:
		for _, x := range view[float64](buf) {
			if x != x {
				return false
			}
		}
	default:
		s, small := formats[dt]
		for i := 0; small && i < len(buf); i += dt.Size() {
			if f := s.widen(get(buf[i:], dt)); f != f {
				return false
			}
		}
	}
	return true
}

func TestAllWaysAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dt, op, a, b := buffers(t)
		want, got := make([]byte, len(a)), make([]byte, len(a))
		reducerFor(NoSIMD, dt, op)(want, a, b)
		for _, level := range levels() {
			reducerFor(level, dt, op)(got, a, b)
			if d := diff(dt, a, b, got, want); d != "" {
				t.Fatalf("%v: %s", level, d)
			}
		}
	})
}

func TestOrderOfOperandsMattersToNaNsOnly(t *testing.T) {
	formats := smallFormats()
	rapid.Check(t, func(t *rapid.T) {
		dt, op, a, b := buffers(t)
		if !numbers(formats, dt, a) || !numbers(formats, dt, b) {
			return
		}
		ab, ba := make([]byte, len(a)), make([]byte, len(a))
		ReducerOf(dt, op)(ab, a, b)
		ReducerOf(dt, op)(ba, b, a)
		if d := diff(dt, a, b, ba, ab); d != "" {
			t.Fatal(d)
		}
	})
}

func TestMinAndMaxChooseAnOperand(t *testing.T) {
	formats := smallFormats()
	rapid.Check(t, func(t *rapid.T) {
		dt, _, a, b := buffers(t)
		if !numbers(formats, dt, a) || !numbers(formats, dt, b) {
			return
		}
		low, high, size := make([]byte, len(a)), make([]byte, len(a)), dt.Size()
		ReducerOf(dt, Min)(low, a, b)
		ReducerOf(dt, Max)(high, a, b)
		for i := 0; i < len(a); i += size {
			x, y, l, h := string(a[i:i+size]), string(b[i:i+size]), string(low[i:i+size]), string(high[i:i+size])
			if (l != x || h != y) && (l != y || h != x) {
				t.Fatalf("%v: of %x and %x the minimum is %x and the maximum %x", dt, x, y, l, h)
			}
		}
	})
}

// TestPiecesMakeTheWhole checks reductions in chunks, as in a collective, wherever the chunks end.
func TestPiecesMakeTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dt, op, a, b := buffers(t)
		whole, pieces := make([]byte, len(a)), make([]byte, len(a))
		ReducerOf(dt, op)(whole, a, b)
		cut := rapid.IntRange(0, len(a)/dt.Size()).Draw(t, "cut") * dt.Size()
		ReducerOf(dt, op)(pieces[cut:], a[cut:], b[cut:])
		ReducerOf(dt, op)(pieces[:cut], a, b)
		if !bytes.Equal(whole, pieces) {
			t.Fatalf("%v of %v, cut at byte %d: %x, want %x", op, dt, cut, pieces, whole)
		}
	})
}

// FuzzReduce passes arbitrary bytes to every way of reducing and scaling.
func FuzzReduce(f *testing.F) {
	for dt := range numDataTypes {
		a, b := pairs(dt)
		f.Add(uint8(dt), uint8(dt)%4, uint8(7*dt), float64(dt)-3.5,
			append(a[:min(400, len(a))], b[:min(400, len(b))]...))
	}
	f.Fuzz(func(t *testing.T, dtByte, opByte, off uint8, factor float64, data []byte) {
		dt, op := DataType(dtByte)%numDataTypes, Reduction(opByte)%numReductions
		n := len(data) / 2 / dt.Size() * dt.Size()
		a, b := data[:n], data[n:2*n]
		want := make([]byte, n)
		reducerFor(NoSIMD, dt, op)(want, a, b)
		for _, level := range levels() {
			got := make([]byte, n+int(off))[off:]
			reducerFor(level, dt, op)(got, a, b)
			if d := diff(dt, a, b, got, want); d != "" {
				t.Fatalf("%v %v %v: %s", level, dt, op, d)
			}
			compareScaling(t, level, dt, a, int(off), factor, int(off))
		}
	})
}
