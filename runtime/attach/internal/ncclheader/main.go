// Command ncclheader writes a C header with our own declarations of NCCL's public ABI, from a table of what NCCL's
// versions have.
//
//	ncclheader TABLE FILE
//
// TABLE is nccl-api.tsv: a line for each public function, with the first version that has it and its prototype, and a
// line for each version that has a longer ncclConfig_t than the one before, with its fields. FILE is the header, which
// follows header.h.tmpl. It is run by go generate.
package main

import (
	"bytes"
	_ "embed" // the header's template
	"errors"
	"fmt"
	"os"
	"strings"
	"text/template"
)

//go:embed header.h.tmpl
var headerTemplate string

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: ncclheader TABLE FILE")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "ncclheader:", err)
		os.Exit(1)
	}
}

// api is what the table says.
type api struct {
	Functions []function
	Configs   []config // of each version that made it longer, the oldest first
}

type function struct {
	Name, Result, Params string
	Version              int // the first that has it, as ncclGetVersion tells it
}

// Since is the version with dots.
func (f function) Since() string { return dotted(f.Version) }

type config struct {
	Version int
	Fields  []string // as C declares them
}

// Since is the version with dots.
func (c config) Since() string { return dotted(c.Version) }

// Since is Newest with dots.
func (a api) Since() string { return dotted(a.Newest()) }

// Newest is the version of NCCL that the table knows last.
func (a api) Newest() int { return a.Configs[len(a.Configs)-1].Version }

func generate(table, file string) error {
	text, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	a, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	var header bytes.Buffer
	if err := template.Must(template.New("nccl.h").Parse(headerTemplate)).Execute(&header, a); err != nil {
		return err
	}
	return os.WriteFile(file, header.Bytes(), 0o644)
}

// parse reads the table: tab-separated, with a line of column names; lines that begin with # are comments.
func parse(table string) (a api, err error) {
	for number, line := range strings.Split(strings.TrimSpace(table), "\n") {
		cells := strings.Split(line, "\t")
		if strings.HasPrefix(line, "#") || cells[0] == "kind" {
			continue
		}
		if len(cells) != 5 {
			return a, fmt.Errorf("line %d has %d cells; want 5", number+1, len(cells))
		}
		version, err := versionCode(cells[2])
		if err == nil {
			switch cells[0] {
			case "function":
				err = a.addFunction(cells[1], version, cells[4])
			case "config":
				err = a.addConfig(version, cells[4])
			default:
				err = fmt.Errorf("unknown kind %q", cells[0])
			}
		}
		if err != nil {
			return a, fmt.Errorf("line %d: %w", number+1, err)
		}
	}
	if len(a.Functions) == 0 || len(a.Configs) == 0 {
		return a, errors.New("it has no functions, or no configurations")
	}
	return a, nil
}

// addFunction reads a prototype: "ncclResult_t ncclCommCount(const ncclComm_t comm, int* count)".
func (a *api) addFunction(name string, version int, prototype string) error {
	result, params, ok := strings.Cut(prototype, name+"(")
	if !ok || !strings.HasSuffix(params, ")") {
		return fmt.Errorf("%q is no prototype of %s", prototype, name)
	}
	if params = strings.TrimSuffix(params, ")"); params == "" {
		params = "void"
	}
	a.Functions = append(a.Functions, function{
		Name: name, Result: strings.TrimSpace(result), Params: params, Version: version,
	})
	return nil
}

// addConfig reads a sequence of fields: "size_t size unsigned int magic const char *netName". A field's name is the
// word that no C type has.
func (a *api) addConfig(version int, text string) error {
	c := config{Version: version}
	var field []string
	for _, word := range strings.Fields(text) {
		field = append(field, word)
		switch word {
		case "size_t", "unsigned", "int", "const", "char":
		default:
			c.Fields = append(c.Fields, strings.Join(field, " "))
			field = nil
		}
	}
	if field != nil {
		return fmt.Errorf("%q ends in a type", text)
	}
	if n := len(a.Configs); n > 0 {
		before := a.Configs[n-1].Fields
		if len(before) >= len(c.Fields) || strings.Join(before, ";") != strings.Join(c.Fields[:len(before)], ";") {
			return errors.New("ncclConfig_t is not what it was before, and more")
		}
	}
	a.Configs = append(a.Configs, c)
	return nil
}

// versionCode is what ncclGetVersion answers: 22809 of "2.28.9".
func versionCode(text string) (code int, err error) {
	var major, minor, patch int
	if n, err := fmt.Sscanf(text, "%d.%d.%d", &major, &minor, &patch); n != 3 {
		return 0, fmt.Errorf("%q is no version: %w", text, err)
	}
	return major*10000 + minor*100 + patch, nil
}

func dotted(code int) string { return fmt.Sprintf("%d.%d.%d", code/10000, code/100%100, code%100) }
