package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Place is where the main thread of a process is, if the kernel shows that to this process.
type Place struct {
	State byte     // R, S, D, T or t; see proc(5)
	Wait  string   // the kernel function in which it waits; empty if it doesn't wait
	Stack []string // its kernel stack, innermost function first; empty unless this process is root
}

// Place reads where the process is. The error is ErrGone if it has ended.
func (id ID) Place() (Place, error) { return this.place(id) }

func (k kernel) place(id ID) (p Place, err error) {
	read := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(k.proc, strconv.Itoa(id.PID), name)) // the kernel may not show it
		return strings.TrimSpace(string(b))
	}
	if p.Wait = read("wchan"); p.Wait == "0" {
		p.Wait = ""
	}
	for line := range strings.Lines(read("stack")) { // [<0>] futex_wait_queue+0x6f/0xb0
		_, function, _ := strings.Cut(line, "] ")
		if function, _, _ = strings.Cut(strings.TrimSpace(function), "+"); function != "" {
			p.Stack = append(p.Stack, function)
		}
	}
	s, err := k.of(id) // last: if the process still exists, all of the above was its own
	if err != nil {
		return Place{}, err
	}
	p.State = s.state
	return p, nil
}
