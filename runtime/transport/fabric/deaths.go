package fabric

import (
	"sync"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// deaths watches other processes of this host, each of them once for all communicators.
type deaths struct {
	mu      sync.Mutex
	watched map[process.ID]*watched
	next    int
}

// watched is one process, and those to whom its end is told.
type watched struct {
	stop func()
	tell map[int]func()
}

func newDeaths() *deaths { return &deaths{watched: make(map[process.ID]*watched)} }

// watch has tell called once when the process ends, from a goroutine of the watch, unless cancel was called before.
// tell must not block. The error is process.ErrGone if the process has ended already.
func (d *deaths) watch(id process.ID, tell func()) (cancel func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched == nil {
		return func() {}, nil
	}
	w := d.watched[id]
	if w == nil {
		w = &watched{tell: make(map[int]func())}
		if w.stop, err = id.Watch(func(process.Exit) { d.ended(id, w) }); err != nil {
			return nil, err
		}
		d.watched[id] = w
	}
	n := d.next
	d.next++
	w.tell[n] = tell
	return func() { d.cancel(id, w, n) }, nil
}

func (d *deaths) ended(id process.ID, w *watched) {
	d.mu.Lock()
	tell := w.tell
	w.tell = nil
	if d.watched[id] == w {
		delete(d.watched, id)
	}
	d.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

func (d *deaths) cancel(id process.ID, w *watched, n int) {
	d.mu.Lock()
	delete(w.tell, n)
	last := len(w.tell) == 0 && d.watched[id] == w
	if last {
		delete(d.watched, id)
	}
	d.mu.Unlock()
	if last {
		w.stop()
	}
}

// close ends all watches. Nothing is told afterwards, and nothing watched.
func (d *deaths) close() {
	d.mu.Lock()
	all := d.watched
	d.watched = nil
	d.mu.Unlock()
	for _, w := range all {
		w.stop()
	}
}
