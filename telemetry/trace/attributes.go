package trace

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// commAttributes tells whose span it is, as far as that is known.
func commAttributes(c *member) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 16)
	attrs = append(attrs, semconv.CommID.String(c.ID.String()))
	if c.Name != "" {
		attrs = append(attrs, semconv.CommName.String(c.Name))
	}
	if !c.Parent.IsZero() {
		attrs = append(attrs, semconv.CommParentID.String(c.Parent.String()))
	}
	if c.Size > 0 {
		attrs = append(attrs, semconv.CommSize.Int(c.Size))
	}
	if c.Rank >= 0 {
		attrs = append(attrs, semconv.Rank.Int(c.Rank))
	}
	if c.Nodes > 0 {
		attrs = append(attrs, semconv.CommNodes.Int(c.Nodes))
	}
	if c.Engine != "" {
		attrs = append(attrs, semconv.Engine.String(c.Engine))
	}
	return attrs
}

// callAttributes tells which call of the user's it was, and whose fault.
func callAttributes(r *tape.LifeRecord) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if r.Call != lifecycle.CallNone {
		attrs = append(attrs, semconv.Call.String(r.Call.String()))
	}
	switch r.Act {
	case tape.ActSplit, tape.ActShrink, tape.ActGrow, tape.ActGroup:
		if r.Stage != tape.StageMisuse { // a refused call is none of them
			attrs = append(attrs, semconv.ActSeq.Int64(int64(r.Seq)))
			if r.Act == tape.ActGroup {
				attrs = append(attrs, semconv.GroupOps.Int64(int64(r.Ops)))
			}
		}
	case tape.ActNone:
		if r.Stage == tape.StageEnd {
			attrs = append(attrs, semconv.OpSeq.Int64(int64(r.Seq)))
		}
	default:
	}
	if r.Shared {
		attrs = append(attrs, semconv.SharedGoroutines.Bool(true))
	}
	if r.Peer >= 0 && r.Code != lifecycle.CodeOK {
		attrs = append(attrs, semconv.PeerRank.Int(int(r.Peer)))
	}
	return attrs
}

func siteAttributes(s lifecycle.Site) []attribute.KeyValue {
	if s.Func == "" && s.File == "" {
		return nil
	}
	attrs := []attribute.KeyValue{
		semconv.CodeFunction.String(s.Func),
		semconv.CodeFile.String(s.File),
		semconv.CodeLine.Int(s.Line),
	}
	if s.Goroutine != 0 {
		attrs = append(attrs, semconv.Goroutine.Int64(int64(s.Goroutine)))
	}
	return attrs
}

func firstAttributes(s lifecycle.Site) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if s.Func != "" || s.File != "" {
		attrs = append(attrs, semconv.FirstFunction.String(s.Func), semconv.FirstFile.String(s.File),
			semconv.FirstLine.Int(s.Line))
	}
	if s.Goroutine != 0 {
		attrs = append(attrs, semconv.FirstGoroutine.Int64(int64(s.Goroutine)))
	}
	if !s.Time.IsZero() {
		attrs = append(attrs, semconv.FirstTime.String(firstTime(s.Time)))
	}
	return attrs
}
