package rendezvous

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Limits of an exchange. Cards are small; larger data is sent over the connections that the cards describe.
const (
	MaxRanks   = 1 << 14 // ranks in one exchange
	MaxPayload = 1 << 16 // bytes that one rank contributes
	MaxKey     = 256     // bytes of a key
)

// Rendezvous lets the ranks of a communicator exchange one small message each before they are connected. It is one
// rank's part in one unique id. It is safe for concurrent use; its exchanges are made one at a time.
type Rendezvous interface {
	// Exchange contributes payload for rank and blocks until all size ranks have contributed under the same key. It
	// returns all payloads, by rank; the caller owns them, and payload may be reused. Keys are used once.
	//
	// When ctx ends first, or when a rank that takes part dies, gives up or closes, the error is a *[MissingError] that
	// names the ranks that arrived and those that did not. A call with an ended context doesn't take part, and tells
	// the other ranks the context's cause: all ranks that wait or come later fail. Ranks that contradict each other
	// (one rank twice, different sizes, a rank out of range) all get a *[ConflictError]. A key or an id that was used
	// before is a *[StaleError].
	Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error)

	// Close says that this rank has finished with the unique id: exchanges that still need it fail on all ranks. It
	// waits for the goroutines of the Rendezvous, and may be called twice.
	Close() error
}

// HowEnded says how and why a rank leaves when its context ends.
func HowEnded(ctx context.Context) (how Departure, why string) {
	cause := context.Cause(ctx)
	if _, refuted := errors.AsType[*ConflictError](cause); refuted {
		return Refuted, cause.Error()
	}
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		return GaveUp, "its context expired"
	case errors.Is(cause, context.Canceled):
		return Withdrew, "its context was canceled"
	default:
		return Withdrew, cause.Error()
	}
}

// CheckArgs refuses a key, a payload or a number of ranks beyond the limits, at the beginning of each Exchange. A rank
// out of range is left to the exchange, so that the other ranks learn of it too.
func CheckArgs(key string, size int, payload []byte) error {
	var detail string
	switch {
	case key == "" || len(key) > MaxKey:
		detail = fmt.Sprintf("the key %.32q has %d bytes; it needs 1 to %d", key, len(key), MaxKey)
	case size < 1 || size > MaxRanks:
		detail = fmt.Sprintf("the size is %d; it must be 1 to %d ranks", size, MaxRanks)
	case len(payload) > MaxPayload:
		detail = fmt.Sprintf("the payload has %d bytes; at most %d may be exchanged", len(payload), MaxPayload)
	default:
		return nil
	}
	return &lifecycle.UsageError{Code: lifecycle.CodeInvalidArgument, Detail: "rendezvous: " + detail}
}
