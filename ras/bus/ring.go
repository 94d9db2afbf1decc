package bus

// ring is a queue of at most limit events that drops its oldest. It takes memory as it needs it.
type ring struct {
	limit  int
	events []*Event
	head   int // index of the oldest
	n      int
}

func (r *ring) len() int { return r.n }

func (r *ring) at(i int) *Event { return r.events[(r.head+i)%len(r.events)] }

// push appends, and tells whether the oldest was dropped for it.
func (r *ring) push(ev *Event) (dropped bool) {
	if r.n == r.limit {
		r.pop()
		dropped = true
	}
	if r.n == len(r.events) {
		grown := make([]*Event, min(max(2*r.n, 4), r.limit))
		for i := range r.n {
			grown[i] = r.at(i)
		}
		r.events, r.head = grown, 0
	}
	r.events[(r.head+r.n)%len(r.events)] = ev
	r.n++
	return dropped
}

func (r *ring) pop() *Event {
	ev := r.events[r.head]
	r.events[r.head] = nil
	r.head = (r.head + 1) % len(r.events)
	r.n--
	return ev
}
