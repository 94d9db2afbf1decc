package host

import (
	"encoding/binary"
	"math/bits"
)

// In a communicator of more than maxHeaders ranks the ranks agree by dissemination (Hensgen, Finkel and Manber, "Two
// algorithms for barrier synchronization", 1988) before the plan starts: in round k each rank sends what it knows to
// the rank 2^k further on. After ceil(log2 n) rounds everyone has heard from everyone, directly or not.
//
// What a rank knows is a digest: two headers at most, and who made which. If there are more than two, the ranks of the
// others are left out: that the ranks disagree is known all the same.

// variant is a header and the set of ranks that are known to have it.
type variant struct {
	head  header
	ranks []uint64 // bit set
}

func (o *variant) empty() bool {
	for _, w := range o.ranks {
		if w != 0 {
			return false
		}
	}
	return true
}

// digests is the memory of the agreement, and its progress.
type digests struct {
	variants [2]variant
	out, in  []byte
	to, from *link
	got      int // bytes of in
	foreign  header

	e     *Engine
	round int   // how far to is from this rank, and from is
	plan  *Plan // what comes behind the agreement
}

const digestHead = 8 // a header's first word, with kindDigest

func newDigests(e *Engine) *digests {
	words := (e.size + 63) / 64
	n := digestHead + 2*(headerSize+8*words)
	d := &digests{e: e, out: make([]byte, n), in: make([]byte, n)}
	for i := range d.variants {
		d.variants[i].ranks = make([]uint64, words)
	}
	return d
}

// agree returns nil when all ranks have the header h, which is that of p.
func (e *Engine) agree(h header, p *Plan) error {
	if e.digests == nil {
		e.digests = newDigests(e)
	}
	d := e.digests
	d.begin(h, p)
	for _, l := range e.all {
		if l != nil && len(l.pair.early) > 0 {
			return e.mismatch([]claim{{h, []int{e.rank}}, {l.pair.early[0], []int{l.rank}}})
		}
	}
	for k := 1; k < e.size; k *= 2 {
		d.round = k
		d.to, d.from, d.got = e.all[(e.rank+k)%e.size], e.all[(e.rank+e.size-k)%e.size], 0
		d.encode()
		d.from.reset()
		d.to.reset()
		d.to.rest = d.out
		if err := e.drive(d); err != nil {
			return err
		}
		if d.foreign != (header{}) {
			return e.mismatch([]claim{{h, []int{e.rank}}, {d.foreign, []int{d.from.rank}}})
		}
		d.merge()
	}
	if d.variants[1].empty() {
		return nil
	}
	return e.mismatch(d.claims())
}

func (d *digests) begin(h header, p *Plan) {
	d.plan = p
	for i := range d.variants {
		clear(d.variants[i].ranks)
	}
	d.variants[0].head = h
	d.variants[0].ranks[d.e.rank/64] |= 1 << (d.e.rank % 64)
}

// pass sends and receives what can be. foreign is set when the peer does something else than a collective.
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
	if before := d.got; before < headerSize && before+n >= headerSize { // nothing that a peer sends is shorter
		if h := getHeader(d.in); !h.valid() || h.kind() != kindDigest {
			d.foreign = h
			return moved, true, nil
		}
	}
	d.from.release(n)
	d.got += n
	return true, d.got == len(d.in) && len(d.to.rest) == 0, nil
}

func (d *digests) encode() {
	binary.LittleEndian.PutUint64(d.out, magic|uint64(kindDigest)<<16)
	b := d.out[digestHead:]
	for i := range d.variants {
		o := &d.variants[i]
		o.head.put(b)
		b = b[headerSize:]
		for _, w := range o.ranks {
			binary.LittleEndian.PutUint64(b, w)
			b = b[8:]
		}
	}
}

// merge adds what came in to what is known.
func (d *digests) merge() {
	b := d.in[digestHead:]
	for range d.variants {
		h := getHeader(b)
		ranks := b[headerSize : headerSize+8*len(d.variants[0].ranks)]
		b = b[headerSize+len(ranks):]
		for i := range d.variants {
			o := &d.variants[i]
			if o.empty() {
				o.head = h
			}
			if o.head == h {
				for w := range o.ranks {
					o.ranks[w] |= binary.LittleEndian.Uint64(ranks[8*w:])
				}
				break
			}
		}
	}
}

// claims are the variants, this rank's first.
func (d *digests) claims() []claim {
	var c []claim
	for i := range d.variants {
		o := &d.variants[i]
		next := claim{head: o.head}
		for w, word := range o.ranks {
			for ; word != 0; word &= word - 1 {
				next.ranks = append(next.ranks, 64*w+bits.TrailingZeros64(word))
			}
		}
		c = append(c, next)
	}
	return c
}

func (d *digests) waitsFor() int {
	if d.got < len(d.in) {
		return d.from.rank
	}
	return d.to.rank
}

// wants is how much must still come from a rank in this round and those behind it, and for the plan.
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
