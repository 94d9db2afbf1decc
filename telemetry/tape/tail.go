package tape

import (
	"encoding/binary"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// siteFixed is the length of a site's numbers, before its two texts.
const siteFixed = 4 + 8 + 8 + 2

// appendTail writes what does not fit into a life record's own 64 bytes, and is there at all. It never grows beyond maxTail.
func appendTail(b []byte, r *LifeRecord) []byte {
	le := binary.LittleEndian
	if text := cut(r.Text, maxText); text != "" {
		b = append(appendField(b, tailText, len(text)), text...)
	}
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
		b = le.AppendUint32(appendField(b, tailOps, 4), r.Ops)
	}
	if r.Shared {
		b = appendField(b, tailShared, 0)
	}
	return b
}

// appendInfo writes what a communicator is.
func appendInfo(b []byte, info *CommInfo) []byte {
	le := binary.LittleEndian
	b = append(appendField(b, tailID, len(info.ID)), info.ID[:]...)
	if !info.Parent.IsZero() {
		b = append(appendField(b, tailParent, len(info.Parent)), info.Parent[:]...)
	}
	if name := cut(info.Name, MaxName); name != "" {
		b = append(appendField(b, tailName, len(name)), name...)
	}
	if engine := cut(info.Engine, engineSize-1); engine != "" {
		b = append(appendField(b, tailEngine, len(engine)), engine...)
	}
	b = appendField(b, tailShape, 12)
	b = le.AppendUint32(b, uint32(info.Rank))
	b = le.AppendUint32(b, uint32(info.Size))
	return le.AppendUint32(b, uint32(info.Nodes))
}

func appendField(b []byte, tag uint8, size int) []byte {
	return binary.LittleEndian.AppendUint16(append(b, tag), uint16(size))
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

// readTail reads the fields of a tail into r and info. It reports false if they make no sense: a length that points
// beyond the tail, or a field that is too short. Fields it does not know it passes over.
func readTail(tail []byte, r *LifeRecord, info *CommInfo) bool {
	le := binary.LittleEndian
	for len(tail) > 0 {
		if len(tail) < 3 {
			return false
		}
		tag, size := tail[0], int(le.Uint16(tail[1:]))
		if len(tail) < 3+size {
			return false
		}
		field := tail[3 : 3+size]
		tail = tail[3+size:]
		ok := true
		switch tag {
		case tailText:
			r.Text = string(field)
		case tailSite:
			ok = readSite(field, &r.Site)
		case tailFirst:
			ok = readSite(field, &r.First)
		case tailCaller:
			if ok = size == 25; ok {
				copy(r.Caller.TraceID[:], field)
				copy(r.Caller.SpanID[:], field[16:])
				r.Caller.Flags = field[24]
			}
		case tailChild:
			ok = copy(r.Child[:], field) == len(r.Child)
		case tailOps:
			if ok = size == 4; ok {
				r.Ops = le.Uint32(field)
			}
		case tailShared:
			r.Shared = true
		case tailID:
			ok = copy(info.ID[:], field) == len(info.ID)
		case tailParent:
			ok = copy(info.Parent[:], field) == len(info.Parent)
		case tailName:
			info.Name = string(field)
		case tailEngine:
			info.Engine = string(field)
		case tailShape:
			if ok = size == 12; ok {
				info.Rank, info.Size, info.Nodes = int(int32(le.Uint32(field))), int(int32(le.Uint32(field[4:]))), int(int32(le.Uint32(field[8:])))
			}
		}
		if !ok {
			return false
		}
	}
	return true
}

func readSite(b []byte, s *lifecycle.Site) bool {
	le := binary.LittleEndian
	if len(b) < siteFixed {
		return false
	}
	function := int(le.Uint16(b[20:]))
	if len(b) < siteFixed+function {
		return false
	}
	s.Line = int(int32(le.Uint32(b)))
	s.Goroutine = le.Uint64(b[4:])
	if at := int64(le.Uint64(b[12:])); at != 0 {
		s.Time = time.Unix(0, at)
	}
	s.Func = string(b[siteFixed : siteFixed+function])
	s.File = string(b[siteFixed+function:])
	return true
}

// getWords fills words from bytes; what is missing at the end is zero.
func getWords(words []uint64, b []byte) {
	for i := range words {
		switch {
		case len(b) >= wordSize:
			words[i] = binary.LittleEndian.Uint64(b)
			b = b[wordSize:]
		case len(b) > 0:
			var last [wordSize]byte
			copy(last[:], b)
			words[i] = binary.LittleEndian.Uint64(last[:])
			b = nil
		default:
			return
		}
	}
}
