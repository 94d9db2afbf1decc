// Package sse pushes events to HTTP clients as server-sent events:
// https://html.spec.whatwg.org/multipage/server-sent-events.html
//
//	GET /api/v1/events?type=verdict.&severity=warning
//
//	retry: 3000
//
//	id: 5f1c0e9a77b2d431-17
//	event: dev.carillon.verdict.opened
//	data: {"specversion":"1.0","id":"5f1c0e9a77b2d431-17","type":"dev.carillon.verdict.opened", …}
//
//	: heartbeat
//
// The data is the event as a CloudEvent in JSON. A new client first gets the open conditions, as last published. A
// client that comes back with the header Last-Event-ID, as browsers do by themselves, or with the query last_event_id,
// resumes after that event; the id 0 asks for the whole history. If events are missing, because they are no longer in
// the history or the client was too slow, an event without an id says so: dev.carillon.events.gap or
// dev.carillon.events.missed.
//
// A client that doesn't read loses its oldest events first, and its connection if it takes no byte within the write
// timeout. It holds up no other client.
package sse
