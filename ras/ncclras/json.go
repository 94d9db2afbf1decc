package ncclras

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ParseJSON reads a status in JSON, NCCL's answer to STATUS after SET FORMAT json. It reads one communicator at a time,
// to the end of the document, and supplies the comma that NCCL 2.28.7 to 2.28.9 leave out after a missing rank's
// nvml_dev. If the document breaks off, Status.Cut says why; an error means that it isn't a status at all. in should be
// bounded.
func ParseJSON(in io.Reader) (*Status, error) {
	s := &Status{}
	dec := json.NewDecoder(&commas{from: in})
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("ncclras: status: it begins with %.32v instead of an object: %w", t, cutAt(err))
	}
	known := false
	for dec.More() && s.Cut == nil {
		var key json.Token
		if key, s.Cut = dec.Token(); s.Cut != nil {
			break
		}
		switch key {
		case "nccl_version":
			s.Cut = dec.Decode(&s.NCCL)
			known = s.Cut == nil
		case "communicators":
			s.Cut = s.comms(dec)
		default:
			var other json.RawMessage // such as communicators_count, which isn't relied on
			s.Cut = dec.Decode(&other)
		}
	}
	if s.Cut == nil {
		_, s.Cut = dec.Token() // the end of the object
	}
	if s.Cut != nil {
		s.Cut = cutAt(s.Cut)
	}
	if !known || len(s.NCCL) > maxLine {
		return nil, fmt.Errorf("ncclras: status: it has no version of NCCL: %w", cutAt(s.Cut))
	}
	return s, nil
}

// jsonComm is a communicator as NCCL writes it.
type jsonComm struct {
	Hash         string     `json:"hash"`
	Size         int        `json:"size"`
	RanksCount   int        `json:"ranks_count"`
	MissingCount int        `json:"missing_ranks_count"`
	Ranks        []jsonRank `json:"ranks"`
	Missing      []jsonRank `json:"missing_ranks"`
}

type jsonRank struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"`
	PID    int    `json:"pid"`
	GPU    int    `json:"cuda_dev"`
	Status struct {
		Init         int  `json:"init_state"`
		Async        int  `json:"async_error"`
		Finalized    bool `json:"finalize_called"`
		Destroyed    bool `json:"destroy_flag"`
		Aborted      bool `json:"abort_flag"`
		Unresponsive bool `json:"unresponsive"`
		Dead         bool `json:"considered_dead"`
	} `json:"status"`
	Launched map[string]uint64 `json:"collective_counts"`
}

// comms reads the array of communicators. An error means that the document broke off.
func (s *Status) comms(dec *json.Decoder) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return cutAt(err)
	}
	for dec.More() {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		comm, err := commOf(raw)
		if err == nil {
			s.Comms = append(s.Comms, comm)
		} else if len(s.Damage) < maxDamages {
			s.Damage = append(s.Damage, err.Error())
		}
	}
	_, err := dec.Token()
	return err
}

// commOf reads a communicator, if it is a possible one.
func commOf(raw []byte) (c Comm, err error) {
	var j jsonComm
	if err := json.Unmarshal(raw, &j); err != nil {
		return c, err
	}
	c.Size = j.Size
	hex, is := strings.CutPrefix(j.Hash, "0x")
	if c.Hash, err = strconv.ParseUint(hex, 16, 64); err != nil || !is {
		return c, fmt.Errorf("a communicator has the hash %.32q", j.Hash)
	}
	if j.RanksCount != len(j.Ranks) || j.MissingCount != len(j.Missing) {
		return c, fmt.Errorf("communicator %#x is said to have %d ranks and %d missing ones, and has %d and %d",
			c.Hash, j.RanksCount, j.MissingCount, len(j.Ranks), len(j.Missing))
	}
	for i := range j.Ranks {
		if err := c.add(&j.Ranks[i], j.Ranks[i].condition()); err != nil {
			return c, err
		}
	}
	for i := range j.Missing {
		if err := c.add(&j.Missing[i], j.Missing[i].missing()); err != nil {
			return c, err
		}
	}
	return c, c.check()
}

func (c *Comm) add(j *jsonRank, is Condition) error {
	p, err := process(j.Host, j.PID)
	if err != nil {
		return fmt.Errorf("rank %d of communicator %#x: %w", j.Rank, c.Hash, err)
	}
	c.Ranks = append(c.Ranks, Rank{
		Rank: j.Rank, Process: p, GPU: j.GPU, Condition: is, Init: j.Status.Init, Async: j.Status.Async,
		Launched: j.Launched,
	})
	return nil
}

func (j *jsonRank) condition() Condition {
	switch {
	case j.Status.Aborted:
		return Aborting
	case j.Status.Finalized, j.Status.Destroyed:
		return Finalizing
	case j.Status.Init != 0:
		return Initializing
	default:
		return Running
	}
}

func (j *jsonRank) missing() Condition {
	switch {
	case j.Status.Dead:
		return Dead
	case j.Status.Unresponsive:
		return Unresponsive
	default:
		return NoComm
	}
}

// commas supplies commas that are missing before a string, an object or an array. It doesn't change valid JSON, in
// which none of these directly follows the end of a value.
type commas struct {
	from          io.Reader
	err           error
	text, escaped bool // in a string; after a backslash there
	value         bool // the last byte other than white space ended a value
	in            [4096]byte
	chunk         [2 * 4096]byte
	out           []byte // of chunk
}

func (c *commas) Read(p []byte) (int, error) {
	for len(c.out) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		var n int
		n, c.err = c.from.Read(c.in[:])
		c.out = c.chunk[:0]
		for _, b := range c.in[:n] {
			c.next(b)
		}
	}
	n := copy(p, c.out)
	c.out = c.out[n:]
	return n, nil
}

func (c *commas) next(b byte) {
	switch {
	case c.text:
		switch {
		case c.escaped:
			c.escaped = false
		case b == '\\':
			c.escaped = true
		case b == '"':
			c.text, c.value = false, true
		}
	case b == ' ' || b == '\t' || b == '\n' || b == '\r':
	case b == '"' || b == '{' || b == '[':
		if c.value {
			c.out = append(c.out, ',')
		}
		c.text, c.value = b == '"', false
	default:
		c.value = b != ',' && b != ':'
	}
	c.out = append(c.out, b)
}
