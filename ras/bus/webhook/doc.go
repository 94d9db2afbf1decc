// Package webhook posts events to a URL as CloudEvents 1.0 over HTTP, in the structured mode: the body is the event
// with its envelope (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md).
//
// Requests are signed as Standard Webhooks has it (https://www.standardwebhooks.com): webhook-id, webhook-timestamp,
// and webhook-signature, the HMAC-SHA256 of "id.timestamp.body" for each secret. Receivers in many languages verify it
// with that project's libraries.
//
// Events go one after another, in their order. An event that is not accepted is sent again, after a time that grows
// exponentially, with jitter, or that the receiver asks for with Retry-After; after five minutes it is given up, and
// the next one tried, but not before the time is over that the receiver asked for, an hour at most. An answer that
// another attempt won't change (4xx but 408, 425 and 429, redirects to other hosts) gives up at once. Meanwhile events
// wait in a bounded queue. A receiver sees an event at least once, and tells repetitions by webhook-id.
package webhook
