package bustest

import (
	"regexp"
	"strconv"
	"sync"
)

// Got is what a receiver got: one of the suite's events, by its number, or how many it was told that it missed.
type Got struct {
	Event  int // 0 for a notice
	Missed int
}

var known = regexp.MustCompile(`event number (\d+)\b|(\d+) events were dropped here`)

// Receiver takes what a sink sends, at the pace of the test.
type Receiver struct {
	got      chan Got
	released chan struct{}
	once     sync.Once
}

// NewReceiver makes a Receiver. Every Take blocks until the test asks.
func NewReceiver() *Receiver {
	return &Receiver{got: make(chan Got), released: make(chan struct{})}
}

// Take finds the suite's events in what came and hands them to the test. It blocks until the test has them, or is over.
func (r *Receiver) Take(raw []byte) {
	for _, match := range known.FindAllSubmatch(raw, -1) {
		event, _ := strconv.Atoi(string(match[1]))
		missed, _ := strconv.Atoi(string(match[2]))
		select {
		case r.got <- Got{event, missed}:
		case <-r.released:
			return
		}
	}
}

// Release lets all calls of Take return, from now on.
func (r *Receiver) Release() { r.once.Do(func() { close(r.released) }) }
