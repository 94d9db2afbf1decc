package ncclras

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Version is a version of NCCL. The zero value is unknown.
type Version struct{ Major, Minor, Patch int }

// The first versions with a status in JSON and with MONITOR. RAS itself came with 2.24.3.
var (
	firstJSON    = Version{2, 28, 7}
	firstMonitor = Version{2, 29, 2}
)

// ParseVersion reads "2.28.9", also with a suffix, as in "2.30.3+cuda13.0", or in a tape's engine, "nccl 2.28.9".
func ParseVersion(text string) (Version, error) {
	var v Version
	plain := strings.TrimPrefix(text, "nccl ")
	n, err := fmt.Sscanf(plain, "%d.%d.%d", &v.Major, &v.Minor, &v.Patch)
	if err != nil || n != 3 || min(v.Major, v.Minor, v.Patch) < 0 || max(v.Major, v.Minor, v.Patch) > 9999 {
		return Version{}, fmt.Errorf("ncclras: %.32q is no version of NCCL; want one like 2.28.9", text)
	}
	return v, nil
}

// Compare is negative if v is older than o, positive if it is newer, and 0 if they are the same.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Major, o.Major), cmp.Compare(v.Minor, o.Minor), cmp.Compare(v.Patch, o.Patch))
}

// String is "2.28.9".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Bug is a bug that makes some versions of NCCL crash when they are asked.
type Bug struct {
	// Issue is its number at https://github.com/NVIDIA/nccl/issues.
	Issue int
	// Since is the first version with the bug, and Until the first without it, as far as is known; zero if there is
	// none.
	Since, Until Version
	// Ranks is the size of the smallest job in which it was seen; 0 if size doesn't matter.
	Ranks int
	// What says what happens.
	What string
}

// Bugs are the bugs because of which some versions with a status in JSON must not be asked; earlier versions had
// others. No version is known to be safe while communicators are being created.
func Bugs() []Bug {
	return []Bug{
		{
			Issue: 1762, Since: Version{2, 27, 3}, Until: firstMonitor,
			What: "a status while a process is missing walks off the end of its memory",
		},
		// It is open, but has not been reported for later versions.
		{
			Issue: 1996, Since: Version{2, 27, 5}, Until: firstMonitor,
			What: "a connection that RAS doesn't expect, as a port scan's, crashes it",
		},
		{
			Issue: 2346, Since: firstMonitor, Ranks: 256,
			What: "a status while communicators come and go, on whichever host, crashes jobs of 256 ranks",
		},
	}
}

// Issues are the numbers of Bugs.
func Issues() (numbers []int) {
	for _, b := range Bugs() {
		numbers = append(numbers, b.Issue)
	}
	return numbers
}

// BugError says why a version of NCCL must not be asked.
type BugError struct {
	Version Version
	Bugs    []Bug // at least one
}

// Error says which bugs they are.
func (e *BugError) Error() string {
	var bugs []string
	for _, b := range e.Bugs {
		bugs = append(bugs, fmt.Sprintf("%s (NVIDIA/nccl#%d)", b.What, b.Issue))
	}
	return fmt.Sprintf("NCCL %v is not asked, as that may crash the job: %s", e.Version, strings.Join(bugs, "; "))
}

// ErrOld means that a version of NCCL doesn't report enough.
var ErrOld = fmt.Errorf("NCCL is not asked, as versions before %v do not report each rank", firstJSON)

// forbidden says why a version must not be asked in a job of so many ranks (0 if unknown); nil if it may be.
func forbidden(v Version, ranks int, accept []int) error {
	if v.Compare(firstJSON) < 0 {
		return fmt.Errorf("version %v: %w", v, ErrOld)
	}
	e := &BugError{Version: v}
	for _, b := range Bugs() {
		if v.Compare(b.Since) >= 0 && (b.Until == Version{} || v.Compare(b.Until) < 0) &&
			(ranks == 0 || ranks >= b.Ranks) && !slices.Contains(accept, b.Issue) {
			e.Bugs = append(e.Bugs, b)
		}
	}
	if len(e.Bugs) > 0 {
		return e
	}
	return nil
}
