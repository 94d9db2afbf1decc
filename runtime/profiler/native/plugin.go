//go:build linux && cgo

package native

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "plugin.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/profiler"
)

// plugin is a library. Memory passed to it is never freed, as it may keep it.
type plugin struct {
	path  string
	c     *C.struct_profiler_plugin // nil until it is loaded
	texts map[string]*C.char
}

// New makes a plug-in from the library at path. The thread that makes all calls loads the library when the first
// communicator begins, so Init returns the error of a library that can't be loaded or is not a plug-in.
func New(path string) profiler.Plugin { return &plugin{path: path, texts: map[string]*C.char{}} }

func (p *plugin) Name() string { return p.path }

func (p *plugin) Mask() profiler.Mask {
	if p.c == nil {
		return 0
	}
	return profiler.Mask(atomic.LoadInt32((*int32)(unsafe.Pointer(&p.c.mask)))) & profiler.All
}

func (p *plugin) Init(info profiler.Info) (profiler.Recorder, error) {
	if p.c == nil {
		runtime.LockOSThread() // until the goroutine, which belongs to the plug-in, ends
		if err := p.load(); err != nil {
			return nil, err
		}
	}
	r := &recorder{
		plugin: p, name: C.CString(info.Name), hash: C.uint64_t(binary.BigEndian.Uint64(info.ID[:])),
	}
	var context C.uintptr_t
	answer := C.plugin_init(p.c, &context, r.hash, r.name, C.int(info.Nodes), C.int(info.Size), C.int(info.Rank))
	r.context = context
	if answer != 0 {
		return nil, fmt.Errorf("its init returned %d", answer) // the library may have kept the name, so it is not freed
	}
	return r, nil
}

func (p *plugin) load() error {
	var why *C.char
	if p.c = C.plugin_open(p.text(p.path), &why); p.c == nil {
		return fmt.Errorf("it can't be loaded: %s", strings.TrimPrefix(C.GoString(why), p.path+": "))
	}
	return nil
}

// text returns s as a C string, which is never freed: there are few.
func (p *plugin) text(s string) *C.char {
	t := p.texts[s]
	if t == nil {
		t = C.CString(s)
		p.texts[s] = t
	}
	return t
}

// recorder is a library's state for a communicator.
type recorder struct {
	*plugin
	context C.uintptr_t
	name    *C.char // not freed, as the library may use it after the end
	hash    C.uint64_t
}

// handle is a handle of the library.
type handle C.uintptr_t

func (r *recorder) Start(e *profiler.Event) profiler.Handle {
	g := C.struct_event{
		_type: C.uint64_t(e.Type), parent: bits(e.Parent), group: bits(e.Group), rank: C.int32_t(e.Rank),
		name: r.name, hash: r.hash, step: C.int32_t(e.Step),
	}
	switch e.Type {
	case profiler.Collective, profiler.CollectiveAPI, profiler.PointToPoint, profiler.PointToPointAPI:
		o := &e.Op
		g._func, g.datatype = r.text(callName(o.Call)), r.text(typeNames[o.DataType])
		g.algo, g.seq, g.count = r.text(strings.ToUpper(o.Algorithm)), C.uint64_t(o.Seq), C.uint64_t(o.Count)
		g.send, g.recv, g.peer = C.uintptr_t(o.Send), C.uintptr_t(o.Recv), C.int32_t(o.Peer)
		if o.Call.IsCollective() {
			g.peer = max(g.peer, 0) // NCCL's value of root for calls without one
		}
	case profiler.ProxyOp:
		o := &e.Proxy
		g.pid, g.channel, g.peer = C.int32_t(o.Owner.PID), C.int32_t(o.Channel), C.int32_t(o.Peer)
		g.steps, g.chunk = C.int32_t(o.Steps), C.int32_t(o.ChunkSize)
		if o.IsSend {
			g.is_send = 1
		}
	default: // other types have no fields of their own here
	}
	if h := C.plugin_start(r.c, r.context, &g); h != 0 {
		return handle(h)
	}
	return nil
}

func (r *recorder) State(h profiler.Handle, c *profiler.Change) {
	C.plugin_state(r.c, bits(h), C.int(c.State), C.uint64_t(c.N))
}

func (r *recorder) Stop(h profiler.Handle, _ *profiler.End) { C.plugin_stop(r.c, bits(h)) }

func (r *recorder) Finalize() { C.plugin_finalize(r.c, r.context) }

func bits(h profiler.Handle) C.uintptr_t {
	mine, _ := h.(handle)
	return C.uintptr_t(mine)
}

// callName returns NCCL's name of a call.
func callName(c lifecycle.Call) string {
	if name := callNames[c]; name != "" {
		return name
	}
	return c.String()
}

var callNames = map[lifecycle.Call]string{
	lifecycle.CallAllReduce: "AllReduce", lifecycle.CallBroadcast: "Broadcast", lifecycle.CallReduce: "Reduce",
	lifecycle.CallAllGather: "AllGather", lifecycle.CallReduceScatter: "ReduceScatter",
	lifecycle.CallAllToAll: "AlltoAll", lifecycle.CallGather: "Gather", lifecycle.CallScatter: "Scatter",
	lifecycle.CallSend: "Send", lifecycle.CallRecv: "Recv", lifecycle.CallBarrier: "Barrier",
}

// typeNames are NCCL's names of types.
var typeNames = map[kernels.DataType]string{
	kernels.Int8: "ncclInt8", kernels.Uint8: "ncclUint8", kernels.Int32: "ncclInt32", kernels.Uint32: "ncclUint32",
	kernels.Int64: "ncclInt64", kernels.Uint64: "ncclUint64", kernels.Float16: "ncclFloat16",
	kernels.Float32: "ncclFloat32", kernels.Float64: "ncclFloat64", kernels.BFloat16: "ncclBfloat16",
	kernels.Float8E4M3: "ncclFloat8e4m3", kernels.Float8E5M2: "ncclFloat8e5m2",
}
