package mesh

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// Bounds on questions and answers, in bytes and members.
const (
	// MaxQuestion is the longest question.
	MaxQuestion = 64 << 10
	// MaxAnswer is the longest answer; a longer one is cut off.
	MaxAnswer  = 64 << 10
	maxTargets = 16 << 10
	// flushBytes is the size from which on gathered answers are passed on at once.
	flushBytes = 256 << 10
)

// question is what one member asks another and, through it, further members. It goes over a stream, as JSON.
type question struct {
	ID      string         // random
	Asker   string         // the first one
	Reply   netip.AddrPort // where the answers go
	ReplyTo string         // the name of the member there
	Left    time.Duration  // until the answers are due
	Units   []unit         // the first is the receiver's
	Body    []byte
}

// answers are those to a question, as JSON.
type answers struct {
	ID      string // of the question
	Replies []reply
}

// reply is one member's answer.
type reply struct {
	From, By string
	Status   uint8  `json:",omitempty"`
	Body     []byte `json:",omitempty"`
}

const (
	replyOK      = iota
	replyNothing // there is nothing to say
	replyBusy    // too many questions
	numReplies
)

func encode(kind byte, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("mesh: %T can't be encoded: %v", v, err)) // its types all can
	}
	return append(message(kind), b...)
}

func decodeQuestion(b []byte) (*question, error) {
	var q question
	if err := json.Unmarshal(b, &q); err != nil {
		return nil, err
	}
	targets := 0
	for i := range q.Units {
		targets += q.Units[i].size()
	}
	if len(q.Units) == 0 || targets > maxTargets || q.Asker == "" || len(q.Asker) > maxName || q.Left > maxAskTime ||
		len(q.Body) > MaxQuestion || !q.Reply.IsValid() {
		return nil, errMessage
	}
	return &q, nil
}

func decodeAnswers(b []byte) (*answers, error) {
	var a answers
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, err
	}
	for _, r := range a.Replies {
		if len(r.Body) > MaxAnswer || r.Status >= numReplies {
			return nil, errMessage
		}
	}
	return &a, nil
}
