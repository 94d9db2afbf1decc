package health

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Publisher holds the last snapshot for all clients. Readers don't slow down Publish. The zero Publisher is empty.
type Publisher struct {
	current atomic.Pointer[edition]
}

// Publish makes s the current snapshot. It takes nanoseconds, as documents are encoded at the first query. From then
// on, the Publisher owns what s points to.
func (p *Publisher) Publish(s *Snapshot) {
	e := &edition{snapshot: *s}
	e.snapshot.fill()
	for p := range parts {
		e.documents[p] = sync.OnceValue(func() *document { return newDocument(&e.snapshot, p) })
	}
	p.current.Store(e)
}

// Last is the last published snapshot, which must not be modified; nil if there is none.
func (p *Publisher) Last() *Snapshot {
	if e := p.current.Load(); e != nil {
		return &e.snapshot
	}
	return nil
}

// Run publishes what take returns, at each interval and when a condition changes, but at most ten times per interval.
// It blocks until ctx ends.
func (p *Publisher) Run(ctx context.Context, conditions *Conditions, interval time.Duration, take func() *Snapshot) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	changed := conditions.Changed()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-changed:
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(last.Add(interval / 10))):
			}
		}
		changed = conditions.Changed() // before take reads them, so that no change is missed
		p.Publish(take())
		last = time.Now()
	}
}

// fill sets the time, and makes nil lists empty, for JSON.
func (s *Snapshot) fill() {
	if s.Time.IsZero() {
		s.Time = time.Now()
	}
	s.Ranks, s.Comms = listed(s.Ranks), listed(s.Comms)
	s.Verdicts, s.Conditions = listed(s.Verdicts), listed(s.Conditions)
}

func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// edition is a published snapshot with its documents.
type edition struct {
	snapshot  Snapshot
	documents [len(parts)]func() *document
}

// parts are the documents of a snapshot: where they are, what they are, and what is in them. comms are the snapshot's
// communicators, without those beyond maxListedComms.
var parts = [...]struct {
	path, title string
	content     func(s *Snapshot, comms []Comm) any
}{
	{
		"/api/v1/ras", "all that is known of the job: ranks, communicators, verdicts, conditions",
		func(s *Snapshot, comms []Comm) any {
			shown := *s
			shown.Comms = comms
			return struct {
				Status string `json:"status"`
				*Snapshot
				CommsTotal int `json:"comms_total"`
			}{s.Status(), &shown, len(s.Comms)}
		},
	},
	{"/api/v1/ranks", "the processes of the job", func(s *Snapshot, _ []Comm) any {
		return struct {
			Total int    `json:"total"`
			Ranks []Rank `json:"ranks"`
		}{len(s.Ranks), s.Ranks}
	}},
	{"/api/v1/comms", "the communicators of this process", func(s *Snapshot, comms []Comm) any {
		return struct {
			Total int    `json:"total"`
			Comms []Comm `json:"comms"`
		}{len(s.Comms), comms}
	}},
	{"/api/v1/verdicts", "what is wrong with the job, and whose fault it is", func(s *Snapshot, _ []Comm) any {
		return struct {
			Unwatched string    `json:"unwatched,omitempty"`
			Total     int       `json:"total"`
			Verdicts  []Verdict `json:"verdicts"`
		}{s.Unwatched, len(s.Verdicts), s.Verdicts}
	}},
}

// document is an encoded part. The header values are slices, so that setting them allocates nothing.
type document struct {
	body   []byte
	etag   []string
	length []string
	err    error
}

// maxListedComms bounds the communicators in a document, for a program that leaks them. Documents have their total.
const maxListedComms = 10_000

// newDocument encodes a part.
func newDocument(s *Snapshot, part int) *document {
	content := parts[part].content(s, s.Comms[:min(len(s.Comms), maxListedComms)])
	encoded, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return &document{err: fmt.Errorf("health: encode %s: %w", parts[part].path, err)}
	}
	// The ETag is weak, as it leaves out the time.
	hash := fnv.New128a()
	_, _ = hash.Write(encoded) // a hash takes everything
	var body bytes.Buffer
	fmt.Fprintf(&body, "{\n  \"schema\": %d,\n  \"time\": %q,", Schema, s.Time.UTC().Format(time.RFC3339Nano))
	body.Write(encoded[len("{"):])
	body.WriteByte('\n')
	return &document{
		body: body.Bytes(), etag: []string{fmt.Sprintf(`W/"%x"`, hash.Sum(nil))},
		length: []string{strconv.Itoa(body.Len())},
	}
}
