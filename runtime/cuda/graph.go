//go:build linux && cgo

package cuda

// #include "driver.h"
// #cgo noescape shim_capturing
// #cgo nocallback shim_capturing
import "C"

// BeginCapture starts a capture: work that is put on the stream from now on, by any thread, becomes nodes of a graph
// instead. A stream that waits for an event of this one is captured, too, and this stream must wait for it before
// EndCapture.
func (s *Stream) BeginCapture() error {
	const relaxed = 2 // other threads of the process may do anything
	return s.check("cuStreamBeginCapture", C.shim_begin_capture(s.driver.c, s.context.c, s.c, relaxed))
}

// Capturing reports whether the stream is being captured. It fails if the capture has become invalid.
func (s *Stream) Capturing() (bool, error) {
	var status C.int
	err := s.check("cuStreamIsCapturing", C.shim_capturing(s.driver.c, s.context.c, s.c, &status))
	return status != 0, err
}

// EndCapture ends the capture and returns the graph.
func (s *Stream) EndCapture() (*Graph, error) {
	g := &Graph{context: s.context}
	err := s.check("cuStreamEndCapture", C.shim_end_capture(s.driver.c, s.context.c, s.c, &g.c))
	if err != nil {
		return nil, err
	}
	return g, nil
}

// A Graph is work that was captured.
type Graph struct {
	context *Context
	c       C.CUgraph
}

// Destroy destroys the graph. Its executables stay.
func (g *Graph) Destroy() error {
	return g.context.check("cuGraphDestroy", C.shim_graph_destroy(g.context.driver.c, g.context.c, g.c))
}

// Instantiate makes the graph ready to be launched.
func (g *Graph) Instantiate() (*Executable, error) {
	x := &Executable{context: g.context}
	err := g.context.check("cuGraphInstantiate", C.shim_instantiate(g.context.driver.c, g.context.c, &x.c, g.c))
	if err != nil {
		return nil, err
	}
	return x, nil
}

// An Executable is a graph that can be launched any number of times; its launches don't overlap.
type Executable struct {
	context *Context
	c       C.CUgraphExec
}

// Launch puts the graph's work on a stream.
func (x *Executable) Launch(s *Stream) error {
	return s.check("cuGraphLaunch", C.shim_graph_launch(s.driver.c, s.context.c, x.c, s.c))
}

// Destroy destroys the executable; launched work still runs.
func (x *Executable) Destroy() error {
	return x.context.check("cuGraphExecDestroy", C.shim_exec_destroy(x.context.driver.c, x.context.c, x.c))
}
