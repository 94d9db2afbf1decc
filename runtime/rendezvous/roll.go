package rendezvous

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Departure is how a rank left an exchange.
type Departure uint8

// The departures. Their numbers are part of tcp's protocol.
const (
	Waiting  Departure = iota // it is present
	Died                      // its connection was closed without a bye: the process ended
	Lost                      // its connection broke: the process may still run
	GaveUp                    // its deadline passed while it waited
	Closed                    // it closed its Rendezvous
	Withdrew                  // its context was canceled, or it failed elsewhere
	Refuted                   // another rank contradicts it
	Shut                      // the server closed the connection: its process ended, or closed its runtime
)

var departures = []string{
	"it is waiting", "its process ended", "its connection broke", "it gave up", "it closed its rendezvous",
	"it withdrew", "another rank contradicts it", "its process ended or closed its runtime",
}

// String says what happened, as the end of a sentence about the rank.
func (d Departure) String() string { return words.Name("departure", departures, d) }

// Member is a rank as it presented itself to a rendezvous.
type Member struct {
	Rank int    // the number it claims
	Size int    // how many ranks it says there are
	Host string // its host's name
	PID  int    // its process id on that host

	// For ranks that meet again: the rank's number in the earlier communicator, and the ranks of that communicator that
	// it says don't come; empty if it doesn't say.
	Was     int
	Without string

	Arrived time.Time // when it joined the exchange; zero if it left before
	Left    time.Time // when it left; zero while it waits
	How     Departure // how it left
	Detail  string    // why it left, in its own words; may be empty
}

// Here makes the Member of a rank of this process that arrives now.
func Here(rank, size int) Member {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return Member{Rank: rank, Size: size, Host: host, PID: os.Getpid(), Arrived: time.Now()}
}

// Leave records that the member left now, how, and why.
func (m *Member) Leave(how Departure, detail string) {
	m.Left, m.How, m.Detail = time.Now(), how, detail
}

// Where returns host:pid, or the host alone when no process id is known.
func (m Member) Where() string {
	if m.PID == 0 {
		return m.Host
	}
	return m.Host + ":" + strconv.Itoa(m.PID)
}

// String returns the member as a person would look for it: "rank 3 (node7:4711)".
func (m Member) String() string { return fmt.Sprintf("rank %d (%s)", m.Rank, m.Where()) }

func (m Member) story() string {
	says := m.String()
	if !m.Arrived.IsZero() {
		says += " arrived at " + clock(m.Arrived)
	}
	if m.How == Waiting {
		return says
	}
	if !m.Arrived.IsZero() {
		says += ","
	}
	says += " left at " + clock(m.Left) + ": " + m.How.String()
	if m.Detail != "" {
		says += " (" + m.Detail + ")"
	}
	return says
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// Contradicts tells whether two members name different ranks that don't come.
func (m Member) Contradicts(o Member) bool {
	return m.Without != "" && o.Without != "" && m.Without != o.Without
}

// Roll is the state of one exchange: the ranks that have come, and those that have left. A Roll with two present
// members of one rank, or with members that disagree with its size or on which ranks come, is a conflict.
type Roll struct {
	Key     string
	Size    int      // how many ranks are expected
	Members []Member // all members that have come, by rank
}

// Sort orders the members by rank, and by arrival if two claim the same rank.
func (r *Roll) Sort() {
	slices.SortStableFunc(r.Members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), a.Arrived.Compare(b.Arrived))
	})
}

// Missing returns the ranks that have never come, ascending.
func (r *Roll) Missing() []int {
	seen := make([]bool, max(r.Size, 0))
	for _, m := range r.Members {
		if m.Rank >= 0 && m.Rank < len(seen) {
			seen[m.Rank] = true
		}
	}
	var missing []int
	for rank, ok := range seen {
		if !ok {
			missing = append(missing, rank)
		}
	}
	return missing
}

// Present returns the members that are waiting, by rank.
func (r *Roll) Present() []Member {
	return r.members(func(m Member) bool { return m.How == Waiting })
}

// Gone returns the members that have left, by rank.
func (r *Roll) Gone() []Member {
	return r.members(func(m Member) bool { return m.How != Waiting })
}

func (r *Roll) members(want func(Member) bool) []Member {
	var out []Member
	for _, m := range r.Members {
		if want(m) {
			out = append(out, m)
		}
	}
	return out
}

