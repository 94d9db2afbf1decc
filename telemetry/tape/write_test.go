package tape

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// What is written comes back, field by field.
func TestRoundTrip(t *testing.T) {
	w := newTape(t, Config{})
	info := CommInfo{
		ID: lifecycle.CommID{1, 2}, Parent: lifecycle.CommID{3}, Name: "tensor-parallel", Rank: 3, Size: 8, Nodes: 2,
		Engine: "host",
	}
	c := w.Comm(info)
	c.State(lifecycle.StateReady)
	life := LifeRecord{
		Time: Now(), Act: ActSplit, Call: lifecycle.CallSplit, Stage: StageMisuse, Seq: 7, Start: Now(),
		Phase: PhaseConnect, Code: lifecycle.CodeDestroyed, State: lifecycle.StateReady, Peer: 2, Text: "übel",
		Site: lifecycle.Site{
			Func: "main.train", File: "/src/train.go", Line: 12, Goroutine: 7, Time: time.Unix(1, 2),
		},
		First:  lifecycle.Site{Func: "main.stop", File: "/src/stop.go", Line: 1},
		Caller: SpanContext{TraceID: [16]byte{1, 15: 2}, SpanID: [8]byte{3, 7: 4}, Flags: 1},
		Child:  lifecycle.CommID{5}, Ops: 9, Shared: true,
	}
	c.Life(life)
	sig := Signature{Call: lifecycle.CallBroadcast, DataType: 7, Reduction: 4, Peer: 5, Bytes: 1 << 40}
	seq := c.Start(0, sig, 3)
	c.Phase(PhaseTransfer)
	c.Wait(6)
	c.Wait(6) // says nothing new
	c.Wait(-1)
	c.End(seq, lifecycle.CodeTimeout)
	c.End(seq, lifecycle.CodeOK) // has ended

	r := openTape(t, w.Path())
	events := all(t, r)
	var start int64
	for i := range events { // times are the writer's own; only their order can be checked
		ev := &events[i]
		if diff := cmp.Diff(info, ev.Comm); diff != "" || ev.Slot != 0 || ev.Generation != 1 {
			t.Errorf("event %d is of slot %d, generation %d (-want +got):\n%s", i, ev.Slot, ev.Generation, diff)
		}
		if ev.IsLife {
			continue
		}
		if i > 1 && ev.Op.Time < events[i-1].Op.Time {
			t.Errorf("event %d is earlier than the one before", i)
		}
		if ev.Op.Stage == StageStart {
			start = ev.Op.Time
		}
		if ev.Op.Start != start {
			t.Errorf("event %d says that it began at %d, it was %d", i, ev.Op.Start, start)
		}
		ev.Op.Time, ev.Op.Start = 0, 0
	}
	op := func(stage Stage, phase Phase, wait int32, code lifecycle.Code) Event {
		return Event{
			Comm: info, Generation: 1, Root: 1,
			Op: OpRecord{Stage: stage, Seq: 1, Signature: sig, Algorithm: 3, Phase: phase, Wait: wait, Code: code},
		}
	}
	want := []Event{
		{Comm: info, Generation: 1, Root: 1, IsLife: true, Life: life},
		op(StageStart, PhaseNone, -1, 0),
		op(StagePhase, PhaseTransfer, -1, 0),
		op(StageWait, PhaseTransfer, 6, 0),
		op(StageWait, PhaseTransfer, -1, 0),
		op(StageEnd, PhaseTransfer, -1, lifecycle.CodeTimeout),
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if m := r.Missed(); m != (Missed{}) {
		t.Errorf("missed %+v", m)
	}
}

// The slot follows the operation that runs: the oldest in flight.
func TestSlot(t *testing.T) {
	w := newTape(t, Config{})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "a", Size: 2})
	r := openTape(t, w.Path())
	want := Slot{CommInfo: CommInfo{ID: lifecycle.CommID{1}, Name: "a", Size: 2}, Generation: 1, Root: 1, Wait: -1}
	want.Counted = true
	check := func(moment string) Slot {
		t.Helper()
		slots, err := r.AppendSlots(nil)
		if err != nil || len(slots) != 1 {
			t.Fatalf("%s: %d slots, %v", moment, len(slots), err)
		}
		got := slots[0]
		want.OpStart, want.LastEnd, want.WaitSince = got.OpStart, got.LastEnd, got.WaitSince
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", moment, diff)
		}
		return got
	}
	check("at first")

	c.State(lifecycle.StateReady)
	want.State = lifecycle.StateReady
	check("ready")

	place := Place{Node: 3, Local: 2, Locals: 4, Connections: 4, PXN: PXNOn}
	c.Describe(CommInfo{ID: lifecycle.CommID{1}, Name: "b", Size: 2, Nodes: 1, Engine: "host", Place: place})
	want.Name, want.Nodes, want.Engine, want.Place = "b", 1, "host", place
	check("described")

	before := Now()
	one := Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1}
	two := Signature{Call: lifecycle.CallSend, Peer: 1, Bytes: 2}
	c.Start(41, one, 1)
	want.Launched, want.Begun, want.Seq, want.Op, want.Algorithm = 1, 41, 41, one, 1
	if s := check("started"); s.OpStart < before || s.OpStart > Now() {
		t.Errorf("it started at %d, which is not between %d and now", s.OpStart, before)
	}
	c.Phase(PhaseAgree)
	c.Wait(1)
	want.Phase, want.Wait = PhaseAgree, 1
	if s := check("waiting"); s.WaitSince < s.OpStart {
		t.Errorf("it waits since %d, before it started at %d", s.WaitSince, s.OpStart)
	}
	c.Start(0, two, 2)
	want.Launched = 2
	check("second launched: the first still runs")

	c.End(2, 0)
	check("second ended first: the first still runs")

	c.End(1, 0)
	want.Completed, want.Done, want.Seq, want.Op, want.Algorithm = 2, 41, 2, two, 2
	want.Phase, want.Wait = PhaseNone, -1
	if s := check("both ended"); s.LastEnd < s.OpStart || s.WaitSince != 0 {
		t.Errorf("the last end is %d, the start %d, waiting since %d", s.LastEnd, s.OpStart, s.WaitSince)
	}
	c.End(3, 0)
	c.Wait(1)
	c.Phase(PhaseAgree)
	check("what is not in flight can't change")

	c.Close()
	c.Close()
	if slots := r.Slots(); len(slots) != 0 {
		t.Errorf("closed, and still there: %+v", slots)
	}
}

