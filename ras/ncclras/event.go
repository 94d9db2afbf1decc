package ncclras

import (
	"encoding/json"
	"io"
	"strings"
)

// Event is what NCCL reports of a process to a monitor.
type Event struct {
	// Name is NCCL's: PeerDead, or another one.
	Name string
	// Process is the one it is about; zero if NCCL doesn't know it.
	Process Process
}

// NCCL's names of the events that say whether a process answers. It has others, about connections.
const (
	PeerNew          = "PEER_NEW"
	PeerDead         = "PEER_DEAD" // no answer for a minute
	PeerConnected    = "PEER_CONNECTED"
	PeerRecovered    = "PEER_RECOVERED"
	PeerUnresponsive = "PEER_UNRESPONSIVE"
	PeerTimeoutDead  = "PEER_TIMEOUT_DEAD"
)

// The names of Monitor's own events.
const (
	// Watching begins a connection. What happened before isn't reported: ask for a Status.
	Watching = "WATCHING"
	// Lost ends a connection. What happens until the next Watching isn't reported.
	Lost = "LOST"
)

// maxEvent bounds an event that has several lines.
const maxEvent = 16 << 10

// events reads events from the lines of a connection. After SET FORMAT json, an event is a JSON object whose first and
// last lines are its braces. Anything else is left out.
type events struct {
	object strings.Builder // the lines of an object that has begun
	within bool
}

// line takes a line without its end, and returns the event that ends with it, if one does.
func (e *events) line(line string) (ev Event, ok bool) {
	switch {
	case line == "{" && !e.within:
		e.within = true
		e.object.Reset()
	case !e.within:
		return Event{}, false
	case e.object.Len()+len(line) > maxEvent:
		e.within = false
		return Event{}, false
	}
	e.object.WriteString(line)
	e.object.WriteByte('\n')
	if line != "}" {
		return Event{}, false
	}
	e.within = false
	return eventOf(e.object.String())
}

func eventOf(text string) (ev Event, ok bool) {
	var o struct {
		Name string `json:"event"`
		Peer struct {
			Host string `json:"host"` // empty if only the process's address is known
			PID  int    `json:"pid"`
		} `json:"peer"`
	}
	dec := json.NewDecoder(&commas{from: strings.NewReader(text)})
	if dec.Decode(&o) != nil || o.Name == "" || len(o.Name) > 64 {
		return ev, false
	}
	if _, err := dec.Token(); err != io.EOF {
		return ev, false
	}
	ev.Name = o.Name
	if o.Peer.Host != "" {
		var err error
		if ev.Process, err = process(o.Peer.Host, o.Peer.PID); err != nil {
			return ev, false
		}
	}
	return ev, true
}
