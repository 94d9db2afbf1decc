package ccl_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata as they are now")

// TestScenarios plays the transcripts in testdata: a command a line, its recorded output indented below it. All ranks
// do a command at the same time, each on a goroutine of its own that stays the same, and the next command begins when
// all are done. What they answer stands in one line for all ranks that answer the same. "@2" or "@0,1" before a command
// leaves it to these ranks. The commands:
//
//	job ranks=N [nodes=M]                    begins: one process of N ranks, or N processes on M nodes, with TCP between the nodes
//	init COMM [nonblocking]                  InitRank
//	split COMM color=E [key=E] as=NAME       Split; E is a number, none, or a term such as rank%2, rank/2, -rank
//	shrink COMM exclude=R,… [abort] as=NAME  Shrink
//	allreduce|allgather|barrier COMM         makes an operation and shows the result
//	allreduce COMM as=OP                     starts it in the background; "result OP" waits for it
//	group { OPERATION COMM; … }              makes operations in a group; OPERATION may be split, too
//	destroy|finalize|abort|revoke|close|wait|async-error|state|topology COMM
//	live                                     how many communicators there are
//
// Options of all: goroutine=other makes the call from a new goroutine, at=destructor from a function of that name, and
// patience=D bounds the call's context, which else is long enough for everything.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(script))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got == string(script) {
				return
			}
			want, have := strings.Split(string(script), "\n"), strings.Split(got, "\n")
			for i := range max(len(want), len(have)) {
				if line(want, i) != line(have, i) {
					t.Fatalf("%s:%d differs; if that is right, run go test -run TestScenarios -rewrite\nrecorded: %s\nnow:      %s",
						file, i+1, line(want, i), line(have, i))
				}
			}
		})
	}
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(the end)"
}

const indent = "    "

// play runs the commands of a transcript, and returns it with their present outputs.
func play(t *testing.T, transcript string) string {
	p := &player{t: t}
	defer p.stop()
	var out strings.Builder
	for line := range strings.Lines(transcript) {
		if strings.HasPrefix(line, indent) {
			continue
		}
		out.WriteString(line)
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		answers, err := p.do(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, answer := range answers {
			out.WriteString(indent + answer + "\n")
		}
	}
	return out.String()
}

// merged are the answers of the ranks, those that are the same in one line. A rank that was not asked has none.
func merged(answers []string) []string {
	var lines []string
	ranks := map[string][]string{}
	asked := 0
	for r, a := range answers {
		if a == "" {
			continue
		}
		asked++
		if ranks[a] == nil {
			lines = append(lines, a)
		}
		ranks[a] = append(ranks[a], fmt.Sprint(r))
	}
	if len(lines) == 1 && asked == len(answers) {
		return lines
	}
	for i, a := range lines {
		who := "rank "
		if len(ranks[a]) > 1 {
			who = "ranks "
		}
		lines[i] = who + strings.Join(ranks[a], ", ") + ": " + a
	}
	return lines
}

// What differs from run to run, and what is shown instead.
var masks = []struct {
	pattern *regexp.Regexp
	shown   string
}{
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{3}`), "TIME"},
	{regexp.MustCompile(`(waited|expired after) [\d.]+m?s`), "$1 D"},
	{regexp.MustCompile(`\([\w.-]+:\d+\) arrived`), "(HOST:PID) arrived"},
	{regexp.MustCompile(`goroutine \d+`), "goroutine N"},
	{regexp.MustCompile(`(\w+\.go):\d+`), "$1"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`ccl_test\.\(\*member\)\.`), ""},
	{regexp.MustCompile(` on communicator "(\w+)" \(ID, rank -?\d+\)`), " on $1"}, // the line says which rank
}

func mask(s string) string {
	for _, m := range masks {
		s = m.pattern.ReplaceAllString(s, m.shown)
	}
	return strings.ReplaceAll(s, "\n", "; ")
}
