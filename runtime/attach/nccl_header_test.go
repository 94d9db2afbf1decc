package attach

import (
	_ "embed" // the header's template
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/template"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
)

//go:embed testdata/nccl.h.tmpl
var ncclHeaderTemplate string

// TestNCCLHeaderIsCurrent keeps our own declarations of NCCL's public ABI in step with the table of what its versions
// have. Datadriven's -rewrite writes them again.
func TestNCCLHeaderIsCurrent(t *testing.T) {
	datadriven.RunTestFromString(t, "nccl.h\n----\n", func(t *testing.T, d *datadriven.TestData) string {
		table, err := os.ReadFile("nccl-api.tsv")
		if err != nil {
			t.Fatal(err)
		}
		a, err := parse(string(table))
		if err != nil {
			t.Fatal(err)
		}
		var current strings.Builder
		if err := template.Must(template.New("").Parse(ncclHeaderTemplate)).Execute(&current, a); err != nil {
			t.Fatal(err)
		}
		if d.Rewrite {
			if err := os.WriteFile(d.Cmd, []byte(current.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		recorded, err := os.ReadFile(d.Cmd)
		if err != nil {
			t.Fatal(err)
		}
		return cmp.Diff(strings.Split(string(recorded), "\n"), strings.Split(current.String(), "\n"))
	})
}

const (
	count  = "function\tncclCommCount\t2.18.1\t2.31.2\tncclResult_t ncclCommCount(const ncclComm_t comm, int* count)\n"
	first  = "config\tncclConfig_t\t2.18.1\t\tsize_t size unsigned int magic const char *netName\n"
	longer = "config\tncclConfig_t\t2.26.2\t\tsize_t size unsigned int magic const char *netName int trafficClass\n"
)

func TestParse(t *testing.T) {
	a, err := parse("# comment\nkind\tname\tfirst\tlast\ttext\n" + count + first + longer)
	if err != nil {
		t.Fatal(err)
	}
	f := a.Functions[0]
	if f.Result != "ncclResult_t" || f.Params != "const ncclComm_t comm, int* count" || f.Version != 21801 {
		t.Errorf("the function is %+v", f)
	}
	if got := strings.Join(a.Configs[1].Fields, "; "); got !=
		"size_t size; unsigned int magic; const char *netName; int trafficClass" {
		t.Errorf("the fields are %s", got)
	}
	if a.Newest() != 22602 || a.Since() != "2.26.2" {
		t.Errorf("the newest version is %d, %s", a.Newest(), a.Since())
	}
}

func TestParseRefuses(t *testing.T) {
	for table, want := range map[string]string{
		count: "no functions, or no configurations",
		count + "config\tncclConfig_t\t2.18.1\t\n":                              "has 3 cells",
		count + "config\tncclConfig_t\tnew\t\tint size\n":                       "is no version",
		count + "config\tncclConfig_t\t2.18.1\t\tint size int\n":                "ends in a type",
		count + longer + first:                                                  "not what it was before",
		"macro\tNCCL_X\t2.18.1\t\t1\n":                                          "unknown kind",
		"function\tncclSend\t2.18.1\t2.31.2\tncclResult_t ncclRecv(int peer)\n": "no prototype of ncclSend",
	} {
		if _, err := parse(table); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", table, err, want)
		}
	}
}

// api is the content of the table. The table has a line for each public function, with the first version that has it
// and its prototype, and a line for each version with a longer ncclConfig_t than the one before, with its fields.
type api struct {
	Functions []function
	Configs   []config // of each version that made it longer, the oldest first
}

type function struct {
	Name, Result, Params string
	Version              int // the first version that has it, as from ncclGetVersion
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

// Newest is the newest version of NCCL in the table.
func (a api) Newest() int { return a.Configs[len(a.Configs)-1].Version }

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

// versionCode is the answer of ncclGetVersion: 22809 for "2.28.9".
func versionCode(text string) (code int, err error) {
	var major, minor, patch int
	if n, err := fmt.Sscanf(text, "%d.%d.%d", &major, &minor, &patch); n != 3 {
		return 0, fmt.Errorf("%q is no version: %w", text, err)
	}
	return major*10000 + minor*100 + patch, nil
}

func dotted(code int) string { return fmt.Sprintf("%d.%d.%d", code/10000, code/100%100, code%100) }
