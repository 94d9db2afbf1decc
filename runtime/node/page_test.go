package node_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
)

// TestVariablesPage: README.md has a row for each variable, with its field's comment. Datadriven's -rewrite updates the
// rows.
func TestVariablesPage(t *testing.T) {
	datadriven.RunTestFromString(t, "README.md\n----\n", func(t *testing.T, d *datadriven.TestData) string {
		recorded, err := os.ReadFile(d.Cmd)
		if err != nil {
			t.Fatal(err)
		}
		current := current(t, string(recorded))
		if d.Rewrite {
			if err := os.WriteFile(d.Cmd, []byte(current), 0o600); err != nil {
				t.Fatal(err)
			}
			return ""
		}
		return cmp.Diff(strings.Split(string(recorded), "\n"), strings.Split(current, "\n"))
	})
}

// current returns the page with current tables.
func current(t *testing.T, page string) string {
	t.Helper()
	const begin = "<!-- The tables are made from the fields' tags and comments: go generate. -->\n"
	const end = "<!-- That is all. -->\n"
	before, _, begun := strings.Cut(page, begin)
	_, after, ended := strings.Cut(page, end)
	if !begun || !ended {
		t.Fatal("the page has no place for the tables")
	}
	var b strings.Builder
	b.WriteString(before + begin)
	for _, s := range []struct{ title, file, name string }{
		{"The process's place in its job", "../rendezvous/launch/world.go", "World"},
		{"The process", "config.go", "Config"},
		{"How ranks reach each other", "../transport/fabric/config.go", "Config"},
		{"Clients of the health endpoint", "../../health/access.go", "Access"},
		{"Finding out what holds the job up", "config.go", "RAS"},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| variable | meaning |\n|---|---|\n%s", s.title, rows(t, s.file, s.name))
	}
	return b.String() + end + after
}

// rows returns the rows of a struct's tagged fields.
func rows(t *testing.T, file, name string) string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != name {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			if field.Tag == nil {
				continue
			}
			tag, err := strconv.Unquote(field.Tag.Value)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, key := range []string{"env", "nccl", "file"} {
				if name := reflect.StructTag(tag).Get(key); name != "" && name != "-" {
					names = append(names, "`"+name+"`")
				}
			}
			if len(names) == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(names, ", "), meaning(field))
		}
		return false
	})
	return b.String()
}

// meaning is a field's comment without the field's name: "Tape is where …" becomes "Where …".
func meaning(field *ast.Field) string {
	text := strings.Join(strings.Fields(field.Doc.Text()), " ")
	text = strings.TrimPrefix(text, field.Names[0].Name+" ")
	for _, verb := range []string{"is ", "are "} {
		text = strings.TrimPrefix(text, verb)
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + strings.ReplaceAll(text[size:], "|", `\|`)
}
