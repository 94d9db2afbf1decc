package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// notes are the comments behind the constants of package lifecycle, by the constant's name: "StateReady".
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
				all[spec.Names[0].Name] = strings.TrimSpace(spec.Comment.Text())
			}
			return true
		})
	}
	return all, nil
}

// of is the note on the constant of a kind ("State") with a stable name ("all_reduce"), or nothing. Go's names are
// these names without the underscores.
func (n notes) of(kind, name string) string {
	for constant, note := range n {
		if strings.EqualFold(constant, kind+strings.ReplaceAll(name, "_", "")) {
			return note
		}
	}
	return ""
}
