package gpu

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Severity says how bad a condition is.
type Severity uint8

// The severities.
const (
	Warning Severity = iota + 1 // work goes on, more slowly or with less to fall back on
	Fatal                       // no work should be given to the GPU, or what it computes can't be trusted
)

// String is "warning" or "fatal".
func (s Severity) String() string {
	if s == Fatal {
		return "fatal"
	}
	return "warning"
}

// MarshalText is String, for JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Codes of conditions.
const (
	// CodeXid: the driver reported an Xid error; one that a process caused is forgotten after Remembered.
	CodeXid        = "gpu_xid"
	CodeECC        = "gpu_ecc"         // uncorrected memory errors since the Monitor began
	CodeCorrected  = "gpu_ecc_fixed"   // corrected memory errors; forgotten after Remembered
	CodeRemap      = "gpu_row_remap"   // memory rows wait to be replaced, or can't be
	CodeNVLinkDown = "gpu_nvlink_down" // an NVLink that was up is down
	CodeNVLink     = "gpu_nvlink"      // NVLinks made errors; forgotten after Remembered
	CodeThrottled  = "gpu_throttled"   // the GPU runs slower than it could, for another reason than its normal power limit
	CodeLost       = "gpu_lost"        // the GPU doesn't answer any more: off the bus, or in need of a reset
	CodeHung       = "gpu_nvml_hung"   // NVML doesn't answer, and nothing new is known
	CodeUnreadable = "gpu_nvml"        // there is a driver, but it can't be used
)

// Remembered is how long a condition is shown that has no end of its own, after it came last.
const Remembered = 10 * time.Minute

// Condition is something that is wrong with a GPU, or with asking for it.
type Condition struct {
	Code     string    `json:"code"`
	Severity Severity  `json:"severity"`
	GPU      string    `json:"gpu,omitempty"`  // the label of the GPU; empty if it is about none in particular
	UUID     string    `json:"uuid,omitempty"` // the GPU's
	Xid      uint64    `json:"xid,omitempty"`  // the number, of CodeXid
	Text     string    `json:"text"`           // what is wrong, in a sentence
	Advice   string    `json:"advice,omitempty"`
	Since    time.Time `json:"since"` // when it came first
	Last     time.Time `json:"last"`  // when it came last
	Count    uint64    `json:"count"` // how often it came
}

// key is what a condition is one of.
type key struct {
	code, gpu string
	xid       uint64
}

func (c *Condition) key() key { return key{c.Code, c.GPU, c.Xid} }

// conditions are those that are open, with what closes by itself.
type conditions struct {
	open    map[key]*Condition
	expires map[key]time.Time
}

// raise opens c or counts it again, and tells whether it is new or became worse. One with a memory closes by itself.
func (s *conditions) raise(c Condition, now time.Time, memory time.Duration) bool {
	if s.open == nil {
		s.open, s.expires = map[key]*Condition{}, map[key]time.Time{}
	}
	k := c.key()
	if memory > 0 {
		s.expires[k] = now.Add(memory)
	}
	old := s.open[k]
	c.Since, c.Last, c.Count = now, now, 1
	if old != nil {
		c.Since, c.Count = old.Since, old.Count+1
	}
	s.open[k] = &c
	return old == nil || c.Severity > old.Severity
}

// clear closes a condition and returns it; nil if it was not open.
func (s *conditions) clear(k key) *Condition {
	c := s.open[k]
	delete(s.open, k)
	delete(s.expires, k)
	return c
}

// expire closes those that came last too long ago.
func (s *conditions) expire(now time.Time) []*Condition {
	var closed []*Condition
	for k, at := range s.expires {
		if !now.Before(at) {
			closed = append(closed, s.clear(k))
		}
	}
	slices.SortFunc(closed, compare)
	return closed
}

// list is a copy of those that are open, the worst first, then by GPU, code and Xid.
func (s *conditions) list() []Condition {
	all := make([]Condition, 0, len(s.open))
	for c := range maps.Values(s.open) {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Condition) int { return compare(&a, &b) })
	return all
}

func compare(a, b *Condition) int {
	return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Code, b.Code),
		cmp.Compare(a.Xid, b.Xid))
}
