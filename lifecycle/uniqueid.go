package lifecycle

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net"
	"strconv"
	"strings"
)

// UniqueID names a communicator before it exists. One rank makes it, the user carries it to the others, as bytes or as
// text, and each rank passes it to InitRank. It is as large as NCCL's.
//
// It holds a secret that lets its holder join the job. String and MarshalText contain the secret, as the user carries
// them; Redacted doesn't, nor does a UniqueID in a log record (slog) or in a %#v.
type UniqueID [128]byte

// The layout of a UniqueID. The checksum covers everything after it.
const (
	uidMagic    = 0         // 4 bytes: "crl" and the version of the layout
	uidChecksum = 4         // 4 bytes: CRC-32C, little-endian
	uidRandom   = 8         // 16 bytes: the unique part
	uidSecret   = 24        // 32 bytes
	uidAddrLen  = 56        // 1 byte
	uidAddr     = 57        // 70 bytes: host:port, padded with zeros
	uidReserved = 127       // 1 byte: zero
	uidVersion  = "crl\x01" // changes with the layout
	uidPrefix   = "carillon1."
)

// MaxAddress is the longest address (host:port, in bytes) that a UniqueID can hold.
const MaxAddress = uidReserved - uidAddr

// NewUniqueID makes an id that no other communicator has, with a fresh secret. addr is the host:port at which the ranks
// meet; it must be reachable from all of them and at most MaxAddress bytes long. An empty addr is for ranks of one
// process, which need no address. A malformed addr is a *UsageError.
func NewUniqueID(addr string) (UniqueID, error) {
	var seed [32]byte
	rand.Read(seed[:]) // never fails: crypto/rand ends the process rather than return weak bytes
	return UniqueIDFromSecret(seed[:], addr)
}

// UniqueIDFromSecret derives an id from seed: ranks that share a seed (from their launcher's environment) derive the
// same id without a message. The seed is the job's secret; anyone who can guess it can join the job. It must not be
// empty. addr is as for NewUniqueID; the id's unique part doesn't depend on it, so ranks may use different names of one
// address.
func UniqueIDFromSecret(seed []byte, addr string) (UniqueID, error) {
	if len(seed) == 0 {
		return UniqueID{}, invalid("the seed of a unique id is empty; give the bytes that all ranks of the " +
			"job share and nobody else knows")
	}
	var id UniqueID
	if err := id.setAddress(addr); err != nil {
		return UniqueID{}, err
	}
	copy(id[uidMagic:], uidVersion)
	copy(id[uidRandom:uidSecret], derive(seed, "carillon unique id: name"))
	copy(id[uidSecret:uidAddrLen], derive(seed, "carillon unique id: secret"))
	binary.LittleEndian.PutUint32(id[uidChecksum:], id.checksum())
	return id, nil
}

// derive derives 32 bytes from a seed, for one purpose. They reveal nothing about the seed, nor about the bytes for
// another purpose.
func derive(seed []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, seed)
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

func (id *UniqueID) checksum() uint32 {
	return crc32.Checksum(id[uidRandom:], crc32.MakeTable(crc32.Castagnoli))
}

// Valid checks that id is complete and made by this version of Carillon. Its error, a *UsageError, never has the
// secret.
func (id UniqueID) Valid() error {
	if id == (UniqueID{}) {
		return invalid("the unique id is all zeros; one rank makes it with NewUniqueID and carries it to the others")
	}
	if !bytes.Equal(id[:3], []byte(uidVersion[:3])) {
		return invalid("these 128 bytes are not a Carillon unique id; was it made by another library " +
			"(ncclGetUniqueId), or carried incompletely?")
	}
	if id[3] != uidVersion[3] {
		return invalid("the unique id has layout %d, and this version of Carillon understands layout %d; run one "+
			"version on all ranks", id[3], uidVersion[3])
	}
	if binary.LittleEndian.Uint32(id[uidChecksum:]) != id.checksum() {
		return invalid("the unique id was damaged on its way (its checksum is wrong); carry all 128 bytes, or its " +
			"text, unchanged")
	}
	n := int(id[uidAddrLen])
	if n > MaxAddress || id[uidReserved] != 0 ||
		len(bytes.Trim(id[uidAddr+min(n, MaxAddress):uidReserved], "\x00")) != 0 {
		return invalid("the unique id's address field is malformed; make the id with NewUniqueID")
	}
	return checkAddress(id.Address())
}

// Address is the host:port at which the ranks meet; empty if they are all in one process.
func (id UniqueID) Address() string {
	return string(id[uidAddr : uidAddr+min(int(id[uidAddrLen]), MaxAddress)])
}

// Secret is the 32 bytes by which the job's ranks authenticate each other. The caller owns them.
func (id UniqueID) Secret() []byte { return bytes.Clone(id[uidSecret:uidAddrLen]) }

