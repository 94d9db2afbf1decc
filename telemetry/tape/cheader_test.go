package tape

import (
	"bytes"
	_ "embed" // the header's template
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"
	"unicode"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
)

//go:embed testdata/tape_layout.h.tmpl
var cHeaderTemplate string

// The layout for writers in C is current: it has this package's numbers.
func TestCHeaderIsCurrent(t *testing.T) {
	datadriven.RunTestFromString(t, "../../runtime/attach/tape_layout.h\n----\n",
		func(t *testing.T, d *datadriven.TestData) string {
			recorded, err := os.ReadFile(d.Cmd)
			if err != nil && !d.Rewrite {
				t.Fatal(err)
			}
			current := headerForC(t)
			if d.Rewrite {
				if err := os.WriteFile(d.Cmd, []byte(current), 0o644); err != nil {
					t.Fatal(err)
				}
				return ""
			}
			return cmp.Diff(strings.Split(string(recorded), "\n"), strings.Split(current, "\n"))
		})
}

// A C compiler lays the structs out as Go does.
func TestCHeaderCompiles(t *testing.T) {
	unit := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(unit, []byte(headerForC(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
		"-fsyntax-only", unit)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

type (
	cNumber struct {
		Name  string
		Value uint64
	}
	cNumbers struct {
		Says string
		All  []cNumber
	}
	cStruct struct {
		Name   string
		Size   uintptr
		Fields []cField
	}
	cField struct {
		Decl, Name string // without a Name: padding
		Offset     uintptr
	}
)

func headerForC(t *testing.T) string {
	t.Helper()
	numbered := func(prefix string, names []string) (all []cNumber) {
		for i, name := range names {
			all = append(all, cNumber{prefix + strings.ToUpper(name), uint64(i)})
		}
		return all
	}
	var collectives uint64
	for _, call := range lifecycle.Calls() {
		if call.IsCollective() {
			collectives |= 1 << call
		}
	}
	operations := slices.DeleteFunc(lifecycle.Calls(), func(c lifecycle.Call) bool { return !c.IsOperation() })
	data := map[string]any{
		"Magic": magic,
		"Numbers": []cNumbers{
			{"Sizes, in bytes but for the last two.", []cNumber{
				{"HEADER_SIZE", headerSize},
				{"SLOT_SIZE", slotSize},
				{"TALLY_SIZE", tallySize},
				{"RECORD_SIZE", recordSize},
				{"PAGE_SIZE", pageSize},
				{"RECORD_WORDS", recordWords},
				{"PAGE_WORDS", pageWords},
			}},
			{"A slot's marks, its last one, the ranks with which messages are counted, and the bytes of both; slots\n" +
				"    that have them, and the multiple at which parts begin.", []cNumber{
				{"MARKS_PER_SLOT", marksPerSlot},
				{"WAIT_AT", waitAt},
				{"MAX_PEERS", maxPeers},
				{"MARKS_SIZE", marksSize},
				{"MAX_MARKED", maxMarked},
				{"REACHED_ALIGN", reachedAlign},
			}},
			{"Lengths of texts, a NUL at the end included.", []cNumber{
				{"ENGINE_SIZE", engineSize},
				{"NAME_SIZE", nameSize},
				{"BOOT_SIZE", maxBootID + 1},
			}},
			{"What else the header says, and where what changes in it is.", []cNumber{
				{"FORMAT_VERSION", formatVersion},
				{"CHANGING_AT", changingAt},
				{"STATE_LIVE", stateLive},
				{"STATE_CLOSED", stateClosed},
			}},
			{"How many of each part, by default, and how that is made less where there is no room.", []cNumber{
				{"DEFAULT_SLOTS", defaultSlots},
				{"DEFAULT_TALLIES", defaultTallies},
				{"DEFAULT_LIFE_RECORDS", defaultLifeRecords},
				{"DEFAULT_OP_RECORDS", defaultOpRecords},
				{"RECORDS_PER_PAGE", recordsPerPage},
				{"MIN_RING", minRing},
				{"MOST_HALVINGS", mostHalvings},
				{"MIN_SIZE", MinSize},
				{"ROOM_SHARE", roomShare},
				{"SMALLER", smaller},
			}},
			{"What readers are given, and how often the clocks are compared; times in ns.", []cNumber{
				{"DEFAULT_SAMPLE_EVERY", DefaultSampleEvery},
				{"DEFAULT_SLOW", uint64(defaultSlow)},
				{"REFRESH_EVERY", uint64(refreshEvery)},
				{"CLOCK_SET", uint64(clockSet)},
			}},
			{"Operations of a communicator that are in flight: known, and told of by a slot.", []cNumber{
				{"MAX_PENDING", maxPending},
				{"MAX_IN_FLIGHT", maxInFlight},
			}},
			{"Kinds of a record.", []cNumber{
				{"KIND_OP", kindOp},
				{"KIND_LIFE", kindLife},
				{"KIND_COMM", kindComm},
				{"KIND_COMM_END", kindCommEnd},
				{"KIND_CONTINUE", kindContinue},
				{"KIND_TALLIED", kindTallied},
				{"KIND_ORDINARY", kindOrdinary},
				{"KIND_MARK", kindMark},
				{"KIND_WAIT", kindWait},
			}},
			{"Words of a record.", []cNumber{
				{"REC_MARKER", recMarker},
				{"REC_TIME", recTime},
				{"REC_SEQ", recSeq},
				{"REC_KINDS", recKinds},
				{"REC_RANKS", recRanks},
				{"REC_BYTES", recBytes},
				{"REC_START", recStart},
				{"REC_COMM", recComm},
				{"REC_LIFE_OP_HEAD", recLifeOpHead},
				{"REC_LIFE_KINDS", recLifeKinds},
				{"REC_LIFE_PEER", recLifePeer},
				{"REC_LIFE_SEQ", recLifeSeq},
				{"REC_MARK_RANKS", recMarkRanks},
				{"REC_MARK_LAUNCHED", recMarkLaunched},
			}},
			{"The lower half of a repeat on a page.", []cNumber{
				{"REPEAT_BIT", repeatBit},
				{"MAX_REPEAT", maxRepeat},
			}},
			{"Fields of a tail.", []cNumber{
				{"TAIL_TEXT", tailText},
				{"TAIL_SITE", tailSite},
				{"TAIL_FIRST", tailFirst},
				{"TAIL_CHILD", tailChild},
				{"TAIL_OPS", tailOps},
				{"TAIL_ID", tailID},
				{"TAIL_PARENT", tailParent},
				{"TAIL_NAME", tailName},
				{"TAIL_ENGINE", tailEngine},
				{"TAIL_SHAPE", tailShape},
				{"TAIL_SHARED", tailShared},
				{"TAIL_ROOT", tailRoot},
				{"TAIL_COUNTS", tailCounts},
				{"TAIL_TIMES", tailTimes},
				{"TAIL_PER_RECORD", tailPerRecord},
				{"MAX_TAIL", maxTail},
				{"MAX_TEXT", maxText},
				{"MAX_SITE", maxSite},
				{"SITE_FIXED", siteFixed},
			}},
			{"Calls that are operations have numbers from the first on. Collectives are the bits of a set.", []cNumber{
				{"FIRST_OPERATION", uint64(operations[0])},
				{"NUM_OPERATIONS", uint64(len(operations))},
				{"COLLECTIVES", collectives},
			}},
			{"Buckets of a tally.", []cNumber{
				{"DURATION_BUCKETS", DurationBuckets},
				{"BANDWIDTH_BUCKETS", BandwidthBuckets},
				{"SIZE_CLASSES", SizeClasses},
			}},
			{"Acts: what in a communicator's life is worth a span.", numbered("ACT_", actNames[:])},
			{"Stages: which moment of an act or operation a record is about.", numbered("STAGE_", stageNames[:])},
			{"Phases of an act or operation.", numbered("PHASE_", phaseNames[:])},
			{"Kinds of unexpected calls to the profiler plug-in, and how many kinds there are.", append(
				numbered("UNEXPECTED_", unexpectedNames[:]), cNumber{"UNEXPECTED_KINDS", uint64(len(unexpectedNames))},
			)},
		},
		"Structs": []cStruct{
			cStructOf[static](), cStructOf[clockPair](), cStructOf[changing](), cStructOf[header](),
			cStructOf[operation](), cStructOf[counters](), cStructOf[commState](), cStructOf[shownPlace](),
			cStructOf[slot](), cStructOf[tallied](), cStructOf[tally](),
		},
	}
	tmpl, err := template.New("header").Parse(cHeaderTemplate)
	if err != nil {
		t.Fatal(err)
	}
	var header bytes.Buffer
	if err := tmpl.Execute(&header, data); err != nil {
		t.Fatal(err)
	}
	return header.String()
}

func cStructOf[T any]() cStruct {
	of := reflect.TypeFor[T]()
	s := cStruct{Name: cName(of.Name()), Size: of.Size()}
	for i := range of.NumField() {
		f := of.Field(i)
		name := cName(f.Name)
		if name == "_" {
			s.Fields = append(s.Fields, cField{Decl: cDecl(f.Type, "reserved_"+string(rune('a'+i)))})
			continue
		}
		s.Fields = append(s.Fields, cField{cDecl(f.Type, name), name, f.Offset})
	}
	return s
}

// cName converts a name to C's style: op_head for opHead.
func cName(name string) string {
	if name == "static" { // which means something else in C
		return "fixed"
	}
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(name[i-1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// cDecl declares a field of a type.
func cDecl(of reflect.Type, name string) string {
	switch of.Kind() {
	case reflect.Array:
		return fmt.Sprintf("%s[%d]", cDecl(of.Elem(), name), of.Len())
	case reflect.Struct:
		if of.Name() != "" {
			return "struct layout_" + cName(of.Name()) + " " + name
		}
		var fields []string
		for i := range of.NumField() {
			fields = append(fields, cDecl(of.Field(i).Type, cName(of.Field(i).Name))+"; ")
		}
		return "struct { " + strings.Join(fields, "") + "} " + name
	case reflect.Float64:
		return "double " + name
	default:
		return of.Kind().String() + "_t " + name
	}
}
