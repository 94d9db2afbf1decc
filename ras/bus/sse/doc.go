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
// A new client first gets the conditions that are open, as they were told last. The data is the event as a CloudEvent
// in JSON. A client that comes back with the header Last-Event-ID, as browsers do
// by themselves, or with the query last_event_id, continues behind that event; the id 0 asks for all that is
// remembered. Where events are missing, because they are forgotten or the client was too slow, an event without an id
// says so: dev.carillon.events.gap, dev.carillon.events.missed.
//
// A client that doesn't read loses its oldest events first, and its connection when nothing of what it is sent gets
// away within the write timeout. It holds nobody else up.
package sse
