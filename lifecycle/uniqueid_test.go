package lifecycle

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestUniqueID(t *testing.T) {
	for _, addr := range []string{
		"", "127.0.0.1:4000", "[::1]:65535", "[fe80::1%eth0]:1", "node-0.cluster.local:29500",
		strings.Repeat("h", MaxAddress-5) + ":4000",
	} {
		id, err := NewUniqueID(addr)
		if err != nil {
			t.Fatalf("NewUniqueID(%q): %v", addr, err)
		}
		if err := id.Valid(); err != nil {
			t.Errorf("NewUniqueID(%q) is not valid: %v", addr, err)
		}
		if id.Address() != addr || len(id.Secret()) != 32 || id.IsZero() {
			t.Errorf("NewUniqueID(%q) has address %q and a secret of %d bytes", addr, id.Address(), len(id.Secret()))
		}
		parsed, err := ParseUniqueID("\n " + id.String() + "\t\n")
		if err != nil || parsed != id {
			t.Errorf("parsing the text of an id with address %q gives %v and another id", addr, err)
		}
		if n := len(id.String()); n > 187 {
			t.Errorf("the text of an id with address %q has %d bytes; String promises at most 187", addr, n)
		}
		var carried struct{ ID UniqueID }
		text, err := json.Marshal(struct{ ID UniqueID }{id})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &carried); err != nil || carried.ID != id {
			t.Errorf("an id with address %q comes out of JSON as another one (%v)", addr, err)
		}
	}
}

func TestUniqueIDsDiffer(t *testing.T) {
	a, _ := NewUniqueID("a:1")
	b, _ := NewUniqueID("a:1")
	if bytes.Equal(a[uidRandom:uidSecret], b[uidRandom:uidSecret]) || bytes.Equal(a.Secret(), b.Secret()) {
		t.Error("two new ids share their name or their secret")
	}
	if bytes.Contains(a.Secret(), a[uidRandom:uidSecret]) {
		t.Error("an id's name gives away its secret")
	}
}

func TestUniqueIDFromSecret(t *testing.T) {
	a, err := UniqueIDFromSecret([]byte("job 1"), "node0:4000")
	if err != nil {
		t.Fatal(err)
	}
	again, _ := UniqueIDFromSecret([]byte("job 1"), "node0:4000")
	elsewhere, _ := UniqueIDFromSecret([]byte("job 1"), "10.0.0.1:4000")
	other, _ := UniqueIDFromSecret([]byte("job 2"), "node0:4000")
	if a != again {
		t.Error("one seed gives two ids")
	}
	if RootCommID(a) != RootCommID(elsewhere) || !bytes.Equal(a.Secret(), elsewhere.Secret()) {
		t.Error("ranks that call the address differently do not belong together")
	}
	if RootCommID(a) == RootCommID(other) || bytes.Equal(a.Secret(), other.Secret()) {
		t.Error("two seeds give ids that belong together")
	}
	// Ranks of several versions meet only if the derivation stays.
	if got, want := RootCommID(a).String(), "17c23eb9ebda8a8fac86721487e7f20e"; got != want {
		t.Errorf("RootCommID = %s, was %s: ranks of this version can't meet ranks of earlier ones", got, want)
	}
	if _, err := UniqueIDFromSecret(nil, "node0:4000"); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("an empty seed gives %v; want an invalid argument", err)
	}
}

func TestUniqueIDAddress(t *testing.T) {
	for addr, says := range map[string]string{
		"node0":                              "not host:port",
		"::1:4000":                           "not host:port",
		":4000":                              "names no host",
		"node0:":                             "not a number from 1 to 65535",
		"node0:0":                            "not a number from 1 to 65535",
		"node0:65536":                        "not a number from 1 to 65535",
		"node0:-1":                           "not a number from 1 to 65535",
		"node0:http":                         "not a number from 1 to 65535",
		"node 0:4000":                        "printable ASCII",
		"nöde:4000":                          "printable ASCII",
		"a@b:4000":                           "printable ASCII",
		"node0:4000\x00":                     "printable ASCII",
		strings.Repeat("h", 66) + ":4000":    "has 71 bytes, and a unique id holds 70",
		strings.Repeat("long", 1000) + ":40": "has 4003 bytes",
	} {
		_, err := NewUniqueID(addr)
		if !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("NewUniqueID(%.40q) = %v; want it to say %q", addr, err, says)
		}
	}
}

func TestUniqueIDValid(t *testing.T) {
	good, _ := NewUniqueID("node0:4000")
	for _, c := range []struct {
		name, says string
		spoil      func(id *UniqueID)
	}{
		{"zero", "all zeros", func(id *UniqueID) { *id = UniqueID{} }},
		{"foreign", "not a Carillon unique id", func(id *UniqueID) { id[0] ^= 1 }},
		{"of a later version", "layout 2", func(id *UniqueID) { id[3] = 2 }},
		{"damaged name", "damaged", func(id *UniqueID) { id[uidRandom] ^= 0x80 }},
		{"damaged secret", "damaged", func(id *UniqueID) { id[uidAddrLen-1] ^= 1 }},
		{"cut off", "damaged", func(id *UniqueID) { clear(id[60:]) }},
		{"too long an address", "address field", func(id *UniqueID) { id[uidAddrLen] = 71; seal(id) }},
		{"bytes after the address", "address field", func(id *UniqueID) { id[uidAddr+20] = 1; seal(id) }},
		{"reserved byte", "address field", func(id *UniqueID) { id[uidReserved] = 1; seal(id) }},
		{"malformed address", "not host:port", func(id *UniqueID) { id[uidAddr+5] = ';'; seal(id) }},
	} {
		id := good
		c.spoil(&id)
		err := id.Valid()
		if !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: Valid() = %v; want it to say %q", c.name, err, c.says)
		}
		if id.String() != "(invalid unique id)" || id.Redacted() != "(invalid unique id)" {
			t.Errorf("%s: String() = %q, Redacted() = %q", c.name, id.String(), id.Redacted())
		}
		if _, err := id.MarshalText(); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: MarshalText() = %v; want an invalid argument", c.name, err)
		}
	}
}

