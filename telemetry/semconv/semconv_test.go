package semconv_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestEveryNameSaysItsStability reads the package's own source: a name without a comment that ends in its stability, or
// two constants with one meaning, is a mistake that no compiler finds.
func TestEveryNameSaysItsStability(t *testing.T) {
	notTest := func(fi fs.FileInfo) bool { return !strings.HasSuffix(fi.Name(), "_test.go") }
	pkgs, err := parser.ParseDir(token.NewFileSet(), ".", notTest, parser.ParseComments) //nolint:staticcheck // one package, no build tags: ParseDir is right here
	if err != nil {
		t.Fatal(err)
	}
	stability := regexp.MustCompile(`(Stable|Development)\.$`)
	seen := map[string]string{}
	names := 0
	for _, file := range pkgs["semconv"].Files {
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, spec := range gen.Specs {
				value := spec.(*ast.ValueSpec)
				name := value.Names[0].Name
				names++
				if name == "SchemaURL" || name == "ScopeName" || name == "PhaseSeparator" {
					continue
				}
				// A group whose heading says it ("The values of LinkKind.") inherits the stability of what it speaks of.
				comment := value.Doc.Text() + value.Comment.Text() + gen.Doc.Text()
				if !strings.HasPrefix(name, "Link") && !stability.MatchString(strings.TrimSpace(value.Doc.Text()+value.Comment.Text())) &&
					!stability.MatchString(strings.TrimSpace(comment)) {
					t.Errorf("%s: its comment doesn't end in its stability", name)
				}
				if lit, ok := literal(value.Values[0]); ok && !strings.HasPrefix(name, "Link") {
					if other := seen[lit]; other != "" && !strings.HasPrefix(name, "Label") && !strings.HasPrefix(other, "Label") {
						t.Errorf("%s and %s are both %q", name, other, lit)
					}
					seen[lit] = name
				}
			}
		}
	}
	if names < 60 {
		t.Fatalf("only %d constants found: the test looks at the wrong files", names)
	}
}

// literal is the string in "…" or attribute.Key("…").
func literal(e ast.Expr) (string, bool) {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 1 {
		e = call.Args[0]
	}
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return "", false
	}
	return strings.Trim(lit.Value, `"`), true
}

func TestNamesOfActsAndPhases(t *testing.T) {
	acts := map[string]bool{}
	for act := tape.ActInit; act <= tape.ActLeak; act++ {
		name, span := semconv.ActName(act), semconv.ActSpan(act)
		if name == semconv.ActName(tape.ActNone) || acts[name] {
			t.Errorf("act %d has no name of its own: %q", act, name)
		}
		acts[name] = true
		if want := "ccl.comm." + name; span != want && act != tape.ActGroup {
			t.Errorf("ActSpan(%s) = %q, want %q", name, span, want)
		}
	}
	phases := map[string]bool{}
	for phase := tape.PhaseRendezvous; phase <= tape.PhaseFinish; phase++ {
		name := semconv.PhaseName(phase)
		if name == "unknown" || phases[name] {
			t.Errorf("phase %d has no name of its own: %q", phase, name)
		}
		phases[name] = true
	}
}

func TestCallsThatMoveData(t *testing.T) {
	for call := lifecycle.CallAllReduce; call <= lifecycle.CallBarrier; call++ {
		if semconv.Collective(call) == semconv.PointToPoint(call) {
			t.Errorf("%s must be either a collective or point to point", call)
		}
		if got, want := semconv.CallSpan(call), "ccl."+call.String(); got != want {
			t.Errorf("CallSpan(%s) = %q, want %q", call, got, want)
		}
	}
	for call := lifecycle.CallInitRank; call < lifecycle.CallAllReduce; call++ {
		if semconv.Collective(call) || semconv.PointToPoint(call) {
			t.Errorf("%s moves no data", call)
		}
		if got := semconv.CallSpan(call); got != semconv.SpanUse {
			t.Errorf("CallSpan(%s) = %q, want %q", call, got, semconv.SpanUse)
		}
	}
}
