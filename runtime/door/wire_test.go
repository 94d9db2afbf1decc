package door

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
)

// pair returns the two ends of a protected connection, each with what it has written.
func pair(wire Wire) (dialer, room *Sealed, fromDialer, fromRoom *bytes.Buffer) {
	a := agreed{wire: wire, secret: secret, transcript: []byte("what both said")}
	fromDialer, fromRoom = new(bytes.Buffer), new(bytes.Buffer)
	dialer = a.over(oneWay{r: fromRoom, w: fromDialer}, true).(*Sealed)
	room = a.over(oneWay{r: fromDialer, w: fromRoom}, false).(*Sealed)
	return dialer, room, fromDialer, fromRoom
}

// oneWay is a connection whose other end does not exist at the same time.
type oneWay struct {
	net.Conn
	r io.Reader
	w io.Writer
}

func (o oneWay) Read(p []byte) (int, error)  { return o.r.Read(p) }
func (o oneWay) Write(p []byte) (int, error) { return o.w.Write(p) }

// protected lists the ways to protect a connection.
func protected() []Wire { return []Wire{Authenticate, Encrypt} }

// Each side gets at least the protection that it asks for.
func TestWiresMeet(t *testing.T) {
	for there := Plain; there <= Encrypt; there++ {
		for here := Plain; here <= Encrypt; here++ {
			t.Run(fmt.Sprintf("%v at %v", here, there), func(t *testing.T) {
				d, err := Listen(t.Context(), "127.0.0.1:0", there, quiet)
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				came := open(t, d)
				conn, err := dial(t, d, Hello{Room: parlor, Secret: secret, Wire: here})
				if err != nil {
					t.Fatal(err)
				}
				in := (<-came).conn
				defer in.Close()
				for _, c := range []net.Conn{conn, in} {
					got := Plain
					if s, ok := c.(*Sealed); ok {
						if got = Authenticate; s.out.hide {
							got = Encrypt
						}
					}
					if got != max(here, there) {
						t.Errorf("it is %v", got)
					}
				}
				for _, ends := range [][2]net.Conn{{conn, in}, {in, conn}} {
					sent := bytes.Repeat([]byte("carillon"), 20<<10)
					go func() {
						if _, err := ends[0].Write(sent); err != nil {
							t.Error(err)
						}
					}()
					got := make([]byte, len(sent))
					if _, err := io.ReadFull(ends[1], got); err != nil || !bytes.Equal(got, sent) {
						t.Errorf("what came is not what was sent, or %v", err)
					}
				}
			})
		}
	}
}

func TestParseWire(t *testing.T) {
	for w := Plain; w <= Encrypt; w++ {
		if got, err := ParseWire(w.String()); got != w || err != nil {
			t.Errorf("%v became %v, %v", w, got, err)
		}
	}
	if _, err := ParseWire("tls"); err == nil {
		t.Error("tls is one")
	}
}

// An attacker on the network can't make the two sides agree on less than they ask for.
func TestDowngrade(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		defer there.Close()
		hello := make([]byte, helloSize)
		_, _ = io.ReadFull(there, hello)
		hello[helloSize-nonceSize-1] = byte(Plain)
		_, _, _, err := answer(struct {
			io.Reader
			io.Writer
		}{io.MultiReader(bytes.NewReader(hello), there), there}, Plain, func(Room) *room {
			return &room{secret: secret}
		})
		if err == nil {
			t.Error("the door believes what was changed")
		}
	}()
	if _, err := greet(here, Hello{Room: parlor, Secret: secret, Wire: Encrypt}); !errors.Is(err, ErrSecret) {
		t.Errorf("the dialer got %v", err)
	}
}

func TestWhatIsSeenOnTheWay(t *testing.T) {
	for _, wire := range protected() {
		dialer, _, wrote, _ := pair(wire)
		text := bytes.Repeat([]byte("carillon"), 4<<10)
		if _, err := dialer.Write(text); err != nil {
			t.Fatal(err)
		}
		if seen := bytes.Contains(wrote.Bytes(), text[:64]); seen != (wire == Authenticate) {
			t.Errorf("%v: that the text is seen on the way is %v", wire, seen)
		}
		if n := wrote.Len(); n != SealedSize(len(text)) {
			t.Errorf("%v: %d bytes for %d, and SealedSize is %d", wire, n, len(text), SealedSize(len(text)))
		}
	}
}