// seal corrects the checksum of a changed id, to reach the checks behind it.
func seal(id *UniqueID) { binary.LittleEndian.PutUint32(id[uidChecksum:], id.checksum()) }

func TestParseUniqueID(t *testing.T) {
	id, _ := NewUniqueID("node0:4000")
	text := id.String()
	parts := strings.SplitN(text, ".", 4)
	for _, c := range []struct{ text, says string }{
		{"", `begins with "carillon1."`},
		{"carillon2" + text[len("carillon1"):], `begins with "carillon1."`},
		{"carillon1.", "3 parts"},
		{parts[0] + "." + parts[1] + "." + parts[2], "3 parts"},
		{text[:60], "3 parts"},
		{text[:len(text)-len("@node0:4000")-1], "checksum of a unique id's text has 8"},
		{id.Redacted(), "3 parts"},
		{strings.Replace(text, parts[2], "redacted", 1), "cut off, or redacted"},
		{strings.Replace(text, parts[1], strings.Repeat("g", 32), 1), "hexadecimal digits alone"},
		{strings.Replace(text, "node0:4000", "", 1), "nothing follows"},
		{strings.Replace(text, "node0", "node1", 1), "damaged"},
		{strings.Replace(text, "@node0:4000", "", 1), "damaged"},
		{strings.Replace(text, ":4000", "", 1), "not host:port"},
	} {
		_, err := ParseUniqueID(c.text)
		if !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("ParseUniqueID(%q) = %v; want it to say %q", c.text, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), parts[2]) {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
	before := id
	if err := id.UnmarshalText([]byte("nonsense")); err == nil || id != before {
		t.Errorf("UnmarshalText(nonsense) = %v, and changed the id: %v", err, id != before)
	}
}

func TestUniqueIDKeepsItsSecret(t *testing.T) {
	id, _ := NewUniqueID("node0:4000")
	secret := fmt.Sprintf("%x", id.Secret())
	if !strings.Contains(id.String(), secret) {
		t.Fatal("the text of an id lacks the secret that the other ranks need")
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("made", "id", id)
	for what, text := range map[string]string{
		"a log record": log.String(),
		"%#v":          fmt.Sprintf("%#v", id),
		"Redacted":     id.Redacted(),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%s shows the secret: %s", what, text)
		}
		if !strings.Contains(text, "redacted@node0:4000") {
			t.Errorf("%s does not show where the ranks meet: %s", what, text)
		}
	}
	id.Secret()[0] ^= 0xff
	if err := id.Valid(); err != nil {
		t.Errorf("writing to what Secret returned changed the id: %v", err)
	}
}

func FuzzParseUniqueID(f *testing.F) {
	id, _ := UniqueIDFromSecret([]byte("fuzz"), "node0:4000")
	local, _ := UniqueIDFromSecret([]byte("fuzz"), "")
	for _, text := range []string{
		"", "carillon1.", "carillon1...@", id.String(), id.Redacted(), local.String(),
		strings.ToUpper(id.String()), id.String() + "0",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseUniqueID(text)
		if err != nil {
			if !errors.Is(err, ErrInvalidArgument) || id != (UniqueID{}) {
				t.Fatalf("%q: %v, with id %v", text, err, id)
			}
			return
		}
		roundTrip(t, id)
	})
}

func FuzzUniqueIDValid(f *testing.F) {
	id, _ := UniqueIDFromSecret([]byte("fuzz"), "node0:4000")
	f.Add(id[:], false)
	f.Add(make([]byte, 128), false)
	f.Add(bytes.Repeat([]byte{0xff}, 128), true)
	f.Add(append([]byte(uidVersion), make([]byte, 124)...), true)
	f.Fuzz(func(t *testing.T, raw []byte, sealed bool) {
		var id UniqueID
		copy(id[:], raw)
		if sealed { // so that the fuzzer gets past the checksum
			copy(id[:], uidVersion)
			seal(&id)
		}
		if err := id.Valid(); err != nil {
			if !errors.Is(err, ErrInvalidArgument) {
				t.Fatalf("%x: %v", id, err)
			}
			if id.String() != "(invalid unique id)" || len(id.Address()) > MaxAddress {
				t.Fatalf("%x is invalid, and prints as %q with address %q", id, id.String(), id.Address())
			}
			return
		}
		roundTrip(t, id)
	})
}

func roundTrip(t *testing.T, id UniqueID) {
	t.Helper()
	if err := id.Valid(); err != nil {
		t.Fatalf("%x was accepted and is not valid: %v", id, err)
	}
	again, err := ParseUniqueID(id.String())
	if err != nil || again != id {
		t.Fatalf("%q does not come back: %v", id.String(), err)
	}
}

func FuzzParseCommID(f *testing.F) {
	f.Add("")
	f.Add("00112233445566778899aabbccddeeff")
	f.Add("00112233445566778899AABBCCDDEEFG")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseCommID(text)
		if err != nil {
			if !errors.Is(err, ErrInvalidArgument) || !id.IsZero() {
				t.Fatalf("%q: %v, with id %v", text, err, id)
			}
			return
		}
		if id.String() != strings.ToLower(text) {
			t.Fatalf("%q comes back as %v", text, id)
		}
	})
}
