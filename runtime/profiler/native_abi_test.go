package profiler_test

import (
	"bytes"
	_ "embed" // the header's template
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
)

const (
	abiTable  = "native/nccl-profiler-abi.tsv"
	abiHeader = "native/profiler_abi.h"
)

//go:embed testdata/profiler_abi.h.tmpl
var abiTemplate string

// TestABIHeaderIsCurrent compares the C header of NCCL's profiler interface with the one generated from its table: each
// version's event descriptor, with assertions on every offset and size, an event with the fields of all versions, and
// the conversions between them. Datadriven's -rewrite writes it anew.
func TestABIHeaderIsCurrent(t *testing.T) {
	datadriven.RunTestFromString(t, abiHeader+"\n----\n", func(t *testing.T, d *datadriven.TestData) string {
		file := filepath.Join(t.TempDir(), "again.h")
		if d.Rewrite {
			file = d.Cmd
		}
		if err := generate(abiTable, file); err != nil {
			t.Fatal(err)
		}
		return cmp.Diff(lines(t, d.Cmd), lines(t, file))
	})
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// TestABIHeaderHolds compiles the header with each available compiler, including the one for arm64 if it is installed.
func TestABIHeaderHolds(t *testing.T) {
	for _, cc := range []string{"gcc", "clang", "aarch64-linux-gnu-gcc"} {
		if _, err := exec.LookPath(cc); err != nil {
			if cc == "gcc" {
				t.Fatalf("the tests need gcc: %v", err)
			}
			continue
		}
		if out, err := compile(t, cc, abiHeader); err != nil {
			t.Errorf("%s: %v\n%s", cc, err, out)
		}
	}
}

// TestABIAssertionsBite changes an offset and a size in the table: the resulting header must not compile.
func TestABIAssertionsBite(t *testing.T) {
	text, err := os.ReadFile(abiTable)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"v5\tcollApi\tstream\t56\t8", "v5\tcollApi\tstream\t64\t8", "collApi.stream in v5"},
		{"v4\tp2p\tpeer\t56\t4", "v4\tp2p\tpeer\t56\t8", "p2p.nChannels in v4"},
		{"v7\t-\tsizeof\t0\t136", "v7\t-\tsizeof\t0\t128", "size in v7"},
	} {
		changed := strings.Replace(string(text), c.from, c.to, 1)
		if changed == string(text) {
			t.Fatalf("the table has no %q", c.from)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "table.tsv"), []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		header := filepath.Join(dir, "profiler_abi.h")
		if err := generate(filepath.Join(dir, "table.tsv"), header); err != nil {
			t.Fatal(err)
		}
		if out, err := compile(t, "gcc", header); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("with %q, gcc says %v and not %q:\n%s", c.to, err, c.want, out)
		}
	}
}