// However an attacker modifies the records, the received data is what was sent, up to the first modification.
func TestForgedRecords(t *testing.T) {
	// Six records, and their sizes in bytes.
	write := func(s *Sealed, wrote *bytes.Buffer) (records, payloads [][]byte) {
		for i := range 6 {
			payload := bytes.Repeat([]byte{byte('a' + i)}, 100+i)
			at := wrote.Len()
			if _, err := s.Write(payload); err != nil {
				t.Fatal(err)
			}
			payloads = append(payloads, payload)
			records = append(records, slices.Clone(wrote.Bytes()[at:]))
		}
		return records, payloads
	}
	flip := func(at int) func(_, r [][]byte) [][]byte {
		return func(_, r [][]byte) [][]byte {
			r[2][(at+len(r[2]))%len(r[2])] ^= 1
			return r
		}
	}
	for name, c := range map[string]struct {
		change func(reply, r [][]byte) [][]byte
		good   int // records that arrive
		err    error
	}{
		"nothing":               {func(_, r [][]byte) [][]byte { return r }, 6, io.EOF},
		"the length flipped":    {flip(3), 2, ErrForged},
		"a huge length":         {flip(0), 2, ErrForged},
		"the payload flipped":   {flip(10), 2, ErrForged},
		"the tag flipped":       {flip(-1), 2, ErrForged},
		"dropped":               {func(_, r [][]byte) [][]byte { return slices.Delete(r, 2, 3) }, 2, ErrForged},
		"repeated":              {func(_, r [][]byte) [][]byte { return slices.Insert(r, 3, r[2]) }, 3, ErrForged},
		"swapped":               {func(_, r [][]byte) [][]byte { r[2], r[3] = r[3], r[2]; return r }, 2, ErrForged},
		"truncated":             {func(_, r [][]byte) [][]byte { r[5] = r[5][:50]; return r }, 5, io.ErrUnexpectedEOF},
		"cut off in a length":   {func(_, r [][]byte) [][]byte { r[5] = r[5][:2]; return r }, 5, io.ErrUnexpectedEOF},
		"cut between two":       {func(_, r [][]byte) [][]byte { return r[:4] }, 4, io.EOF},
		"the other direction's": {func(reply, _ [][]byte) [][]byte { return reply }, 0, ErrForged},
	} {
		for _, wire := range protected() {
			t.Run(fmt.Sprintf("%v/%s", wire, name), func(t *testing.T) {
				dialer, room, wrote, answered := pair(wire)
				records, payloads := write(dialer, wrote)
				reply, _ := write(room, answered)
				wrote.Reset()
				wrote.Write(slices.Concat(c.change(reply, records)...))
				got, err := io.ReadAll(room)
				if err == nil {
					err = io.EOF
				}
				if !errors.Is(err, c.err) {
					t.Errorf("%v, want %v", err, c.err)
				}
				if want := slices.Concat(payloads[:c.good]...); !bytes.Equal(got, want) {
					t.Errorf("%d bytes came, want %d", len(got), len(want))
				}
				if n, err := room.Read(make([]byte, 100)); n > 0 || err == nil {
					t.Errorf("and then %d bytes, %v", n, err)
				}
			})
		}
	}
}

// Records of one connection are invalid on another one with the same secret.
func TestRecordsOfAnotherConnection(t *testing.T) {
	dialer, _, wrote, _ := pair(Encrypt)
	if _, err := dialer.Write([]byte("carillon")); err != nil {
		t.Fatal(err)
	}
	other := agreed{wire: Encrypt, secret: secret, transcript: []byte("what two others said")}
	room := other.over(oneWay{r: wrote}, false)
	if n, err := room.Read(make([]byte, 8)); n > 0 || !errors.Is(err, ErrForged) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestKeysAreUsedForAWhile(t *testing.T) {
	for _, wire := range protected() {
		dialer, room, _, _ := pair(wire)
		first := slices.Clone(dialer.out.key)
		dialer.out.count, room.in.count = keyRecords-2, keyRecords-2
		for i := range 4 {
			if _, err := dialer.Write([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 1)
			if _, err := io.ReadFull(room, b); err != nil || b[0] != byte(i) {
				t.Errorf("%v: record %d: %v, %v", wire, i, b, err)
			}
		}
		if bytes.Equal(first, dialer.out.key) {
			t.Errorf("%v: the key is the first", wire)
		}
	}
}

// After a record that was not completely written, nothing is written.
func TestBrokenWrite(t *testing.T) {
	here, there := net.Pipe()
	s := agreed{wire: Encrypt, secret: secret}.over(here, true)
	defer s.Close()
	go func() {
		_, _ = io.ReadFull(there, make([]byte, 10))
		_ = there.Close()
	}()
	for range 2 {
		if n, err := s.Write(make([]byte, 100)); n > 0 || err == nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
}

// FuzzSealed gives an end any input that a stranger may send: none of it is passed on, and little of it is buffered.
func FuzzSealed(f *testing.F) {
	dialer, _, wrote, _ := pair(Encrypt)
	_, _ = dialer.Write(make([]byte, 50)) // to a buffer
	f.Add(wrote.Bytes()[:60])
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0, 0, 64, 1})
	f.Add(make([]byte, 40<<10))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, wire := range protected() {
			a := agreed{wire: wire, secret: secret, transcript: []byte("what others said")}
			s := a.over(oneWay{r: bytes.NewReader(b)}, false).(*Sealed)
			if n, err := s.Read(make([]byte, 100)); n > 0 || err == nil {
				t.Errorf("%v: %d bytes came of %x, %v", wire, n, b, err)
			}
			if len(s.buf) > maxBuffer {
				t.Errorf("%v: %d bytes are kept", wire, len(s.buf))
			}
		}
	})
}
