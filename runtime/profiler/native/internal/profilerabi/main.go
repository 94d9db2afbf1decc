// Command profilerabi writes the C header of NCCL's profiler interface: the event descriptors of each version, with
// assertions on every offset and size, an event with the fields of all versions, and the conversions between them.
//
//	profilerabi TABLE FILE
//
// TABLE has a line for each field of each version's descriptor, with its offset and size as they are in NCCL. It is run
// by go generate.
package main

import (
	"bytes"
	_ "embed" // the header's template
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"text/template"
)

//go:embed header.h.tmpl
var headerTemplate string

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: profilerabi TABLE FILE")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "profilerabi:", err)
		os.Exit(1)
	}
}

// types are the kinds of events that have fields of their own, by the member of the descriptor's union that has them,
// in the order of their numbers.
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

// texts and pointers are the fields of 8 bytes that are not numbers.
var (
	texts = []string{
		"name", "func", "datatype", "algo", "proto", "syncStrategy", "kernelVariant", "phaseName",
	}
	pointers = []string{"parentObj", "sendBuff", "recvBuff", "buff", "stream", "parentGroup", "data"}
)

// renamed are fields that have another name in later versions.
var renamed = map[string]string{"nMaxChannels": "nChannels"}

type field struct {
	Name, Event  string // in the descriptor, and in the event
	CType        string
	Offset, Size int
	Coded        bool // a number where later versions have a text
}

type member struct {
	Name, Type string
	Fields     []field
	Missing    []field // that the event has and this version lacks
}

type version struct {
	Name    string
	Size    int
	Common  []field
	Members []member
}

// member is the union's member of that name, nil if the version has none.
func (v *version) member(name string) *member {
	i := slices.IndexFunc(v.Members, func(m member) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &v.Members[i]
}

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
	t, err := template.New("header").Parse(headerTemplate)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, map[string]any{"Versions": versions, "Event": event}); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// read reads the table.
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

// event has the fields of all versions; where they differ, the latest version's.
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
