package verdict

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Age is for how long something has lasted. Its JSON is a number of seconds.
type Age time.Duration

// maxAge is more than a verdict that is read from JSON has: some 30 years.
const maxAge = 1e9

// MarshalJSON writes seconds, with as many decimal places as it takes to read the same Age again.
func (a Age) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(a).Seconds(), 'f', -1, 64), nil
}

// UnmarshalJSON reads seconds.
func (a *Age) UnmarshalJSON(b []byte) error {
	seconds, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(math.Abs(seconds) <= maxAge) {
		return fmt.Errorf("verdict: an age of %.40q is no number of seconds", b)
	}
	*a = Age(math.Round(seconds * float64(time.Second)))
	return nil
}

// String is the Age as a duration that a person reads, of three digits at most: "3.2s".
func (a Age) String() string {
	d := time.Duration(a)
	switch {
	case d < time.Millisecond:
		d = d.Round(time.Microsecond)
	case d < time.Second:
		d = d.Round(time.Millisecond)
	case d < time.Minute:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	return d.String()
}
