package lifecycle

import "time"

// UniqueID names a communicator before it exists. One rank makes it, the user carries it to the others.
type UniqueID [128]byte

// CommID names a communicator; it is the same on all its ranks.
type CommID [16]byte

// Site is the place and moment of a call.
type Site struct {
	Func      string
	File      string
	Line      int
	Goroutine uint64
	Time      time.Time
}
