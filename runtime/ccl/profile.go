package ccl

import (
	"context"
	"unsafe"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// openProfile announces the communicator to the profiler's plug-ins, before a rank can send.
func (c *core) openProfile(ctx context.Context, port *fabric.Port, nodes int) {
	c.profile = c.rt.cfg.Profiler.Comm(ctx, profiler.Info{
		ID: c.id, Name: c.name, Rank: c.rank, Size: c.size, Nodes: nodes,
	})
	if c.profile != nil {
		port.Profile(c.profile)
	}
}

// profiled holds the events of operations that are made together.
type profiled struct {
	group profiler.ID // the event of their group, if they begin a group that ends with them
	one   profiler.ID
	more  []profiler.ID
}

// profileStart reports operations to the profiler. The caller has the turn.
func (c *core) profileStart(ops []engine.Op, number uint64, algorithm algo.Algorithm) (p profiled) {
	group := c.group
	if len(ops) > 1 && group == 0 {
		p.group = c.profile.StartGroup()
		group = p.group
	}
	for i := range ops {
		op := &ops[i]
		told := profiler.Operation{
			Call: op.Call, DataType: op.DataType, Reduction: op.Reduction, Seq: number, Count: op.Count, Peer: op.Peer,
			Send: address(op.Send), Recv: address(op.Recv),
		}
		if op.Call.IsCollective() {
			told.Algorithm = algorithm.String()
		} else {
			told.Seq = op.Seq
		}
		id := c.profile.StartOperation(group, &told)
		if i == 0 {
			p.one = id
		} else {
			p.more = append(p.more, id)
		}
	}
	return p
}

func (c *core) profileStop(p *profiled, code lifecycle.Code) {
	c.profile.Stop(p.one, code)
	for _, id := range p.more {
		c.profile.Stop(id, code)
	}
	c.profile.Stop(p.group, code)
}

func address(buffer []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(buffer))) }