// TestBadABITable reads invalid tables.
func TestBadABITable(t *testing.T) {
	const head = "kind\tversion\tunion_member\tfield\toffset_bytes\tsize_bytes\n"
	for _, c := range []struct{ lines, want string }{
		{"descr\tv1\t-\ttype\t0\t1\n", "v1 has no size before its fields"},
		{"descr\tv1\t-\tsizeof\t0\tmany\n", "no number"},
		{"descr\tv1\t-\tsizeof\t0\t8\ndescr\tv1\tgraph\tid\t0\t8\n", "no type of events is known for graph"},
		{"descr\tv1\t-\tsizeof\t0\t8\ndescr\tv1\t-\ttype\t0\t3\n", "type has 3 bytes"},
	} {
		file := filepath.Join(t.TempDir(), "table.tsv")
		if err := os.WriteFile(file, []byte(head+c.lines), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := generate(file, file+".h"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %q", c.lines, err, c.want)
		}
	}
}

// compile compiles a header.
func compile(t *testing.T, cc, header string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cc, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion",
		"-Wshadow", "-Werror", "-Wno-unused-function", "-Inative", "-fsyntax-only", "-x", "c", "-include", header,
		os.DevNull)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// types are the kinds of events with their own fields, by their member of the descriptor's union, in the order of their
// numbers.
var types = []struct {
	Member, Type string
}{
	{"coll", "COLL"},
	{"p2p", "P2P"},
	{"proxyOp", "PROXY_OP"},
	{"proxyStep", "PROXY_STEP"},
	{"kernelCh", "KERNEL_CH"},
	{"netPlugin", "NET_PLUGIN"},
	{"groupApi", "GROUP_API"},
	{"collApi", "COLL_API"},
	{"p2pApi", "P2P_API"},
	{"kernelLaunch", "KERNEL_LAUNCH"},
	{"ceColl", "CE_COLL"},
	{"ceCollSync", "CE_SYNC"},
	{"ceCollBatch", "CE_BATCH"},
	{"kernelPhase", "KERNEL_PHASE"},
}

// texts and pointers are the 8-byte fields that are not numbers.
var (
	texts = []string{
		"name", "func", "datatype", "algo", "proto", "syncStrategy", "kernelVariant", "phaseName",
	}
	pointers = []string{"parentObj", "sendBuff", "recvBuff", "buff", "stream", "parentGroup", "data"}
)

// renamed are fields with another name in later versions.
var renamed = map[string]string{"nMaxChannels": "nChannels"}

type field struct {
	Name, Event  string // name in the descriptor, and in the event
	CType        string
	Offset, Size int
	Coded        bool // a number here, a text in later versions
}

type member struct {
	Name, Type string
	Fields     []field
	Missing    []field // fields that the event has and this version lacks
}

type version struct {
	Name    string
	Size    int
	Common  []field
	Members []member
}

// member returns the union's member of that name, nil if the version has none.
func (v *version) member(name string) *member {
	i := slices.IndexFunc(v.Members, func(m member) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &v.Members[i]
}

// generate generates the header from a table, which has a line for each field of each version's descriptor.
func generate(table, file string) error {
	versions, err := read(table)
	if err != nil {
		return err
	}
	event := event(versions)
	for i := range versions {
		for j := range versions[i].Members {
			m := &versions[i].Members[j]
			for _, f := range event.member(m.Name).Fields {
				if !slices.ContainsFunc(m.Fields, func(has field) bool { return has.Event == f.Name }) {
					m.Missing = append(m.Missing, f)
				}
			}
		}
	}
	t, err := template.New("header").Parse(abiTemplate)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, map[string]any{"Versions": versions, "Event": event}); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// read parses the table.
func read(table string) ([]version, error) {
	f, err := os.Open(table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	r := csv.NewReader(f)
	r.Comma, r.FieldsPerRecord = '\t', 6
	lines, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", table, err)
	}
	var versions []version
	for n, line := range lines[1:] {
		offset, err := strconv.Atoi(line[4])
		size, err2 := strconv.Atoi(line[5])
		if err != nil || err2 != nil {
			return nil, fmt.Errorf("%s: line %d: an offset or size that is no number", table, n+2)
		}
		name, inUnion, f := line[1], line[2], line[3]
		if f == "sizeof" {
			versions = append(versions, version{Name: name, Size: size})
			continue
		}
		if len(versions) == 0 || versions[len(versions)-1].Name != name {
			return nil, fmt.Errorf("%s: line %d: %s has no size before its fields", table, n+2, name)
		}
		v := &versions[len(versions)-1]
		has, err := newField(f, offset, size)
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", table, n+2, err)
		}
		if inUnion == "-" {
			v.Common = append(v.Common, has)
			continue
		}
		if v.member(inUnion) == nil {
			i := slices.IndexFunc(types, func(t struct{ Member, Type string }) bool { return t.Member == inUnion })
			if i < 0 {
				return nil, fmt.Errorf("%s: line %d: no type of events is known for %s", table, n+2, inUnion)
			}
			v.Members = append(v.Members, member{Name: inUnion, Type: types[i].Type})
		}
		m := v.member(inUnion)
		m.Fields = append(m.Fields, has)
	}
	return versions, nil
}

func newField(name string, offset, size int) (field, error) {
	f := field{Name: name, Event: name, Offset: offset, Size: size}
	if later, ok := renamed[name]; ok {
		f.Event = later
	}
	switch {
	case size == 1:
		f.CType, f.Coded = "uint8_t ", slices.Contains(texts, name)
	case size == 4:
		f.CType = "int32_t "
	case size == 8 && slices.Contains(texts, name):
		f.CType = "const char *"
	case size == 8 && slices.Contains(pointers, name):
		f.CType = "void *"
	case size == 8:
		f.CType = "uint64_t "
	default:
		return f, fmt.Errorf("%s has %d bytes, and no type in C", name, size)
	}
	return f, nil
}

// event has the fields of all versions; if they differ, the latest version's.
func event(versions []version) version {
	all := version{Name: "event"}
	for _, t := range types {
		m := member{Name: t.Member, Type: t.Type}
		for _, v := range slices.Backward(versions) {
			has := v.member(t.Member)
			if has == nil {
				continue
			}
			for _, f := range has.Fields {
				if !slices.ContainsFunc(m.Fields, func(known field) bool { return known.Name == f.Event }) {
					f.Name = f.Event
					m.Fields = append(m.Fields, f)
				}
			}
		}
		all.Members = append(all.Members, m)
	}
	return all
}
