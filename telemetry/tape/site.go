package tape

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ianlancetaylor/demangle"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Bounds of the look-ups of functions: the number of sites per tape, and the time for one look-up and for all together.
const (
	maxLookUps   = 256
	lookUpLimit  = time.Second
	lookUpsLimit = 5 * time.Second
)

// namer names the functions of calls in C and C++ as their programmers do. The tape has what the process could find at
// once: a symbol, if one is exported, and the address in the program or library, "_ZN1C1fEv+0x1f in job.so+0x2c1f".
type namer struct {
	t     *Reader
	mu    sync.Mutex
	spent time.Duration
	known map[lifecycle.Site]string // symbols and offsets of sites, if found; keys have no time
	hangs chan string               // the answer of a look-up that took too long; nil: there is none
}

// name completes the function's name.
func (n *namer) name(s *lifecycle.Site) {
	if s.Line != 0 || s.Func == "" {
		return
	}
	symbol, object, exported := strings.Cut(s.Func, " in ")
	if !exported {
		symbol, object = n.symbol(s), s.Func
	}
	if i := strings.LastIndex(symbol, "+0x"); i >= 0 {
		s.Func = demangled(symbol[:i]) + symbol[i:] + " in " + object
	}
}

// symbol looks for the symbol of a site in the file, once; it is empty if there is none.
func (n *namer) symbol(s *lifecycle.Site) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := lifecycle.Site{Func: s.Func, File: s.File}
	symbol, known := n.known[key]
	address, err := strconv.ParseUint(s.Func[strings.LastIndex(s.Func, "+")+1:], 0, 64)
	if known || err != nil || len(n.known) >= maxLookUps {
		return symbol
	}
	symbol, answered := n.lookUp(s.File, address)
	if answered {
		n.known[key] = symbol
	}
	return symbol
}

// lookUp waits for the file system for a limited time: a follower of tapes must also report jobs that hang with their
// file system. It returns false if it got no answer.
func (n *namer) lookUp(path string, address uint64) (symbol string, answered bool) {
	if n.spent > lookUpsLimit {
		return "", false
	}
	if n.hangs != nil {
		select {
		case <-n.hangs:
		default:
			return "", false
		}
	}
	began := time.Now()
	defer func() { n.spent += time.Since(began) }()
	answer := make(chan string, 1)
	go func() {
		symbol, offset := n.t.writer.Function(path, address, n.t.static.Created)
		if symbol != "" {
			symbol = fmt.Sprintf("%s+%#x", symbol, offset)
		}
		answer <- symbol
	}()
	n.hangs = nil
	select {
	case symbol := <-answer:
		return symbol, true
	case <-time.After(lookUpLimit):
		n.hangs = answer
		return "", false
	}
}

// demangled returns a symbol as people write it, without parameters. Only symbols of C++ and Rust are changed.
func demangled(symbol string) (name string) {
	defer func() {
		if recover() != nil { // the parser is handed whatever a process writes
			name = symbol
		}
	}()
	const most = 8 // a power of two
	return demangle.Filter(symbol, demangle.NoParams, demangle.NoTemplateParams, demangle.NoEnclosingParams,
		demangle.MaxLength(most))
}