// If more operations are in flight than the writer remembers, they lose their signature and number, and nothing else.
// The oldest keeps both.
func TestManyInFlight(t *testing.T) {
	w := newTape(t, Config{})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}})
	r := openTape(t, w.Path())
	const n = 3 * maxPending
	for range n {
		c.Start(0, allReduce, 1)
	}
	if s := r.Slots()[0]; s.Op != allReduce || s.Seq != 1 {
		t.Errorf("with %d in flight the slot shows %d: %+v", n, s.Seq, s.Op)
	}
	for seq := uint64(1); seq <= n; seq++ {
		c.End(seq, 0)
		s := r.Slots()[0]
		if s.Launched != n || s.Completed != seq {
			t.Fatalf("after the end of %d: launched %d, completed %d", seq, s.Launched, s.Completed)
		}
		if known := seq == n || seq+1 > n-maxPending; known != (s.Op == allReduce) {
			t.Errorf("after the end of %d the slot shows %+v", seq, s.Op)
		}
	}
	ends := uint64(0)
	for _, ev := range all(t, r) {
		if ev.Op.Stage == StageEnd {
			ends++
			want := ends
			if ends <= n-maxPending {
				want = 0 // not known any more
			}
			if ev.Op.Seq != want {
				t.Errorf("end %d is of operation %d, want %d", ends, ev.Op.Seq, want)
			}
		}
	}
	if ends != n {
		t.Errorf("%d ends", ends)
	}
}

