package mesh

import (
	"encoding/binary"
	"errors"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Kinds of messages that members send each other through memberlist. The first byte is the version.
const (
	wireVersion = 1

	msgFate     = 1 // a fate, by gossip or in one packet
	msgCheck    = 2 // asks the receiver to check a process of its host
	msgLeave    = 3 // the sender leaves; the receiver answers with msgLeaveAck
	msgLeaveAck = 4
	msgQuestion = 5
	msgAnswers  = 6
)

var errMessage = errors.New("mesh: not a message of this version, or cut short")

// fate is a process's state as a witness saw it. at is by the clock of the host, which all witnesses share: of two
// fates of a member, the later one counts.
type fate struct {
	name     string
	instance uint64
	state    State // Alive, Stopped, Dead or Left
	cause    Cause
	at       int64
	age      time.Duration // of the state, when the message was written
	exit     process.Exit
	by       string
}

// appendFate encodes a fate without its header.
//
//	name text | instance u64 | state u8 | cause u8 | at u64 | age in ms uv
//	exit: known u8, code v, signal uv | by text
func appendFate(b []byte, f *fate) []byte {
	b = wire.AppendBytes(b, f.name)
	b = binary.LittleEndian.AppendUint64(b, f.instance)
	b = append(b, byte(f.state), byte(f.cause))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.at))
	b = binary.AppendUvarint(b, uint64(max(f.age, 0)/time.Millisecond))
	b = wire.AppendBool(b, f.exit.Known)
	b = binary.AppendVarint(b, int64(f.exit.Code))
	b = binary.AppendUvarint(b, uint64(f.exit.Signal))
	return wire.AppendBytes(b, f.by)
}

const maxAge = 1 << 40 // ms, so that it fits a Duration

func readFate(r *wire.Reader) (f fate) {
	f.name = r.Text(maxName)
	f.instance = r.Uint64()
	f.state, f.cause = State(r.Byte()), Cause(r.Byte())
	f.at = int64(r.Uint64())
	f.age = time.Duration(r.UpTo(maxAge)) * time.Millisecond
	f.exit.Known = r.Bool()
	f.exit.Code = r.Int()
	f.exit.Signal = syscall.Signal(r.UpTo(255))
	f.by = r.Text(maxName)
	switch f.state {
	case Alive, Stopped, Dead, Left:
	default:
		r.Fail(errMessage)
	}
	if f.name == "" || f.cause >= numCauses {
		r.Fail(errMessage)
	}
	return f
}

func message(kind byte) []byte { return []byte{wireVersion, kind} }

func fateMessage(f *fate) []byte { return appendFate(message(msgFate), f) }

// nameMessage is a message about one mesh of a process: name text, id u64.
func nameMessage(kind byte, about instance) []byte {
	return binary.LittleEndian.AppendUint64(wire.AppendBytes(message(kind), about.Name), about.ID)
}

func readInstance(r *wire.Reader) instance {
	t := instance{r.Text(maxName), r.Uint64()}
	if t.Name == "" {
		r.Fail(errMessage)
	}
	return t
}

const maxFates = 512

func encodeFates(fates []fate) []byte {
	fates = fates[:min(len(fates), maxFates)]
	b := binary.AppendUvarint([]byte{wireVersion}, uint64(len(fates)))
	for i := range fates {
		b = appendFate(b, &fates[i])
	}
	return b
}

func decodeFates(b []byte) ([]fate, error) {
	r := wire.NewReader(b)
	if r.Byte() != wireVersion {
		return nil, errMessage
	}
	fates := make([]fate, r.Count(maxFates))
	for i := range fates {
		fates[i] = readFate(r)
	}
	return fates, r.Err()
}
