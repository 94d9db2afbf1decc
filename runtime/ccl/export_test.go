package ccl

// Live returns the number of communicators that are alive in this process.
func (rt *Runtime) Live() int {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return len(rt.comms)
}
