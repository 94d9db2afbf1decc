package tape

import (
	"encoding/binary"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
)

// siteFixed is the length of a site's numbers, before its two texts.
const siteFixed = 4 + 8 + 8 + 2

// appendTail appends a life record's fields that don't fit into its 64 bytes, at most maxTail bytes.
func appendTail(b []byte, r *LifeRecord) []byte {
	b = appendText(b, tailText, cut(r.Text, maxText))
	b = appendSite(b, tailSite, &r.Site)
	b = appendSite(b, tailFirst, &r.First)
	if r.Caller != (SpanContext{}) {
		b = appendField(b, tailCaller, 25)
		b = append(b, r.Caller.TraceID[:]...)
		b = append(b, r.Caller.SpanID[:]...)
		b = append(b, r.Caller.Flags)
	}
	if !r.Child.IsZero() {
		b = append(appendField(b, tailChild, len(r.Child)), r.Child[:]...)
	}
	if r.Ops != 0 {
		b = binary.LittleEndian.AppendUint32(appendField(b, tailOps, 4), r.Ops)
	}
	if r.Shared {
		b = appendField(b, tailShared, 0)
	}
	if r.Messages != nil {
		b = appendField(b, tailCounts, 12*len(r.Messages))
		for _, m := range r.Messages {
			for _, word := range []uint32{uint32(m.Rank), m.Sent, m.Received} {
				b = binary.LittleEndian.AppendUint32(b, word)
			}
		}
	}
	if r.Times > 1 {
		b = binary.LittleEndian.AppendUint32(appendField(b, tailTimes, 4), r.Times)
	}
	return b
}

// description is what the tape says about a communicator.
type description struct {
	CommInfo
	root uint32
}

// appendInfo appends a communicator's description.
func appendInfo(b []byte, info *CommInfo, root uint32) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(appendField(b, tailRoot, 4), root)
	b = append(appendField(b, tailID, len(info.ID)), info.ID[:]...)
	if !info.Parent.IsZero() {
		b = append(appendField(b, tailParent, len(info.Parent)), info.Parent[:]...)
	}
	b = appendText(b, tailName, cut(info.Name, nameSize-1))
	b = appendText(b, tailEngine, cut(info.Engine, engineSize-1))
	b = appendField(b, tailShape, 12)
	b = le.AppendUint32(b, uint32(info.Rank))
	b = le.AppendUint32(b, uint32(info.Size))
	b = le.AppendUint32(b, uint32(info.Nodes))
	if p := info.Place.shown(); p != (shownPlace{}) {
		b = appendField(b, tailPlace, 16)
		b = le.AppendUint32(b, uint32(p.node))
		b = le.AppendUint32(b, uint32(p.local))
		b = le.AppendUint32(b, uint32(p.connections))
		b = le.AppendUint16(le.AppendUint16(b, p.locals), p.pxn)
	}
	return b
}

func appendField(b []byte, tag uint8, size int) []byte {
	return binary.LittleEndian.AppendUint16(append(b, tag), uint16(size))
}

// appendText appends a text, unless it is empty.
func appendText(b []byte, tag uint8, text string) []byte {
	if text == "" {
		return b
	}
	return append(appendField(b, tag, len(text)), text...)
}

func appendSite(b []byte, tag uint8, s *lifecycle.Site) []byte {
	if s.IsZero() {
		return b
	}
	le := binary.LittleEndian
	function, file := cut(s.Func, maxSite), cutFront(s.File, maxSite)
	b = appendField(b, tag, siteFixed+len(function)+len(file))
	b = le.AppendUint32(b, uint32(s.Line))
	b = le.AppendUint64(b, s.Goroutine)
	var at int64
	if !s.Time.IsZero() {
		at = s.Time.UnixNano()
	}
	b = le.AppendUint64(b, uint64(at))
	b = le.AppendUint16(b, uint16(len(function)))
	b = append(b, function...)
	return append(b, file...)
}

// readTail reads the known fields of a tail into r and info. It returns false if a length is wrong.
func readTail(tail []byte, r *LifeRecord, info *description) bool {
	all := wire.NewReader(tail)
	for all.Len() > 0 {
		tag, size := all.Byte(), all.Uint16()
		f := wire.NewReader(all.Take(int(size)))
		switch tag {
		case tailText:
			r.Text = string(f.Rest())
		case tailSite:
			readSite(f, &r.Site)
		case tailFirst:
			readSite(f, &r.First)
		case tailCaller:
			f.Fill(r.Caller.TraceID[:])
			f.Fill(r.Caller.SpanID[:])
			r.Caller.Flags = f.Byte()
		case tailChild:
			f.Fill(r.Child[:])
		case tailOps:
			r.Ops = f.Uint32()
		case tailShared:
			r.Shared = true
		case tailTimes:
			r.Times = f.Uint32()
		case tailCounts:
			r.Messages = make([]PeerMessages, 0, f.Len()/12)
			for f.Len() > 0 && f.Err() == nil {
				r.Messages = append(r.Messages, PeerMessages{int32(f.Uint32()), f.Uint32(), f.Uint32()})
			}
		case tailID:
			f.Fill(info.ID[:])
		case tailParent:
			f.Fill(info.Parent[:])
		case tailName:
			info.Name = string(f.Rest())
		case tailEngine:
			info.Engine = string(f.Rest())
		case tailShape:
			info.Rank, info.Size, info.Nodes = int(int32(f.Uint32())), int(int32(f.Uint32())), int(int32(f.Uint32()))
		case tailRoot:
			info.root = f.Uint32()
		case tailPlace:
			info.Place = shownPlace{
				int32(f.Uint32()), int32(f.Uint32()), int32(f.Uint32()), f.Uint16(), f.Uint16(),
			}.place()
		}
		if f.Err() != nil {
			return false
		}
	}
	return all.Err() == nil
}

func readSite(f *wire.Reader, s *lifecycle.Site) {
	s.Line = int(int32(f.Uint32()))
	s.Goroutine = f.Uint64()
	if at := int64(f.Uint64()); at != 0 {
		s.Time = time.Unix(0, at)
	}
	s.Func = string(f.Take(int(f.Uint16())))
	s.File = string(f.Rest())
}