func TestTableFull(t *testing.T) {
	w := newTape(t, Config{Slots: 2})
	var comms []*CommWriter
	for i := range 3 {
		comms = append(comms, w.Comm(CommInfo{ID: lifecycle.CommID{byte(i + 1)}, Name: fmt.Sprint("c", i)}))
	}
	for _, c := range comms {
		c.State(lifecycle.StateReady)
		c.End(c.Start(0, allReduce, 0), 0)
	}
	r := openTape(t, w.Path())
	if n := len(r.Slots()); n != 2 {
		t.Errorf("%d slots of 2", n)
	}
	if n := r.Header().Overflow; n != 1 {
		t.Errorf("the header counts %d without a slot", n)
	}
	events := all(t, r)
	if len(events) != 4 || events[3].Comm.Name != "c2" || events[3].Slot != -1 { // 2 of the communicator without a slot
		t.Errorf("the third is not in the ring: %+v", events)
	}

	// A slot that is given back is used again, under a new generation, and the old owner can't write to it.
	comms[0].Close()
	next := w.Comm(CommInfo{ID: lifecycle.CommID{9}, Name: "next"})
	comms[0].Start(0, allReduce, 0)
	comms[0].State(lifecycle.StateFailed)
	comms[0].Describe(CommInfo{Name: "old"})
	next.State(lifecycle.StateReady)
	var got Slot
	for _, s := range r.Slots() {
		if s.Index == 0 {
			got = s
		}
	}
	want := Slot{
		CommInfo: CommInfo{ID: lifecycle.CommID{9}, Name: "next"}, Generation: 4, Root: 4,
		State: lifecycle.StateReady, Wait: -1, Counted: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("slot 0 (-want +got):\n%s", diff)
	}
}

// An operation in flight is in the slot or on the ring: a start that no slot can show is recorded, even if the
// operation doesn't wait.
func TestStartWithoutSlot(t *testing.T) {
	w := newTape(t, Config{Slots: 1})
	shown := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "shown"})
	overflow := w.Comm(CommInfo{ID: lifecycle.CommID{2}, Name: "overflow"})
	ended := w.Comm(CommInfo{ID: lifecycle.CommID{3}, Name: "ended"})
	ended.Close()
	for _, c := range []*CommWriter{shown, overflow, ended} {
		c.Start(0, allReduce, 1)
	}
	var told []string
	for _, ev := range all(t, openTape(t, w.Path())) {
		if ev.Op.Stage == StageStart {
			told = append(told, ev.Comm.Name)
		}
	}
	if diff := cmp.Diff([]string{"overflow", "ended"}, told); diff != "" {
		t.Errorf("starts (-want +got):\n%s", diff)
	}
}

// If more operations are in flight than are remembered, the starts of the oldest are recorded before they are
// forgotten.
func TestStartBeforeForgotten(t *testing.T) {
	w := newTape(t, Config{})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}})
	for range maxPending + 2 {
		c.Start(0, allReduce, 1)
	}
	var told []uint64
	for _, ev := range all(t, openTape(t, w.Path())) {
		if ev.Op.Stage == StageStart && ev.Op.Signature == allReduce && ev.Op.Time == ev.Op.Start {
			told = append(told, ev.Op.Seq)
		}
	}
	if diff := cmp.Diff([]uint64{1, 2}, told); diff != "" {
		t.Errorf("starts (-want +got):\n%s", diff)
	}
}

// Rings overwrite the oldest records, and the reader counts the missed ones.
func TestOverwritten(t *testing.T) {
	w := newTape(t, Config{OpRecords: 128, LifeRecords: 128})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world"}) // 2 records
	for range 200 {
		c.End(c.Start(0, allReduce, 0), 0)
	}
	for i := range 100 {
		c.Life(LifeRecord{Act: ActSplit, Stage: StageStart, Seq: uint64(i), Text: "x", Peer: -1}) // 2 records each
	}
	r := openTape(t, w.Path())
	var ops, lives []uint64
	for _, ev := range all(t, r) {
		if ev.Comm.Name != "world" { // its description is overwritten; the slot has it
			t.Fatalf("an event of %+v", ev.Comm)
		}
		if ev.IsLife {
			lives = append(lives, ev.Life.Seq)
		} else {
			ops = append(ops, ev.Op.Seq)
		}
	}
	if len(ops) != 128 || ops[0] != 73 || ops[127] != 200 {
		t.Errorf("ops %v", ops)
	}
	if len(lives) != 64 || lives[0] != 36 || lives[63] != 99 {
		t.Errorf("lives %v", lives)
	}
	if got, want := r.Missed(), (Missed{Life: 202 - 128, Op: 200 - 128}); got != want {
		t.Errorf("missed %+v, want %+v", got, want)
	}
}

