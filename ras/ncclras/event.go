package ncclras

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Event is what NCCL tells of a process while it is monitored.
type Event struct {
	// Name is NCCL's: PeerDead, or another one.
	Name string
	// Process is the one it is about; zero if NCCL doesn't know it.
	Process Process
	// Stamp is the local time on NCCL's host, whole seconds, in no zone: "2025-12-19 13:07:07".
	Stamp string
	// Details is what else there is to say, as NCCL or this package puts it.
	Details string
}

// The names that NCCL gives events which say whether a process answers. It has others, of connections.
const (
	PeerNew          = "PEER_NEW"
	PeerDead         = "PEER_DEAD" // no answer for a minute
	PeerConnected    = "PEER_CONNECTED"
	PeerRecovered    = "PEER_RECOVERED"
	PeerUnresponsive = "PEER_UNRESPONSIVE"
	PeerTimeoutDead  = "PEER_TIMEOUT_DEAD"
)

// The names of what Monitor itself tells.
const (
	// Watching begins a connection. What happened before is not told: a Status tells how things stand.
	Watching = "WATCHING"
	// Lost ends it; Details say why. What happens from now on until Watching is not told.
	Lost = "LOST"
)

// maxEvent bounds an event that has several lines.
const maxEvent = 16 << 10

// events reads events from the lines of a connection. An event is a line of text, or a JSON object over several lines;
// what is neither is left out.
type events struct {
	object strings.Builder // the lines of an object that has begun
	within bool
}

var textEvent = regexp.MustCompile(`^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] ([A-Z_]{1,64}): ?` +
	`(?:Process (\d+) on node (\S+) managing GPUs? [\d,]*(?: \(NVML [\d,]*\))?)? ?(.*)$`)

// line takes a line without its end, and returns the event that ends with it, if one does.
func (e *events) line(line string) (ev Event, ok bool) {
	switch {
	case !e.within && line == "{":
		e.within = true
		e.object.Reset()
	case !e.within:
		return textOf(line)
	}
	if e.object.Len()+len(line) > maxEvent {
		e.within = false
		return Event{}, false
	}
	e.object.WriteString(line)
	e.object.WriteByte('\n')
	if line != "}" {
		return Event{}, false
	}
	e.within = false
	return objectOf(e.object.String())
}

func textOf(line string) (Event, bool) {
	m := textEvent.FindStringSubmatch(line)
	if m == nil {
		return Event{}, false
	}
	ev := Event{Stamp: m[1], Name: m[2], Details: m[5]}
	if m[3] != "" {
		var err error
		if ev.Process, err = process(m[4], number(m[3])); err != nil {
			return Event{}, false
		}
	}
	return ev, true
}

// number reads one that the expression found to be digits; -1 if it is too large to be true.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

func objectOf(text string) (Event, bool) {
	var o struct {
		Stamp   string `json:"timestamp"`
		Name    string `json:"event"`
		Details string `json:"details"`
		Peer    *struct {
			Host string `json:"host"`
			PID  int    `json:"pid"`
			Addr string `json:"addr"`
		} `json:"peer"`
	}
	dec := json.NewDecoder(&commas{from: strings.NewReader(text)})
	if dec.Decode(&o) != nil || o.Name == "" || len(o.Name) > 64 {
		return Event{}, false
	}
	if _, err := dec.Token(); err != io.EOF {
		return Event{}, false
	}
	ev := Event{Name: o.Name, Stamp: o.Stamp, Details: o.Details}
	if p := o.Peer; p != nil && p.Host != "" {
		var err error
		if ev.Process, err = process(p.Host, p.PID); err != nil {
			return Event{}, false
		}
	} else if p != nil {
		ev.Details = strings.TrimSpace(p.Addr + " " + o.Details)
	}
	return ev, true
}

// String is the event as one line.
func (e Event) String() string {
	if e.Process == (Process{}) {
		return strings.TrimSpace(e.Name + " " + e.Details)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %v %s", e.Name, e.Process, e.Details))
}
