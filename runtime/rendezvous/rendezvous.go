package rendezvous

import "context"

// Rendezvous lets the ranks of a communicator exchange one small message each before they are connected. It serves one unique id.
type Rendezvous interface {
	// Exchange contributes payload for rank and blocks until all size ranks have contributed under the same key. It returns all payloads, by
	// rank; the caller owns them. Keys are used once. When ctx ends first, the error is a *MissingError that names who arrived and who did not.
	Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error)
	Close() error
}