// Texts are cut at what the tape keeps, never within a character, and the longest record fits.
func TestTexts(t *testing.T) {
	w := newTape(t, Config{})
	long := strings.Repeat("ä", 4000)
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Parent: lifecycle.CommID{2}, Name: "n" + long, Engine: "e" + long})
	site := lifecycle.Site{Func: "f" + long, File: long + "/f.go", Line: 1, Goroutine: 1, Time: time.Unix(1, 0)}
	c.Life(LifeRecord{
		Act: ActLeak, Stage: StageEnd, Text: "t" + long, Site: site, First: site, Caller: SpanContext{Flags: 1},
		Child: lifecycle.CommID{3}, Ops: 1,
		Shared: true, // the last field: it is there if everything before it fits
	})
	c.Life(LifeRecord{Act: ActAbort, Stage: StageEnd, Text: "before\x00behind"})
	r := openTape(t, w.Path())
	events := all(t, r)
	if len(events) != 2 {
		t.Fatalf("%d events", len(events))
	}
	ev := events[0]
	if !ev.Life.Shared {
		t.Error("the longest record lost its last field")
	}
	for _, tt := range []struct {
		what, got, want string
	}{
		{"Text", ev.Life.Text, "t" + strings.Repeat("ä", (maxText-1)/2)},
		{"Site.Func", ev.Life.Site.Func, "f" + strings.Repeat("ä", (maxSite-1)/2)},
		{"First.File", ev.Life.First.File, strings.Repeat("ä", (maxSite-5)/2) + "/f.go"},
		{"Name", ev.Comm.Name, "n" + strings.Repeat("ä", (nameSize-2)/2)},
		{"Engine", ev.Comm.Engine, "e" + strings.Repeat("ä", 7)},
		{"the slot's name", r.Slots()[0].Name, "n" + strings.Repeat("ä", (nameSize-2)/2)},
		{"Text with a NUL", events[1].Life.Text, "before"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is %q (%d bytes), want %q (%d bytes)", tt.what, tt.got, len(tt.got), tt.want, len(tt.want))
		}
	}
}

// A nil tape takes everything and does nothing.
func TestOff(t *testing.T) {
	var w *Writer
	c := w.Comm(CommInfo{})
	if c != nil || w.Path() != "" || w.Close() != nil {
		t.Fatal("a nil Writer is not off")
	}
	c.Describe(CommInfo{})
	c.State(lifecycle.StateReady)
	c.Life(LifeRecord{})
	if seq := c.Start(0, allReduce, 0); seq != 0 {
		t.Errorf("a nil CommWriter counts: %d", seq)
	}
	c.Phase(PhaseAgree)
	c.Wait(1)
	c.End(0, 0)
	c.Close()
}

// The tape says what was exported and delivered, when the process was told to end, and when it was seen last.
func TestExported(t *testing.T) {
	var off *Writer
	off.Exported(1)
	off.Delivered(1)
	off.Terminated(1)
	off.Saw(1)
	w := newTape(t, Config{})
	r := openTape(t, w.Path())
	for _, at := range []int64{0, 7, Now()} {
		if at != 0 {
			w.Exported(at)
			w.Delivered(at / 2)
			w.Terminated(at / 3)
			w.Saw(at / 4)
		}
		got := r.Header()
		if got.Exported != at || got.Delivered != at/2 || got.Terminated != at/3 || got.Seen != at/4 || got.Closed ||
			got.Overflow != 0 {
			t.Errorf("%+v; exported until %d", got, at)
		}
	}
}

