package semconv_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestEveryNameSaysItsStability reads the package's own source: a name whose comment doesn't end in its stability is a
// mistake that no compiler finds.
func TestEveryNameSaysItsStability(t *testing.T) {
	stability := regexp.MustCompile(`(Stable|Development)\.\n$`)
	noName := map[string]bool{ // the schema, the scope, and values of one attribute, which says its stability for them
		"SchemaURL": true, "ScopeName": true, "LinkBirth": true, "LinkParent": true, "LinkChild": true,
		"LinkFirst": true, "LinkCaller": true, "LinkBehind": true,
	}
	constants := constants(t)
	if len(constants) < 70 {
		t.Fatalf("only %d constants found: the test looks at the wrong files", len(constants))
	}
	for _, c := range constants {
		if !noName[c.name] && !stability.MatchString(c.comment) {
			t.Errorf("%s: its comment doesn't end in its stability: %q", c.name, c.comment)
		}
	}
}

// TestNoNameTwice finds constants of one sort that are the same name.
func TestNoNameTwice(t *testing.T) {
	seen := map[string]string{}
	for _, c := range constants(t) {
		sort := "attribute"
		for _, s := range []string{"Label", "Metric", "Span", "Link"} {
			if strings.HasPrefix(c.name, s) {
				sort = s
			}
		}
		if c.value == "" {
			continue // OpenTelemetry's
		}
		if other, twice := seen[sort+c.value]; twice {
			t.Errorf("%s and %s are both %q", other, c.name, c.value)
		}
		seen[sort+c.value] = c.name
	}
}

type constant struct{ name, value, comment string }

// constants are those of the package, from its source.
func constants(t *testing.T) []constant {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []constant
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, spec := range gen.Specs {
				value := spec.(*ast.ValueSpec)
				comment := value.Doc.Text() + value.Comment.Text()
				if comment == "" {
					comment = gen.Doc.Text()
				}
				all = append(all, constant{value.Names[0].Name, literal(value.Values[0]), comment})
			}
		}
	}
	return all
}

// literal is the string in "…" or attribute.Key("…"), "" if it is neither.
func literal(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 1 {
		e = call.Args[0]
	}
	if lit, ok := e.(*ast.BasicLit); ok {
		return strings.Trim(lit.Value, `"`)
	}
	return ""
}

func TestNamesOfActsAndCalls(t *testing.T) {
	named := map[string]bool{}
	for _, c := range constants(t) {
		named[c.value] = strings.HasPrefix(c.name, "Span")
	}
	for act := tape.ActNone; act <= tape.ActLeak; act++ {
		span := semconv.LifeSpan(&tape.LifeRecord{Act: act})
		if !named[span] {
			t.Errorf("LifeSpan of %s = %q, which is no constant", act, span)
		}
		if want := "ccl.comm." + act.String(); span != want && act != tape.ActGroup && act != tape.ActNone {
			t.Errorf("LifeSpan of %s = %q, want %q", act, span, want)
		}
	}
	for _, call := range lifecycle.Calls() {
		want := semconv.SpanUse
		if call.IsOperation() {
			want = "ccl." + call.String()
		}
		if got := semconv.CallSpan(call); got != want {
			t.Errorf("CallSpan(%s) = %q, want %q", call, got, want)
		}
	}
}
