package mesh

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"
)

// Answer is what one member answered.
type Answer struct {
	// From is the member that the answer is of, and By the one that gave it: another one of its host, if From can't
	// answer for itself.
	From, By string
	// Body is what Handler, or LocalNote, returned there. It is the receiver's to keep.
	Body []byte
}

// Missing is a member that has not answered, and why, as far as known.
type Missing struct {
	Name string
	Why  string
}

// Why a member has not answered.
const (
	whyUnknown = "not a member"
	whyAlone   = "cannot answer, and no member of its host is left to answer for it"
	whySilent  = "did not answer in time"
	whyBusy    = "is asked too much"
	whyNothing = "has nothing to say"
	whyClosed  = "this mesh was closed"
)

// Inquiry is a question that is being asked. Its methods are for one goroutine.
type Inquiry struct {
	ctx     context.Context
	cancel  context.CancelFunc
	answers chan Answer   // has room for all
	over    chan struct{} // closed when nothing comes any more

	mu      sync.Mutex
	pending map[string]string // by name of a member that has not answered: why
	never   map[string]string // of one that won't, likewise
}

// Answers yields the answers as they come, until all have answered or the time is up. A loop that ends early ends the
// inquiry. Each member answers at most once.
func (q *Inquiry) Answers() iter.Seq[Answer] {
	return func(yield func(Answer) bool) {
		defer q.cancel()
		for {
			select {
			case a := <-q.answers:
				if !yield(a) {
					return
				}
				continue
			default:
			}
			select {
			case a := <-q.answers:
				if !yield(a) {
					return
				}
			case <-q.over:
				for len(q.answers) > 0 {
					if !yield(<-q.answers) {
						return
					}
				}
				return
			}
		}
	}
}

// Missing lists, by name, the members that have not answered so far: after Answers, those that never will.
func (q *Inquiry) Missing() []Missing {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]Missing, 0, len(q.pending)+len(q.never))
	for name, why := range q.pending {
		all = append(all, Missing{name, why})
	}
	for name, why := range q.never {
		all = append(all, Missing{name, why})
	}
	slices.SortFunc(all, func(a, b Missing) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// take takes an answer, if it is the member's first.
func (q *Inquiry) take(a reply) (left int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.pending[a.from]; ok {
		switch a.status {
		case replyOK:
			delete(q.pending, a.from)
			q.answers <- Answer{From: a.from, By: a.by, Body: a.body}
		case replyNothing:
			delete(q.pending, a.from)
			q.never[a.from] = whyNothing
		default:
			q.pending[a.from] = whyBusy
		}
	}
	return len(q.pending)
}

func (q *Inquiry) waits(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.pending[name]
	return ok
}

func (q *Inquiry) because(name, why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.pending[name]; ok {
		q.pending[name] = why
	}
}

// DefaultAskTime is how long an inquiry takes whose context has no deadline, and maxAskTime how long any may.
const (
	DefaultAskTime = 5 * time.Second
	maxAskTime     = time.Minute
)
