package fabric

import (
	"context"
	"sync"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// deaths watches other processes of this host until they end, each process once for all communicators.
type deaths struct {
	mu      sync.Mutex
	watched map[process.ID]watched // nil once closed
}

type watched struct {
	life context.Context // ends with the process
	stop func()          // ends the watch
}

func newDeaths() *deaths { return &deaths{watched: make(map[process.ID]watched)} }

// watch calls tell once when the process ends, from a goroutine of the watch, unless cancel is called before. tell must
// not block. The error is process.ErrGone if the process has ended already.
func (d *deaths) watch(id process.ID, tell func()) (cancel func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched == nil {
		return func() {}, nil
	}
	w, ok := d.watched[id]
	if !ok {
		life, end := context.WithCancel(context.Background())
		w.life = life
		w.stop, err = id.Watch(func(process.Exit) {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.watched != nil { // otherwise closed
				delete(d.watched, id)
				end()
			}
		})
		if err != nil {
			end()
			return nil, err
		}
		d.watched[id] = w
	}
	stop := context.AfterFunc(w.life, tell)
	return func() { stop() }, nil
}

// close ends all watches. After that, no death is reported, and no process watched.
func (d *deaths) close() {
	d.mu.Lock()
	all := d.watched
	d.watched = nil
	d.mu.Unlock()
	for _, w := range all {
		w.stop()
	}
}
