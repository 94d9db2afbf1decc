package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// claim is a signature and the ranks that sent it.
type claim struct {
	Signature Signature
	Ranks     []int
}

// Claims are the signatures of a collective's ranks; the first claim is this rank's.
type Claims []claim

// Add adds the signature of a rank.
func (c *Claims) Add(s Signature, rank int) {
	for i := range *c {
		if claim := &(*c)[i]; claim.Signature == s {
			claim.Ranks = append(claim.Ranks, rank)
			return
		}
	}
	*c = append(*c, claim{s, []int{rank}})
}

// Mismatch describes how the calls of the ranks differ, and which rank is at fault: the first rank of the smallest
// group of ranks that agree, and among groups of equal size, of one that isn't this rank's. The text begins with what
// most ranks say, and is the same on all ranks that have received the same signatures. size is the number of ranks.
// Mismatch reorders the claims.
func (c Claims) Mismatch(size int) (culprit int, detail string) {
	own := c[0].Signature
	heard := 0
	for _, claim := range c {
		slices.Sort(claim.Ranks)
		heard += len(claim.Ranks)
	}
	slices.SortFunc(c, func(a, b claim) int {
		return cmp.Or(cmp.Compare(len(b.Ranks), len(a.Ranks)), cmp.Compare(a.Ranks[0], b.Ranks[0]))
	})
	least := &c[len(c)-1]
	if other := &c[len(c)-2]; least.Signature == own && len(other.Ranks) == len(least.Ranks) {
		least = other
	}
	most := &c[0]
	if most == least {
		most = &c[1]
	}
	f := fields()[0]
	for _, other := range fields() {
		if other.text(&most.Signature) != other.text(&least.Signature) {
			f = other
			break
		}
	}
	detail = f.name + ": " + strings.Join(c.said(f), ", ")
	if heard < size {
		detail += fmt.Sprintf(" (%d of %d ranks were heard)", heard, size)
	}
	return least.Ranks[0], detail
}

// said lists the values of a field, each with the ranks that have it.
func (c Claims) said(f field) []string {
	var values, texts []string
	ranks := map[string][]int{}
	for _, claim := range c {
		v := f.text(&claim.Signature)
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
		ranks[v] = append(ranks[v], claim.Ranks...)
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

// MessageMismatch explains why a send or receive of rank self doesn't match the call of a peer. alone says that it is a
// call of its own, not one of several messages that progress together.
func MessageMismatch(self int, mine *Signature, peer int, peers *Signature, alone bool) string {
	if peers.IsMessage() && mine.Call() != peers.Call() {
		for _, f := range messageFields() {
			if a, b := f.text(mine), f.text(peers); a != b {
				return fmt.Sprintf("%s: rank %d says %s %s, rank %d says %s %s",
					f.name, self, mine.callText(), a, peer, peers.callText(), b)
			}
		}
	}
	detail := fmt.Sprintf("call: rank %d says %s, rank %d says %s", self, mine.callText(), peer, peers.callText())
	if alone && peers.Valid() && mine.Call() == peers.Call() {
		detail += ", and each waits for the other: call both directions in one group, or with SendRecv"
	}
	return detail
}
