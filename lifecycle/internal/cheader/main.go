// Command cheader writes the C header of package lifecycle: its states, calls, events, codes and tables, for programs
// that keep a communicator's rules without Go.
//
//	cheader DIR FILE
//
// DIR is the source of package lifecycle, where the constants' comments are; everything else comes from the package
// itself. FILE is the header, which follows header.h.tmpl. It is run by go generate.
package main

import (
	"bytes"
	_ "embed" // the header's template
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/carillon-rt/carillon/lifecycle"
)

//go:embed header.h.tmpl
var headerTemplate string

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: cheader DIR FILE")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "cheader:", err)
		os.Exit(1)
	}
}

// stay is the cell of a table that is legal and changes no state. It lies above all states and below all errors' codes.
const stay = 99

// kind is a sort of numbers: states, calls, events or codes.
type kind struct {
	Name, Says string
	Holder     string // The C type is an integer and not the enum, so that a later version's number is a value, too.
	All        []constant
}

type constant struct {
	Name, Note   string
	Number, NCCL int
}

// table has a line for each call or event, in which each state has a cell.
type table struct {
	Says, Rows string
	Lines      []string
}

func generate(dir, file string) error {
	n, err := readNotes(dir)
	if err != nil {
		return fmt.Errorf("read the comments of package lifecycle: %w", err)
	}
	calls := append([]lifecycle.Call{lifecycle.CallNone}, lifecycle.Calls()...)
	events := append([]lifecycle.Event{lifecycle.EventNone}, lifecycle.Events()...)
	data := map[string]any{
		"Kinds": []kind{
			{"state", "Where a communicator is in its life.", "uint8_t", constants(n, "State", lifecycle.States())},
			{"call", "Something that a user does to a communicator.", "uint8_t", constants(n, "Call", calls)},
			{
				"event", "Something that the runtime makes happen to a communicator.", "uint8_t",
				constants(n, "Event", events),
			},
			{"code", "The stable number of an error.", "uint16_t", constants(n, "Code", lifecycle.Codes())},
		},
		"Tables": []table{
			{
				"What becomes of a communicator that is in a state (column) when its user makes a call (row).", "call",
				lines(calls, lifecycle.Next),
			},
			{
				"What becomes of a communicator that is in a state (column) when something happens (row). No event " +
					"is an error.",
				"event", lines(events, func(s lifecycle.State, e lifecycle.Event) (lifecycle.State, lifecycle.Code) {
					return lifecycle.After(s, e), lifecycle.CodeOK
				}),
			},
		},
		"Stay": stay, "NCCLInternal": lifecycle.CodeInternal.NCCL(),
	}
	t, err := template.New("header").Funcs(template.FuncMap{"upper": strings.ToUpper}).Parse(headerTemplate)
	if err != nil {
		return err
	}
	var header bytes.Buffer
	if err := t.Execute(&header, data); err != nil {
		return err
	}
	return os.WriteFile(file, header.Bytes(), 0o644)
}

// number is a State, Call, Event or Code.
type number interface {
	~uint8 | ~uint16
	fmt.Stringer
}

func constants[T number](n notes, kind string, all []T) []constant {
	list := make([]constant, len(all))
	for i, v := range all {
		list[i] = constant{v.String(), n.of(kind, v.String()), int(v), lifecycle.Code(v).NCCL()}
	}
	return list
}

// lines are a table's, below one with the states' numbers.
func lines[T number](rows []T, next func(lifecycle.State, T) (lifecycle.State, lifecycle.Code)) []string {
	width := 0
	for _, row := range rows {
		width = max(width, len(row.String()))
	}
	head := fmt.Sprintf("/* %-*s ", width, "state")
	for _, s := range lifecycle.States() {
		head += fmt.Sprintf("%5d", s)
	}
	all := []string{head + " */"}
	for _, row := range rows {
		var cells []string
		for _, s := range lifecycle.States() {
			to, code := next(s, row)
			cell := int(to)
			switch {
			case code != lifecycle.CodeOK:
				cell = int(code)
			case to == s:
				cell = stay
			}
			cells = append(cells, fmt.Sprintf("%3d", cell))
		}
		all = append(all, fmt.Sprintf("/* %-*s */ {%s},", width, row, strings.Join(cells, ", ")))
	}
	return all
}

// notes are the comments behind the constants of package lifecycle, by the constant's name in lower case.
type notes map[string]string

// readNotes reads them from the package's source in dir.
func readNotes(dir string) (notes, error) {
	all := notes{}
	for _, name := range []string{"state.go", "code.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && spec.Comment != nil {
				all[strings.ToLower(spec.Names[0].Name)] = strings.TrimSpace(spec.Comment.Text())
			}
			return true
		})
	}
	return all, nil
}

// of is the note on the constant of a kind ("State") with a stable name ("all_reduce"), or nothing. Go's names are
// these names without the underscores.
func (n notes) of(kind, name string) string {
	return n[strings.ToLower(kind)+strings.ReplaceAll(name, "_", "")]
}