// IsZero reports whether id was never set.
func (id UniqueID) IsZero() bool { return id == UniqueID{} }

// String is the id as text that ParseUniqueID reads back, at most 187 bytes of printable ASCII:
//
//	carillon1.NAME.SECRET.CHECKSUM@HOST:PORT
//
// It contains the secret: print it only to carry it to another rank. For an invalid id it says so.
func (id UniqueID) String() string {
	return id.text(fmt.Sprintf("%x.%x", id[uidSecret:uidAddrLen], id[uidChecksum:uidRandom]))
}

// Redacted is String without the secret and its checksum, for logs and errors.
func (id UniqueID) Redacted() string {
	return id.text("redacted")
}

func (id *UniqueID) text(secret string) string {
	if id.Valid() != nil {
		return "(invalid unique id)"
	}
	text := fmt.Sprintf("%s%x.%s", uidPrefix, id[uidRandom:uidSecret], secret)
	if addr := id.Address(); addr != "" {
		text += "@" + addr
	}
	return text
}

// GoString is what %#v prints: redacted.
func (id UniqueID) GoString() string { return "lifecycle.UniqueID(" + id.Redacted() + ")" }

// LogValue is what a slog record shows: redacted.
func (id UniqueID) LogValue() slog.Value { return slog.StringValue(id.Redacted()) }

// MarshalText is String, with an error for an invalid id. It contains the secret.
func (id UniqueID) MarshalText() ([]byte, error) {
	return []byte(id.String()), id.Valid()
}

// UnmarshalText is ParseUniqueID.
func (id *UniqueID) UnmarshalText(text []byte) error {
	parsed, err := ParseUniqueID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// ParseUniqueID reads what String wrote; white space around it is ignored. Its error is a *UsageError that never quotes
// the text, which may hold a secret.
func ParseUniqueID(text string) (UniqueID, error) {
	text = strings.TrimSpace(text)
	rest, ok := strings.CutPrefix(text, uidPrefix)
	if !ok {
		return UniqueID{}, invalid("a unique id's text begins with %q; these %d bytes do not", uidPrefix, len(text))
	}
	rest, addr, hasAddr := strings.Cut(rest, "@")
	if hasAddr && addr == "" {
		return UniqueID{}, invalid("a unique id's text ends in host:port after its @, and nothing follows this one")
	}
	fields := strings.Split(rest, ".")
	if len(fields) != 3 {
		return UniqueID{}, invalid("a unique id's text has 3 parts between %q and the @; this one has %d; was it "+
			"cut off?", uidPrefix, len(fields))
	}
	var id UniqueID
	copy(id[uidMagic:], uidVersion)
	for i, to := range []struct {
		name string
		dst  []byte
	}{
		{"name", id[uidRandom:uidSecret]},
		{"secret", id[uidSecret:uidAddrLen]},
		{"checksum", id[uidChecksum:uidRandom]},
	} {
		// The length goes first: hex.Decode trusts that dst is large enough.
		if len(fields[i]) != hex.EncodedLen(len(to.dst)) {
			return UniqueID{}, invalid("the %s of a unique id's text has %d hexadecimal digits; this one has %d "+
				"bytes; was it cut off, or redacted?", to.name, hex.EncodedLen(len(to.dst)), len(fields[i]))
		}
		if _, err := hex.Decode(to.dst, []byte(fields[i])); err != nil {
			return UniqueID{}, invalid("the %s of a unique id's text must be hexadecimal digits alone", to.name)
		}
	}
	err := id.setAddress(addr)
	if err == nil {
		err = id.Valid()
	}
	if err != nil {
		return UniqueID{}, err
	}
	return id, nil
}

func (id *UniqueID) setAddress(addr string) error {
	if err := checkAddress(addr); err != nil {
		return err
	}
	id[uidAddrLen] = byte(len(addr))
	copy(id[uidAddr:uidReserved], addr)
	return nil
}

// checkAddress says why ranks can't meet at addr. Empty is allowed.
func checkAddress(addr string) error {
	if addr == "" {
		return nil
	}
	if len(addr) > MaxAddress {
		return invalid("the address %.100q has %d bytes, and a unique id holds %d; use a shorter name or the IP "+
			"address", addr, len(addr), MaxAddress)
	}
	for i := range len(addr) {
		if addr[i] <= ' ' || addr[i] > '~' || addr[i] == '@' {
			return invalid("the address %q has the byte %q in it; allowed is host:port in printable ASCII without "+
				"blanks or @", addr, addr[i])
		}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return invalid("the address %q is not host:port (%v)", addr, err)
	}
	if host == "" {
		return invalid("the address %q names no host; name one that all ranks can reach", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return invalid("the port %q of the address %q is not a number from 1 to 65535", port, addr)
	}
	return nil
}
