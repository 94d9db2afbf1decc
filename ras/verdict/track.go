package verdict

import "slices"

// ChangeKind is the kind of a Change.
type ChangeKind uint8

// The kinds.
const (
	// Opened: it is new.
	Opened ChangeKind = iota
	// Changed: more ranks wait or ended, another confidence, more evidence.
	Changed
	// Withdrawn: its cause is gone, or no rank waits any more.
	Withdrawn
)

var changeNames = [...]string{"opened", "changed", "withdrawn"}

// String is the kind's name: "opened".
func (k ChangeKind) String() string { return changeNames[k] }

// Change is a verdict that opened, changed or is withdrawn.
type Change struct {
	Kind    ChangeKind
	Verdict Verdict // as it is now; a withdrawn one as it was last
	// Unresolved says that the cause of a withdrawn verdict is not known to be gone; see Verdict.Resolved. The caller
	// of Update sets it.
	Unresolved bool
}

// Tracker remembers which verdicts are open. The zero value has none. It is for one goroutine.
type Tracker struct {
	open []Verdict
}

// Continue gives a new verdict the ID of an open one with the same reason, if the new one names one of the open one's
// culprits or shows at the same call.
func (t *Tracker) Continue(verdicts []Verdict) []Verdict {
	taken := map[string]bool{}
	for i := range verdicts {
		taken[verdicts[i].ID] = true
	}
	for i := range verdicts {
		v := &verdicts[i]
		if t.find(v.ID) >= 0 {
			continue
		}
		at := slices.IndexFunc(t.open, func(o Verdict) bool { return !taken[o.ID] && v.continues(&o) })
		if at >= 0 {
			v.ID = t.open[at].ID
			taken[v.ID] = true
		}
	}
	return verdicts
}

// continues tells whether a verdict is about the same cause as an older one.
func (v *Verdict) continues(old *Verdict) bool {
	if v.Reason != old.Reason {
		return false
	}
	if v.Call != "" && v.Comm == old.Comm && v.Seq == old.Seq && v.Call == old.Call {
		return true
	}
	return slices.ContainsFunc(v.Culprits, func(r Rank) bool {
		return r.Member != "" && slices.ContainsFunc(old.Culprits, r.Same)
	})
}

// Update takes the verdicts that hold now, and returns the changes since the last time: opened and changed verdicts in
// their order, then withdrawn ones.
func (t *Tracker) Update(verdicts []Verdict) []Change {
	var changes []Change
	for _, v := range verdicts {
		i := t.find(v.ID)
		switch {
		case i < 0:
			changes = append(changes, Change{Kind: Opened, Verdict: v})
		case changed(&t.open[i], &v):
			changes = append(changes, Change{Kind: Changed, Verdict: v})
		}
	}
	for _, old := range t.open {
		if !slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.ID == old.ID }) {
			changes = append(changes, Change{Kind: Withdrawn, Verdict: old})
		}
	}
	t.open = slices.Clone(verdicts)
	return changes
}

// Reads reports whether these verdicts read like those of the last Update, except for their ages.
func (t *Tracker) Reads(verdicts []Verdict) bool {
	same := func(a, b Text) bool { return a.Ageless() == b.Ageless() }
	return slices.EqualFunc(t.open, verdicts, func(a, b Verdict) bool {
		return a.ID == b.ID && same(a.Text, b.Text) && slices.EqualFunc(a.Evidence, b.Evidence, same)
	})
}

// Open lists the verdicts of the last Update.
func (t *Tracker) Open() []Verdict { return slices.Clone(t.open) }

func (t *Tracker) find(id string) int {
	return slices.IndexFunc(t.open, func(v Verdict) bool { return v.ID == id })
}

// changed tells whether two states of a verdict differ in more than their ages.
func changed(old, now *Verdict) bool {
	return old.Confidence != now.Confidence || len(old.Victims) != len(now.Victims) ||
		waiting(old.Victims) != waiting(now.Victims) ||
		len(old.Culprits) != len(now.Culprits) || old.Comm != now.Comm || old.Seq != now.Seq ||
		len(old.Evidence) < len(now.Evidence)
}
