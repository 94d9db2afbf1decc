package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// messageVersion is the version of the messages between agents. A member doesn't answer a message of another version.
const messageVersion = 3

// kind is the kind of a message.
type kind string

const (
	askNotes kind = "notes" // asks for the receiver's note
	askLook  kind = "look"  // asks the coordinator to look at the job
	tellOpen kind = "open"  // tells the open verdicts
	tellKept kind = "kept"  // tells the list of processes for which the sender answers
)

// message is a question of the mesh, in JSON.
type message struct {
	Version int  `json:"v"`
	Kind    kind `json:"kind"`

	// Kept is the list of tellKept.
	Kept *list `json:"kept,omitempty"`

	// Of tellOpen: the sender, its turn, and the open verdicts.
	From string           `json:"from,omitempty"`
	Turn uint64           `json:"turn,omitempty"`
	Open []verdict.Packed `json:"open,omitempty"`
	// Unresolved are the IDs of verdicts that were withdrawn lately and are not known to be resolved.
	Unresolved []string `json:"unresolved,omitempty"`

	// About, in askNotes and askLook, are communicators in which ranks wait: a note that must be cut keeps these.
	About []lifecycle.CommID `json:"about,omitempty"`
}

func (m *message) encode() []byte {
	m.Version = messageVersion
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("agent: a message of %T can't be encoded: %v", m, err)) // its types all can
	}
	return b
}

func decode(b []byte) (*message, error) {
	var m message
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	if m.Version != messageVersion {
		return nil, fmt.Errorf("version %d, and not %d", m.Version, messageVersion)
	}
	if m.Kind == tellKept {
		if err := m.Kept.check(); err != nil {
			return nil, err
		}
	}
	for i := range m.Open {
		if n := len(m.Open[i].ID); n > maxID {
			return nil, fmt.Errorf("a verdict whose ID has %d bytes", n)
		}
	}
	return &m, nil
}

// verdicts are the message's open verdicts.
func (m *message) verdicts() []verdict.Verdict {
	open := make([]verdict.Verdict, 0, len(m.Open))
	for _, p := range m.Open {
		open = append(open, p.Unpack())
	}
	return open
}

// Limits of verdicts that are broadcast. The coordinator's own snapshot has all of them.
const (
	maxToldWaits    = 16
	maxToldEvidence = 8
	maxToldCulprits = 64
	maxToldText     = 1024
	maxTold         = 16 << 10 // bytes of all of them
	maxID           = 64       // far more than an ID has
)

// encodeOpen encodes the open and the unresolved verdicts, in at most maxTold bytes. A verdict that is too long keeps
// at least its ID: without it the receivers would withdraw the verdict.
func encodeOpen(from string, turn uint64, open []verdict.Verdict, unresolved []string) []byte {
	m := message{Kind: tellOpen, From: from, Turn: turn, Unresolved: unresolved}
	for _, v := range open {
		m.Open = append(m.Open, v.Shorten(maxToldText, maxToldCulprits, maxToldWaits, maxToldEvidence).Pack())
	}
	b := m.encode()
	for ; len(b) > maxTold && len(m.Open) > 1; b = m.encode() {
		m.Open = m.Open[:len(m.Open)/2] // the first ones are those for which most wait longest
	}
	if len(b) > maxTold && len(m.Open) > 0 {
		m.Open[0] = m.Open[0].Unpack().Shorten(maxToldText, 1, 1, 0).Pack()
		b = m.encode()
	}
	return b
}

// maxAbout is the most communicators that a question is about.
const maxAbout = 64

// among is the communicators in order, each once, and at most maxAbout.
func among(comms []lifecycle.CommID) []lifecycle.CommID {
	slices.SortFunc(comms, func(a, b lifecycle.CommID) int { return bytes.Compare(a[:], b[:]) })
	comms = slices.Compact(comms)
	return comms[:min(len(comms), maxAbout)]
}

// encodeNote encodes a note in at most room bytes, if necessary without the least important slots. The most important
// ones are those of the question's communicators, in which the rank at fault may be idle.
func encodeNote(n *verdict.Note, about []lifecycle.CommID, room int) []byte {
	n.Where, n.Cause = words.Clip(n.Where, maxToldText), words.Clip(n.Cause, maxToldText)
	n.Stack = slices.Clone(n.Stack)
	for i, line := range n.Stack {
		n.Stack[i] = words.Clip(line, maxToldText)
	}
	for {
		b, err := json.Marshal(n)
		switch {
		case err != nil: // any text of a tape can be JSON, so there is no error
			return nil
		case len(b) <= room:
			return b
		case len(n.Habits) > 0:
			n.Habits = nil // their trails name places in Slots, which are cut next
		case len(n.Stack) > 0:
			n.Stack = nil
		case len(n.Slots) > 0:
			n.Slots = essential(n.Slots, about)
		default:
			return nil
		}
	}
}

// essential returns at most half of the slots: first those of the communicators in question, then those with
// operations, open acts or a failure.
func essential(slots []verdict.Slot, about []lifecycle.CommID) []verdict.Slot {
	slots = slices.Clone(slots)
	worth := func(s *verdict.Slot) int {
		switch {
		case slices.Contains(about, s.Comm):
			return 2
		case s.InFlight > 0 || len(s.Acts) > 0 || s.Failure != nil:
			return 1
		default:
			return 0
		}
	}
	slices.SortStableFunc(slots, func(a, b verdict.Slot) int { return cmp.Compare(worth(&b), worth(&a)) })
	return slots[:len(slots)/2]
}

// decodeNote reads the answer of the member called name.
func decodeNote(name string, b []byte) (verdict.Note, error) {
	var n verdict.Note
	if err := json.Unmarshal(b, &n); err != nil {
		return n, err
	}
	if n.Member != name {
		return n, fmt.Errorf("a note of %q", n.Member)
	}
	return n, nil
}
