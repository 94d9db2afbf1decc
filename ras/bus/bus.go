package bus

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrClosed says that the Bus, or the subscription, is closed.
var ErrClosed = errors.New("bus: closed")

// Bus passes events from publishers to subscribers. Its methods may be called from any goroutine.
type Bus struct {
	cfg   Config
	epoch string

	mu      sync.Mutex
	gate    *gate
	history []*Event
	seq     uint64 // of the newest event in history
	subs    map[*Subscription]struct{}
	timer   *time.Timer // runs tick
	closed  bool
	done    chan struct{} // closed with the Bus
}

// Config describes a Bus. A zero field takes the default that it names.
type Config struct {
	// Source is the Source of events that have none: a URI reference that identifies this process, such as
	// "/jobs/train/ranks/3". Default: "carillon".
	Source string
	// Job is the job's name, which every event gets; if it is empty, events keep their own.
	Job string
	// History is how many events are kept for subscribers that resume. Default: 1024.
	History int
	// Queue is how many events wait for a subscriber, besides those that it resumes with. Default: 256.
	Queue int
}

// New makes a Bus. The caller closes it.
func New(cfg Config) *Bus {
	cfg.Source = cmp.Or(cfg.Source, "carillon")
	if cfg.History <= 0 {
		cfg.History = 1024
	}
	if cfg.Queue <= 0 {
		cfg.Queue = 256
	}
	return &Bus{
		cfg: cfg, epoch: fmt.Sprintf("%0*x", epochDigits, rand.Uint64()),
		gate: &gate{conditions: map[conditionKey]*condition{}}, subs: map[*Subscription]struct{}{},
		done: make(chan struct{}),
	}
}

// Publish publishes an event, unless it repeats one or is a symptom of an open condition. It never waits for a
// subscriber. On an error, the event was not published: the error is ErrClosed, or says what is malformed.
func (b *Bus) Publish(ev Event) error {
	ev.Source = cmp.Or(ev.Source, b.cfg.Source)
	if err := ev.prepare(); err != nil {
		return err
	}
	now := time.Now()
	if ev.Time.IsZero() {
		ev.Time = now
	}
	ev.Time = ev.Time.Round(0) // without the monotonic clock, as after decoding
	ev.Job = cmp.Or(b.cfg.Job, ev.Job)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	if out := b.gate.offer(now, &ev); out != nil {
		b.emit(out)
	}
	b.arm(now)
	return nil
}

// emit gives ev an id, adds it to the history and queues it for all subscribers. From then on, ev is immutable.
func (b *Bus) emit(ev *Event) {
	b.seq++
	ev.ID, ev.seq, ev.wire = formatID(b.epoch, b.seq), b.seq, sync.OnceValues(ev.encode)
	b.history, _ = enqueue(b.history, ev, b.cfg.History)
	for s := range b.subs {
		if s.filter.Match(ev) {
			s.push(ev)
		}
	}
}

func (b *Bus) arm(now time.Time) {
	switch wake := b.gate.wake; {
	case wake.IsZero():
	case b.timer == nil:
		b.timer = time.AfterFunc(wake.Sub(now), b.tick)
	default:
		b.timer.Reset(wake.Sub(now))
	}
}

func (b *Bus) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	now := time.Now()
	for _, ev := range b.gate.advance(now) {
		b.emit(ev)
	}
	b.arm(now)
}

// Close publishes the events that were folded but not published yet, and ends the Bus: each subscription yields what it
// has queued, then ErrClosed. It doesn't wait for subscribers. Publish fails afterwards.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	for _, ev := range b.gate.flush(time.Now()) {
		b.emit(ev)
	}
	b.closed = true
	close(b.done)
	if b.timer != nil {
		b.timer.Stop()
	}
	for s := range b.subs {
		s.end()
	}
	clear(b.subs)
}

// Done is closed when the Bus is.
func (b *Bus) Done() <-chan struct{} { return b.done }

// Attach begins a subscription after the event with the id after. If after is empty, it begins with the next event;
// with FromOpen, with the open conditions before that; with FromStart, with the whole history. The caller closes it. On
// a closed Bus, it yields what after asks for, then ErrClosed.
func (b *Bus) Attach(filter Filter, after string) *Subscription {
	s := &Subscription{bus: b, filter: filter, ready: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.seen = formatID(b.epoch, b.seq)
	switch after {
	case "":
	case FromOpen:
		s.backlog = slices.DeleteFunc(b.open(), func(ev *Event) bool { return !filter.Match(ev) })
	default:
		b.resume(s, after)
	}
	if b.closed {
		s.ended = true
	} else {
		b.subs[s] = struct{}{}
	}
	return s
}

// Ids that no event has: the whole history comes after FromStart, and the open conditions come after FromOpen.
const (
	FromStart = "0"
	FromOpen  = "open"
)

// epochDigits is the length of an epoch, the beginning of all ids of one Bus. It differs from process to process.
const epochDigits = 16

func formatID(epoch string, seq uint64) string { return epoch + "-" + strconv.FormatUint(seq, 10) }

// parseID splits an id, which comes from a subscriber and may be anything.
func parseID(id string) (epoch string, seq uint64, ok bool) {
	epoch, number, _ := strings.Cut(id, "-")
	seq, err := strconv.ParseUint(number, 10, 64)
	return epoch, seq, err == nil && len(epoch) == epochDigits
}

// resume fills a subscription with the events after an id.
func (b *Bus) resume(s *Subscription, after string) {
	first := b.seq - uint64(len(b.history)) // the last event before the history, or 0
	epoch, seq, ok := parseID(after)
	if after == FromStart {
		epoch, seq, ok = b.epoch, 0, true
	}
	why, missed := "", uint64(0)
	switch {
	case !ok:
		why = "malformed"
	case epoch != b.epoch || seq > b.seq:
		why = "unknown"
	case seq < first:
		why, missed = "forgotten", first-seq
	}
	if why != "" {
		s.backlog = append(s.backlog, b.gap(after, missed, why))
		seq = first
	}
	s.seen = formatID(b.epoch, seq)
	for _, ev := range b.history[seq-first:] {
		if s.filter.Match(ev) {
			s.backlog = append(s.backlog, ev)
		}
	}
}

// Open returns the open conditions as last published, the oldest first, for a subscriber that missed events.
func (b *Bus) Open() []*Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open()
}

func (b *Bus) open() []*Event {
	var open []*Event
	for _, c := range b.gate.conditions {
		if c.shown {
			open = append(open, c.last)
		}
	}
	slices.SortFunc(open, func(x, y *Event) int { return cmp.Compare(x.seq, y.seq) })
	return open
}

func (b *Bus) detach(s *Subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subs, s)
}
