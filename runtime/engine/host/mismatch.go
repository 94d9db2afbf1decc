package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// maxHeaders is the largest communicator in which each rank sends its header to every other one. In larger ones, headers are
// merged on the way: see digest.go.
const maxHeaders = 16

// hearOutTime is how long a rank that has seen a mismatch waits for what the remaining ranks say, so that the error names all of them.
const hearOutTime = 200 * time.Millisecond

// hearOut waits for the headers of the ranks that have not been heard yet, and returns the error. Ranks that are lost, or
// don't call within hearOutTime, are left out.
func (x *execution) hearOut() error {
	e := x.e
	ctx, cancel := context.WithTimeout(e.w.ctx, hearOutTime)
	defer cancel()
	silent := x.active[:0]
	for _, l := range x.active {
		if !l.met || len(l.rest) > 0 && l.step == none {
			silent = append(silent, l)
		}
	}
	for len(silent) > 0 {
		moved := false
		silent = slices.DeleteFunc(silent, func(l *link) bool {
			m, settled := x.hear(l)
			moved = moved || m
			return settled
		})
		if moved {
			e.proceed()
		} else if e.w.idles++; e.waiter.Idle(ctx) != nil {
			break
		}
	}
	claims := []claim{{head: x.own, ranks: []int{e.rank}}}
	for _, l := range e.all {
		switch {
		case l == nil || !l.met:
		case l.odd:
			claims = addClaim(claims, l.head, l.rank)
		default:
			claims = addClaim(claims, x.own, l.rank)
		}
	}
	return e.mismatch(claims)
}

// hear gets the header from, and what is left of ours to, one rank, and says whether that is done, or in vain.
func (x *execution) hear(l *link) (moved, settled bool) {
	if len(l.rest) > 0 && l.step == none {
		n, err := l.flush()
		if err != nil {
			l.rest = nil
		}
		moved = n > 0
	}
	if !l.met {
		taken, err := x.take(l)
		if err != nil {
			return moved, true
		}
		moved = moved || taken
	}
	return moved, l.met && (len(l.rest) == 0 || l.step != none)
}

// claim is a header, and the ranks whose it is.
type claim struct {
	head  header
	ranks []int
}

func addClaim(claims []claim, h header, rank int) []claim {
	for i := range claims {
		if claims[i].head == h {
			claims[i].ranks = append(claims[i].ranks, rank)
			return claims
		}
	}
	return append(claims, claim{h, []int{rank}})
}

// mismatch is the error of ranks that made different calls. The first claim is this rank's. At fault is the smallest group of ranks
// that agree with each other; where sizes are equal, one that is not this rank's.
func (e *Engine) mismatch(claims []claim) error {
	most, least := &claims[0], &claims[len(claims)-1]
	for i := range claims {
		c := &claims[i]
		slices.Sort(c.ranks)
		if len(c.ranks) > len(most.ranks) {
			most = c
		}
		if len(c.ranks) < len(least.ranks) {
			least = c
		}
	}
	if most == least {
		least = &claims[1]
	}
	f := differs(&most.head, &least.head)
	var said []string
	heard := 0
	for i, c := range claims {
		heard += len(c.ranks)
		if slices.ContainsFunc(claims[:i], func(before claim) bool { return f.text(&before.head) == f.text(&c.head) }) {
			continue // said with the first that said so
		}
		var ranks []int
		for _, o := range claims[i:] {
			if f.text(&o.head) == f.text(&c.head) {
				ranks = append(ranks, o.ranks...)
			}
		}
		slices.Sort(ranks)
		said = append(said, says(ranks)+" "+f.text(&c.head))
	}
	detail := f.name + ": " + strings.Join(said, ", ")
	if heard < e.size {
		detail += fmt.Sprintf(" (%d of %d ranks were heard)", heard, e.size)
	}
	return e.peerError(lifecycle.CodeMismatch, least.ranks[0], detail)
}

// maxNamed is how many ranks are named one by one.
const maxNamed = 8

// says is "rank 1 says" or "ranks 0, 2, 3 say".
func says(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d says", ranks[0])
	}
	var names []string
	for _, r := range ranks[:min(len(ranks), maxNamed)] {
		names = append(names, fmt.Sprint(r))
	}
	text := "ranks " + strings.Join(names, ", ")
	if more := len(ranks) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d others", more)
	}
	return text + " say"
}
