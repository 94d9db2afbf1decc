// Package webhook posts events to a URL as CloudEvents 1.0 over HTTP, in the structured mode: the body is the event
// with its envelope (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md).
//
// Requests are signed as Standard Webhooks has it (https://www.standardwebhooks.com): webhook-id, webhook-timestamp,
// and webhook-signature, the HMAC-SHA256 of "id.timestamp.body" for each secret. Receivers in many languages verify it
// with that project's libraries.
//
// Events are sent one at a time, in order. An event that isn't accepted is sent again, after a time that grows
// exponentially, with jitter, or that the receiver asks for with Retry-After (an hour at most). After five minutes it
// is given up, and the next one is sent once the receiver's time is over. An answer that another attempt won't change
// (4xx except 408, 425 and 429, redirects to other hosts) gives up at once. Meanwhile events wait in a bounded queue. A
// receiver gets an event at least once, and recognises repetitions by webhook-id.
package webhook
