package tape

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
)

// A tape that is cut short while many goroutines write it is given up: the writers go on, nothing more reaches the
// file, and readers get an error.
func TestCutShortUnderWriters(t *testing.T) {
	for _, size := range []int64{headerSize + slotSize, headerSize, 600, 0} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			w := newTape(t, Config{OpRecords: 128, LifeRecords: 128, Slots: 4})
			var writers sync.WaitGroup
			cut := make(chan struct{})
			const rounds = 1000 // all of the rings, many times
			for i := range 6 {  // two of them without a slot
				c := w.Comm(CommInfo{ID: lifecycle.CommID{byte(i)}, Name: "tp", Size: 2})
				writers.Go(func() {
					for n := 0; n < rounds; {
						c.End(c.Start(0, allReduce, 1), lifecycle.CodeOK)
						c.StartFrom(Now(), &SpanContext{TraceID: [16]byte{1}}, 0, &allReduce, 1)
						c.Wait(1)
						c.End(uint64(n), lifecycle.CodeOK)
						c.Life(LifeRecord{Act: ActSplit, Stage: StageEnd, Text: "text"})
						select {
						case <-cut:
							n++
						default:
						}
					}
					c.Close()
				})
			}
			if err := os.Truncate(w.Path(), size); err != nil {
				t.Fatal(err)
			}
			close(cut)
			writers.Wait()
			w.Comm(CommInfo{ID: lifecycle.CommID{9}}).Close()
			w.Terminated(Now())
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if info, err := os.Stat(w.Path()); err != nil || info.Size() != size {
				t.Errorf("the file has %d bytes, %v; it was left with %d", info.Size(), err, size)
			}
			var malformed *FormatError
			if _, err := Open(w.Path()); !errors.As(err, &malformed) {
				t.Errorf("Open: %v", err)
			}
		})
	}
}
