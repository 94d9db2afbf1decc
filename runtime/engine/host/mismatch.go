package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/algo"
)

// maxHeaders is the largest communicator in which each rank sends its header to every other one. In larger ones,
// headers are merged on the way: see digest.go.
const maxHeaders = 16

// gatherTime is how long a rank that has seen a mismatch waits for the remaining ranks, so that the error names all.
const gatherTime = 200 * time.Millisecond

// gatherHeaders waits for the headers of the other ranks, without those that are lost, or don't call within gatherTime,
// and returns the error.
func (x *execution) gatherHeaders() error {
	e := x.e
	ctx, cancel := context.WithTimeout(e.w.ctx, gatherTime)
	defer cancel()
	silent := x.active[:0]
	for _, l := range x.active {
		if !l.met || len(l.rest) > 0 && l.step == algo.None {
			silent = append(silent, l)
		}
	}
	for len(silent) > 0 {
		moved := false
		silent = slices.DeleteFunc(silent, func(l *link) bool {
			m, settled := x.gatherHeader(l)
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

// told is how a collective ends whose passes ended with err. A rank that was told of a mismatch may see it for itself.
func (x *execution) told(err error) error {
	if !x.open && errors.Is(err, lifecycle.ErrMismatch) {
		for _, l := range x.active {
			if !l.met {
				_, _ = x.take(l) // a header that came before the peer was lost
			}
		}
	}
	if x.odd {
		return x.gatherHeaders()
	}
	return err
}

// gatherHeader gets the header from, and what is left of ours to, one rank, and says whether that is done, or in vain.
func (x *execution) gatherHeader(l *link) (moved, settled bool) {
	if len(l.rest) > 0 && l.step == algo.None {
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
	return moved, l.met && (len(l.rest) == 0 || l.step != algo.None)
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

// mismatch is the error of ranks that made different calls. The first claim is this rank's. At fault is the smallest
// group of ranks that agree with each other; where sizes are equal, one that is not this rank's. The text is the same
// on all ranks that have heard the same: first what most say.
func (e *Engine) mismatch(claims []claim) error {
	own := claims[0].head
	for _, c := range claims {
		slices.Sort(c.ranks)
	}
	slices.SortFunc(claims, func(a, b claim) int {
		return cmp.Or(cmp.Compare(len(b.ranks), len(a.ranks)), cmp.Compare(a.ranks[0], b.ranks[0]))
	})
	least := &claims[len(claims)-1]
	if other := &claims[len(claims)-2]; least.head == own && len(other.ranks) == len(least.ranks) {
		least = other
	}
	most := &claims[0]
	if most == least {
		most = &claims[1]
	}
	f := differs(&most.head, &least.head)
	detail := f.name + ": " + strings.Join(said(claims, f), ", ")
	heard := 0
	for _, c := range claims {
		heard += len(c.ranks)
	}
	if heard < e.size {
		detail += fmt.Sprintf(" (%d of %d ranks were heard)", heard, e.size)
	}
	return e.peerError(lifecycle.CodeMismatch, least.ranks[0], detail)
}

// said lists the values of a field, and which ranks say each.
func said(claims []claim, f field) []string {
	var values, texts []string
	ranks := map[string][]int{}
	for _, c := range claims {
		v := f.text(&c.head)
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
		ranks[v] = append(ranks[v], c.ranks...)
	}
	for _, v := range values {
		says := " say "
		if len(ranks[v]) == 1 {
			says = " says "
		}
		texts = append(texts, words.Ranks(ranks[v])+says+v)
	}
	return texts
}
