package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle/wire"
)

func message() []byte {
	b := []byte{7}
	b = binary.LittleEndian.AppendUint16(b, 0x1234)
	b = binary.LittleEndian.AppendUint32(b, 0x12345678)
	b = binary.LittleEndian.AppendUint64(b, math.MaxUint64)
	b = binary.AppendUvarint(b, 300)
	b = binary.AppendVarint(b, -5)
	b = binary.AppendUvarint(b, 9)
	b = wire.AppendBytes(b, "text")
	b = wire.AppendBytes(b, []byte{1, 2})
	b = wire.AppendBool(wire.AppendBool(b, true), false)
	return append(b, 1, 2, 3, 4, 5)
}

// fields are what message wrote.
type fields struct {
	b          byte
	u16        uint16
	u32        uint32
	u64, uv    uint64
	i, up      int
	text       string
	data, rest string
	yes, no    bool
	fixed      [2]byte
}

func read(b []byte) (fields, error) {
	r := wire.NewReader(b)
	f := fields{
		b: r.Byte(), u16: r.Uint16(), u32: r.Uint32(), u64: r.Uint64(), uv: r.Uvarint(), i: r.Int(), up: r.UpTo(9),
		text: r.Text(4), data: string(r.Bytes(10)), yes: r.Bool(), no: r.Bool(),
	}
	r.Fill(f.fixed[:])
	f.rest = string(r.Take(3))
	return f, r.End()
}

func TestReaderReadsWhatWasAppended(t *testing.T) {
	got, err := read(message())
	want := fields{
		7, 0x1234, 0x12345678, math.MaxUint64, 300, -5, 9, "text", "\x01\x02", "\x03\x04\x05", true, false,
		[2]byte{1, 2},
	}
	if err != nil || got != want {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
}

func TestEveryCutIsFound(t *testing.T) {
	whole := message()
	for n := range whole {
		if _, err := read(whole[:n]); !errors.Is(err, wire.ErrShort) {
			t.Errorf("of %d bytes: %v, want %v", n, err, wire.ErrShort)
		}
	}
	if _, err := read(append(whole, 0)); err == nil {
		t.Error("a byte too many was not found")
	}
}

func TestBoundsHoldAndTheFirstFailureSticks(t *testing.T) {
	for name, read := range map[string]func(*wire.Reader){
		"a number":  func(r *wire.Reader) { r.UpTo(199) },
		"a count":   func(r *wire.Reader) { r.Count(1 << 20) }, // of more fields than there are bytes
		"bytes":     func(r *wire.Reader) { r.Bytes(199) },
		"32 bits":   func(r *wire.Reader) { r.Uvarint(); r.Int() },
		"backwards": func(r *wire.Reader) { r.Take(-1) },
	} {
		b := binary.AppendVarint(binary.AppendUvarint(nil, 200), 1<<40)
		r := wire.NewReader(b)
		read(r)
		first := r.Err()
		if first == nil {
			t.Errorf("%s beyond its bound was taken", name)
		}
		r.Fail(errors.New("another"))
		if got := r.Uvarint(); got != 0 || r.Len() != 0 || r.Text(10) != "" || !errors.Is(r.End(), first) {
			t.Errorf("%s: after %v came %d, %d bytes left, %v", name, first, got, r.Len(), r.End())
		}
	}
}

func TestTakenBytesCannotGrowIntoTheMessage(t *testing.T) {
	b := []byte{1, 2, 3}
	r := wire.NewReader(b)
	_ = append(r.Take(1), 9)
	if !bytes.Equal(b, []byte{1, 2, 3}) || !bytes.Equal(r.Rest(), []byte{2, 3}) {
		t.Errorf("the message became %v", b)
	}
}
