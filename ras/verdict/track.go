package verdict

import "slices"

// ChangeKind is what became of a verdict.
type ChangeKind uint8

// The kinds.
const (
	// Opened: it wasn't there before.
	Opened ChangeKind = iota
	// Changed: it says something else now: more who wait, another confidence.
	Changed
	// Withdrawn: its cause is gone, or nobody is left whom it concerns.
	Withdrawn
)

var changeNames = [...]string{"opened", "changed", "withdrawn"}

// String is the kind's name: "opened".
func (k ChangeKind) String() string { return changeNames[k] }

// Change is a verdict that opened, changed or is withdrawn.
type Change struct {
	Kind    ChangeKind
	Verdict Verdict // as it is now; a withdrawn one as it was last
	// Unresolved says of a withdrawn one that its cause is not known to be gone; see Verdict.Healed. Who calls Update sets it.
	Unresolved bool
}

// Tracker remembers which verdicts are open. The zero value has none. It is for one goroutine.
type Tracker struct {
	open []Verdict
}

// Update takes what Diagnose says now, and returns what changed since the last time: what opened and changed first, in
// the order of verdicts, then what is withdrawn.
func (t *Tracker) Update(verdicts []Verdict) []Change {
	var changes []Change
	for _, v := range verdicts {
		i := t.find(v.ID())
		switch {
		case i < 0:
			changes = append(changes, Change{Kind: Opened, Verdict: v})
		case news(&t.open[i], &v):
			changes = append(changes, Change{Kind: Changed, Verdict: v})
		}
	}
	for _, old := range t.open {
		id := old.ID()
		if !slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.ID() == id }) {
			changes = append(changes, Change{Kind: Withdrawn, Verdict: old})
		}
	}
	t.open = slices.Clone(verdicts)
	return changes
}

// Open lists the verdicts of the last Update.
func (t *Tracker) Open() []Verdict { return slices.Clone(t.open) }

func (t *Tracker) find(id string) int {
	return slices.IndexFunc(t.open, func(v Verdict) bool { return v.ID() == id })
}

// news tells whether a verdict says something new, apart from that time has passed.
func news(old, now *Verdict) bool {
	return old.Confidence != now.Confidence || len(old.Victims) != len(now.Victims) || len(old.Culprits) < len(now.Culprits) || old.Comm != now.Comm || old.Seq != now.Seq
}
