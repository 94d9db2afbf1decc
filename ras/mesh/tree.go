package mesh

// fanOut is how many members one member asks.
const fanOut = 16

// unit is one member that is asked, and those of its host that it answers for because they can't.
type unit struct {
	member instance
	absent []instance
}

func (u *unit) size() int { return 1 + len(u.absent) }

// split cuts units into at most fanOut parts of nearly the same length, in their order. The first of each part is
// asked, and asks the rest.
func split(units []unit) [][]unit {
	n := min(len(units), fanOut)
	parts := make([][]unit, 0, n)
	for i := range n {
		parts = append(parts, units[len(units)*i/n:len(units)*(i+1)/n])
	}
	return parts
}
