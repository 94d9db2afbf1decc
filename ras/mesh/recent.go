package mesh

// recent is a set of the last keys that were added: at least the last recentSize, at most twice as many. The zero value
// is empty.
type recent[K comparable] struct{ now, before map[K]struct{} }

const recentSize = 4096

// add adds key, and reports whether it wasn't there.
func (r *recent[K]) add(key K) (fresh bool) {
	if r.has(key) {
		return false
	}
	if r.now == nil || len(r.now) >= recentSize {
		r.before, r.now = r.now, make(map[K]struct{})
	}
	r.now[key] = struct{}{}
	return true
}

func (r *recent[K]) has(key K) bool {
	_, now := r.now[key]
	_, before := r.before[key]
	return now || before
}
