package sse

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/carillon-rt/carillon/ras/bus"
)

// appendFrame appends an event as it goes over the wire. JSON has no line breaks, and neither have types and ids.
func appendFrame(b []byte, ev *bus.Event) ([]byte, error) {
	data, err := ev.MarshalJSON()
	if err != nil {
		return b, err
	}
	if bytes.ContainsAny(data, "\r\n") || strings.ContainsAny(ev.Type, "\r\n") {
		return b, fmt.Errorf("sse: event %s has a line break", ev.ID)
	}
	if !ev.Notice() {
		b = append(append(append(b, "id: "...), ev.ID...), '\n')
	}
	b = append(append(append(b, "event: "...), ev.Type...), '\n')
	b = append(append(b, "data: "...), data...)
	return append(b, "\n\n"...), nil
}

// parseQuery reads a client's request. The header, which a browser sends when it reconnects, is newer than the query.
func parseQuery(r *http.Request) (asked bus.Filter, after string, err error) {
	query := r.URL.Query()
	for prefix := range strings.SplitSeq(strings.Join(query["type"], ","), ",") {
		if prefix = strings.TrimSpace(prefix); prefix != "" {
			asked.Types = append(asked.Types, prefix)
		}
	}
	if len(asked.Types) > 32 {
		return asked, "", fmt.Errorf("type: %d types are asked for, 32 are allowed", len(asked.Types))
	}
	if name := query.Get("severity"); name != "" {
		if asked.Least, err = bus.ParseSeverity(name); err != nil {
			return asked, "", fmt.Errorf("severity: %w", err)
		}
	}
	after = cmp.Or(r.Header.Get("Last-Event-ID"), query.Get("last_event_id"), bus.FromOpen)
	if len(after) > maxID {
		return asked, "", fmt.Errorf("the id to continue behind has %d bytes, %d are allowed", len(after), maxID)
	}
	return asked, after, nil
}