// Err returns why an exchange with this roll did not complete for rank self, which has waited since the given time: a
// *[ConflictError] if the members contradict each other, else a *[MissingError]. The cause is what ended self's own
// wait, nil if the exchange failed because of another rank.
func (r *Roll) Err(self int, since time.Time, cause error) error {
	if claims, detail := r.conflict(); claims != nil {
		return &ConflictError{Roll: *r, Self: self, Claims: claims, Detail: detail}
	}
	return &MissingError{Roll: *r, Self: self, Since: since, Waited: time.Since(since), Cause: cause}
}

// conflict finds the first contradiction among the members: first different lists of ranks, then ranks out of range, as
// these explain the others.
func (r *Roll) conflict() (claims []Member, detail string) {
	said := r.members(func(m Member) bool { return m.Without != "" })
	if slices.ContainsFunc(said, func(m Member) bool { return m.Contradicts(said[0]) }) {
		return said, without(said)
	}
	outside := r.members(func(m Member) bool { return m.Rank < 0 || m.Rank >= m.Size })
	if len(outside) > 0 {
		return outside, "out of range: " + formatMembers(outside, func(m Member) string {
			return fmt.Sprintf("%s of size %d", m, m.Size)
		}) + "; ranks go from 0 to size-1"
	}
	if slices.ContainsFunc(r.Members, func(m Member) bool { return m.Size != r.Size }) {
		return r.Members, r.sizes()
	}
	holder := make(map[int]Member, len(r.Members))
	for _, m := range r.Present() {
		if first, taken := holder[m.Rank]; taken {
			return []Member{first, m}, fmt.Sprintf("rank %d is claimed twice, by %s and by %s; "+
				"give each process a rank of its own", m.Rank, first.Where(), m.Where())
		}
		holder[m.Rank] = m
	}
	return nil, ""
}

// without groups members by the ranks that they leave out.
func without(said []Member) string {
	by := map[string][]Member{}
	var order []string
	for _, m := range said {
		same := func(o Member) bool { return o.Was == m.Was && o.Where() == m.Where() }
		switch some := by[m.Without]; {
		case some == nil:
			order = append(order, m.Without)
		case slices.ContainsFunc(some, same):
			continue
		}
		by[m.Without] = append(by[m.Without], m)
	}
	slices.Sort(order)
	parts := make([]string, len(order))
	for i, out := range order {
		slices.SortFunc(by[out], func(a, b Member) int { return cmp.Compare(a.Was, b.Was) })
		leaves := "leave"
		if len(by[out]) == 1 {
			leaves = "leaves"
		}
		was := func(m Member) string { return fmt.Sprintf("rank %d (%s)", m.Was, m.Where()) }
		parts[i] = fmt.Sprintf("%s %s out %s", formatMembers(by[out], was), leaves, out)
	}
	return "the ranks disagree on who goes on: " + strings.Join(parts, "; ") + "; give all the same list"
}

// sizes groups the members by what they say the size is.
func (r *Roll) sizes() string {
	bySize := map[int][]Member{}
	var order []int
	for _, m := range r.Members {
		if bySize[m.Size] == nil {
			order = append(order, m.Size)
		}
		bySize[m.Size] = append(bySize[m.Size], m)
	}
	var parts []string
	for _, size := range order {
		parts = append(parts, fmt.Sprintf("%d say %s", size, formatMembers(bySize[size], Member.String)))
	}
	return "the ranks disagree on how many they are: " + strings.Join(parts, "; ") + "; give all the same size"
}

// Have begins a sentence about ranks, of which there is at least one: "rank 2 has", "ranks 2 and 3 have".
func Have(ranks []int) string {
	if len(ranks) == 1 {
		return words.Ranks(ranks) + " has"
	}
	return words.Ranks(ranks) + " have"
}

// FormatMembers writes where members are: "0 (a:12) and 1 (b:13)".
func FormatMembers(members []Member) string {
	return formatMembers(members, func(m Member) string { return fmt.Sprintf("%d (%s)", m.Rank, m.Where()) })
}

func formatMembers(members []Member, format func(Member) string) string {
	items := make([]string, len(members))
	for i, m := range members {
		items[i] = format(m)
	}
	return words.List(items)
}
