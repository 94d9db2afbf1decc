package tape

import "testing"

func TestCounterIsClock(t *testing.T) {
	for _, tt := range []struct {
		source          string
		invariant, want bool
	}{
		{"tsc", false, true},
		{"kvm-clock", true, true},
		{"kvm-clock", false, false},
		{"hpet", true, false},
		{"", true, false},
	} {
		if got := counterIsClock(tt.source, tt.invariant); got != tt.want {
			t.Errorf("%q, invariant %v: %v", tt.source, tt.invariant, got)
		}
	}
}
