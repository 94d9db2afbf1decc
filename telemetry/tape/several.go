package tape

import (
	"runtime"

	"github.com/carillon-rt/carillon/lifecycle"
)

// several are the operations of a communicator that has many in flight.
type several struct {
	pending   [maxPending]pending // see at
	forgotten pending             // stands for one that is not there any more
}

// maxPending is how many operations of a communicator can be in flight with all that is known of them; of more, the oldest lose their
// signature and number.
const maxPending = 64

// at is the place of the n-th operation launched.
func (s *several) at(seq uint64) *pending { return &s.pending[seq%maxPending] }

// startAnother launches an operation while others are in flight.
func (c *CommWriter) startAnother(now int64, caller *SpanContext, number uint64, sig *Signature, algorithm uint8) (launched uint64) {
	o := c.op
	if c.several == nil {
		c.several = new(several)
	}
	if !o.many {
		o.many = true
		*c.several.at(o.launched) = o.single()
	}
	o.launched++
	seq := o.launched
	if number == 0 {
		number = seq
	}
	p := c.several.at(seq)
	if p.seq > o.completed && !p.ended {
		c.tell(p) // before it is forgotten
	}
	o.start = now
	*p = pending{seq: seq, number: number, start: now, opKind: *o.kindOf(sig, algorithm)}
	c.publishOp(c.oldest())
	c.began(caller, p)
	runtime.KeepAlive(c)
	return seq
}

// endOneOf ends an operation that is not the only one in flight, or that is not in flight at all.
func (c *CommWriter) endOneOf(launched uint64, now int64, code lifecycle.Code) {
	o := c.op
	if !o.many || launched <= o.completed || launched > o.launched {
		return
	}
	p := c.several.at(launched)
	switch {
	case p.seq != launched: // more than maxPending are in flight
		p = c.forgotten(launched)
	case p.ended:
		return
	}
	phase := PhaseNone
	if launched == o.completed+1 {
		phase = o.phase
	}
	p.ended = true
	o.lastEnd = now
	c.putEnd(p, now, phase, code)
	c.retire(launched)
	if o.completed == o.launched && o.shown == o.launched {
		c.repeatEnd(launched, now)
	} else {
		c.publishOp(c.oldest())
	}
	runtime.KeepAlive(c)
}

// retire moves completed over all that have ended. Of those that were forgotten it takes for granted that they end in order.
func (c *CommWriter) retire(ended uint64) {
	o := c.op
	if ended != o.completed+1 && c.several.at(o.completed+1).seq == o.completed+1 {
		return // the oldest is still in flight
	}
	for o.completed < o.launched {
		seq := o.completed + 1
		next := c.several.at(seq)
		known := next.seq == seq
		if known && !next.ended || !known && seq > ended {
			break
		}
		o.completed = seq
	}
	o.quiet()
}

// oldest is the oldest operation of many in flight, or the last one if none is.
func (c *CommWriter) oldest() *pending {
	seq := min(c.op.completed+1, c.op.launched)
	if p := c.several.at(seq); p.seq == seq {
		return p
	}
	return c.forgotten(seq)
}

func (c *CommWriter) forgotten(seq uint64) *pending {
	p := &c.several.forgotten
	*p = pending{seq: seq, told: true}
	return p
}