// After Close the tape says that it is closed, takes no new communicator, and late writes do no harm.
func TestClose(t *testing.T) {
	w := newTape(t, Config{})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}})
	r := openTape(t, w.Path())
	if r.Header().Closed {
		t.Error("closed before it is")
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !r.Header().Closed {
		t.Error("not closed")
	}
	c.End(c.Start(0, allReduce, 0), 0)
	c.Close()
	if w.Comm(CommInfo{}) != nil {
		t.Error("a closed tape takes a communicator")
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	w := newTape(t, Config{})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 4})
	life := LifeRecord{Act: ActSplit, Text: "text", Site: lifecycle.Caller("")}
	for _, tt := range []struct {
		what string
		f    func()
	}{
		{"an operation", func() {
			seq := c.Start(0, allReduce, 1)
			c.Phase(PhaseTransfer)
			c.Wait(1)
			c.End(seq, 0)
		}},
		{"an act", func() { c.Life(life) }},
		{"a state", func() { c.State(lifecycle.StateReady); c.State(lifecycle.StateFailed) }},
	} {
		if n := testing.AllocsPerRun(1000, tt.f); n != 0 {
			t.Errorf("%s allocates %v times", tt.what, n)
		}
	}
}

// Now is the kernel's CLOCK_MONOTONIC, not merely something like it: other processes and other languages write the same
// clock.
func TestNow(t *testing.T) {
	for range 1000 {
		before := process.Monotonic()
		now := Now()
		after := process.Monotonic()
		if slack := int64(5000); now < before-slack || now > after+slack {
			t.Fatalf("Now is %d, the kernel's clock went from %d to %d", now, before, after)
		}
	}
	w := newTape(t, Config{})
	at, now := openTape(t, w.Path()).Header().Wall(Now()), time.Now()
	if d := now.Sub(at); d < -time.Second || d > time.Second {
		t.Errorf("Wall is %v off", d)
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		ActInit.String(): "init", ActLeak.String(): "leak", Act(200).String(): "unknown(200)",
		StageMisuse.String(): "misuse", PhaseFinish.String(): "finish", PhaseStream.String(): "stream",
		PhaseAgree.String(): "agree",
	} {
		if got != want {
			t.Errorf("%q should be %q", got, want)
		}
	}
}

// An operation like the one before writes only one cache line of its CommWriter.
func TestOperationsLine(t *testing.T) {
	const line = 64
	c := newTape(t, Config{}).Comm(CommInfo{ID: lifecycle.CommID{1}, Size: 4})
	o := c.op
	if uintptr(unsafe.Pointer(o))%line != 0 {
		t.Errorf("operations are at %p", o)
	}
	words := func() [unsafe.Sizeof(*o) / wordSize]uint64 {
		return *(*[unsafe.Sizeof(*o) / wordSize]uint64)(unsafe.Pointer(o))
	}
	c.End(c.Start(0, allReduce, 1), 0)
	before, tally := words(), c.tally
	c.End(c.Start(0, allReduce, 1), 0)
	after := words()
	if o.completed != 2 || after[0] == before[0] {
		t.Fatalf("two operations have ended, and %d are counted", o.completed)
	}
	if diff := cmp.Diff(before[line/wordSize:], after[line/wordSize:]); diff != "" {
		t.Errorf("more than the first line has changed (-before +after):\n%s", diff)
	}
	if c.tally != tally {
		t.Errorf("more has changed: from %+v to %+v", tally, c.tally)
	}
}

func TestBegan(t *testing.T) {
	var off *CommWriter
	c := newTape(t, Config{}).Comm(CommInfo{ID: lifecycle.CommID{1}, Size: 4})
	if off.Began() != 0 || c.Began() != 0 {
		t.Error("something has begun before anything was launched")
	}
	before := Now()
	first := c.Start(0, allReduce, 1)
	second := c.Start(0, allReduce, 1)
	if at := c.Began(); at < before || at > Now() || at < c.op.at(0).start {
		t.Errorf("began at %d, behind %d", at, before)
	}
	c.End(second, 0)
	if c.End(first, 0); c.Began() != 0 {
		t.Error("nothing is in flight, and has begun")
	}
}
