package host

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// In a communicator of more than maxHeaders ranks the ranks agree by dissemination (Hensgen, Finkel and Manber, "Two
// algorithms for barrier synchronization", 1988) before the plan starts. In round k each rank sends what it knows to
// the rank 2^k further on. After ceil(log2 n) rounds every rank has heard from every other rank, directly or not.
//
// A rank's knowledge is a digest: at most two different headers, and which ranks sent each. Further headers are
// dropped: two are enough to know that the ranks disagree.

// digests holds the memory and the progress of the agreement.
type digests struct {
	e        *Engine
	out, in  []byte // encoded: this rank's digest, and the one being received
	to, from *link
	got      int // bytes of in
	foreign  header
	round    int   // distance in ranks to to and to from
	plan     *plan // what follows the agreement
}

// A digest is the first word of a header, with no call, and the variants. Each variant is a header and the bit set of
// the ranks known to have it, in whole words.
const (
	digestHead = 8
	variants   = 2
)

// variant returns the i-th variant of a digest.
func variant(digest []byte, i int) (head, ranks []byte) {
	n := (len(digest) - digestHead) / variants
	v := digest[digestHead+i*n:][:n]
	return v[:headerSize], v[headerSize:]
}

func empty(ranks []byte) bool {
	return !slices.ContainsFunc(ranks, func(b byte) bool { return b != 0 })
}

// agree returns nil when all ranks have the header h, which belongs to p.
func (e *Engine) agree(h header, p *plan) error {
	if e.digests == nil {
		n := digestHead + variants*(headerSize+8*((e.size+63)/64))
		e.digests = &digests{e: e, out: make([]byte, n), in: make([]byte, n)}
	}
	d := e.digests
	d.begin(h, p)
	for _, l := range e.all {
		if l != nil && len(l.pair.early) > 0 {
			return e.mismatchOf(h, l.pair.early[0], l.rank)
		}
	}
	for k := 1; k < e.size; k *= 2 {
		d.round = k
		d.to, d.from, d.got = e.all[(e.rank+k)%e.size], e.all[(e.rank+e.size-k)%e.size], 0
		d.from.reset()
		d.to.reset()
		d.to.rest = d.out
		if err := e.drive(d); err != nil {
			return err
		}
		if d.foreign != (header{}) {
			return e.mismatchOf(h, d.foreign, d.from.rank)
		}
		d.merge()
	}
	if _, others := variant(d.out, 1); empty(others) {
		return nil
	}
	return e.mismatch(d.claims())
}

func (d *digests) begin(h header, p *plan) {
	d.plan = p
	clear(d.out)
	binary.LittleEndian.PutUint64(d.out, engine.Magic)
	head, ranks := variant(d.out, 0)
	h.Put(head)
	ranks[d.e.rank/8] |= 1 << (d.e.rank % 8)
}

// pass sends and receives as much as possible. foreign is set when the peer does something other than a collective.
func (d *digests) pass() (moved, done bool, err error) {
	if len(d.to.rest) > 0 {
		n, err := d.to.flush()
		if err != nil {
			return false, false, d.e.lost(d.to.rank, err)
		}
		moved = n > 0
	}
	if d.got == len(d.in) {
		return moved, len(d.to.rest) == 0, nil
	}
	window, err := d.from.peek()
	if len(window) == 0 {
		if err != nil {
			err = d.e.lost(d.from.rank, err)
		}
		return moved, false, err
	}
	n := copy(d.in[d.got:], window)
	if before := d.got; before < headerSize && before+n >= headerSize { // a peer sends nothing shorter
		if h := engine.GetSignature(d.in); !h.Valid() || h.Call() != lifecycle.CallNone {
			d.foreign = h
			return moved, true, nil
		}
	}
	d.from.release(n)
	d.got += n
	return true, d.got == len(d.in) && len(d.to.rest) == 0, nil
}

func (d *digests) merge() {
	for i := range variants {
		head, ranks := variant(d.in, i)
		for j := range variants {
			mine, known := variant(d.out, j)
			if empty(known) {
				copy(mine, head)
			}
			if bytes.Equal(mine, head) {
				for k := range known {
					known[k] |= ranks[k]
				}
				break
			}
		}
	}
}

func (d *digests) claims() engine.Claims {
	claims := make(engine.Claims, variants)
	for i := range claims {
		head, ranks := variant(d.out, i)
		claims[i].Signature = engine.GetSignature(head)
		for r := range d.e.size {
			if ranks[r/8]>>(r%8)&1 == 1 {
				claims[i].Ranks = append(claims[i].Ranks, r)
			}
		}
	}
	return claims
}

func (d *digests) waitsFor() int {
	if d.got < len(d.in) {
		return d.from.rank
	}
	return d.to.rank
}

// wants returns how many bytes must still come from a rank, in this round and later ones and for the plan.
func (d *digests) wants(rank int) int {
	n := 0
	if d.from.rank == rank {
		n = len(d.in) - d.got
	}
	takes := d.to.rank == rank && len(d.to.rest) > 0 || len(d.plan.sends[rank]) > 0
	for k := 2 * d.round; k < d.e.size; k *= 2 {
		takes = takes || (d.e.rank+k)%d.e.size == rank
		if (d.e.rank+d.e.size-k)%d.e.size == rank {
			n += len(d.in)
		}
	}
	if takes {
		return endless
	}
	for _, i := range d.plan.recvs[rank] {
		n += d.plan.steps[i].n + padding(d.plan.steps[i].n)
	}
	return n
}

func (d *digests) agreed() bool { return false }
