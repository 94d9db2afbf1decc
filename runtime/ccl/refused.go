package ccl

import (
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// refusals returns a function that records on the tape that this rank's proxy refused an operation during a call, once
// for each call. The call doesn't fail because of that.
func (c *core) refusals() func(error) {
	var noted atomic.Uint64 // the last call with a record: call and number plus 1
	return func(err error) {
		call, seq, _, _ := c.comm.Current()
		if is := uint64(call)<<56 | seq + 1; noted.Swap(is) == is {
			return
		}
		c.tape.Life(tape.LifeRecord{
			Call: call, Stage: tape.StageMisuse, Seq: seq, Code: lifecycle.CodeInternal, State: c.life.State(),
			Peer: -1, Text: "the proxy refused what it was to send or hand out: " + err.Error(),
		})
	}
}
