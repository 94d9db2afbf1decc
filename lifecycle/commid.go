package lifecycle

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// CommID names a communicator; it is the same on all its ranks. It is no secret.
type CommID [16]byte

// RootCommID names the communicator that id's ranks make. It depends on id's random part alone.
func RootCommID(id UniqueID) CommID {
	return hashID("carillon communicator: root", id[uidRandom:uidSecret])
}

// ChildCommID names the communicator that a Split, Shrink or Grow of parent makes for color. split counts these calls
// on parent, so that all ranks derive the same name without a message.
func ChildCommID(parent CommID, split uint64, color int) CommID {
	b := make([]byte, 0, len(parent)+16)
	b = append(b, parent[:]...)
	b = binary.LittleEndian.AppendUint64(b, split)
	b = binary.LittleEndian.AppendUint64(b, uint64(int64(color)))
	return hashID("carillon communicator: child", b)
}

// RunCommID names the communicator that the ranks of one run of a job make under an id that all its runs have.
func RunCommID(id CommID, run Run) CommID {
	return hashID("carillon communicator: of a run", binary.LittleEndian.AppendUint64(id[:], uint64(run)))
}

// GraphsCommID names the pseudo-communicator of the operations that graphs launch on a communicator.
func GraphsCommID(id CommID) CommID { return hashID("carillon communicator: graphs", id[:]) }

func hashID(purpose string, data []byte) CommID {
	h := sha256.New()
	h.Write([]byte(purpose))
	h.Write(data)
	return CommID(h.Sum(nil)[:16])
}

// String is the id as 32 hexadecimal digits.
func (id CommID) String() string { return hex.EncodeToString(id[:]) }

// Short is the first 16 digits of String: enough for people, not for programs.
func (id CommID) Short() string { return hex.EncodeToString(id[:8]) }

// IsZero reports whether id names no communicator.
func (id CommID) IsZero() bool { return id == CommID{} }

// MarshalText is String.
func (id CommID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseCommID.
func (id *CommID) UnmarshalText(text []byte) error {
	parsed, err := ParseCommID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// ParseCommID reads what String wrote: 32 hexadecimal digits. Its error is a *UsageError.
func ParseCommID(text string) (CommID, error) {
	var id CommID
	if len(text) != hex.EncodedLen(len(id)) {
		return CommID{}, invalid("a communicator's id is %d hexadecimal digits; %.100q has %d bytes",
			hex.EncodedLen(len(id)), text, len(text))
	}
	if _, err := hex.Decode(id[:], []byte(text)); err != nil {
		return CommID{}, invalid("a communicator's id is %d hexadecimal digits; %q has others in it",
			hex.EncodedLen(len(id)), text)
	}
	return id, nil
}
