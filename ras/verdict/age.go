package verdict

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Age is for how long something has lasted. Its JSON is a number of seconds.
type Age time.Duration

// maxAge is the longest in JSON, in seconds: some 30 years.
const maxAge = 1e9

// MarshalJSON writes seconds, with as many decimal places as it takes to read the same Age again. One that is absurd, as a process that
// lies may say it of itself, is cut to what UnmarshalJSON takes: or nobody could read the verdict that has it.
func (a Age) MarshalJSON() ([]byte, error) {
	seconds := max(-maxAge, min(time.Duration(a).Seconds(), maxAge))
	return strconv.AppendFloat(nil, seconds, 'f', -1, 64), nil
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

// String is the Age as a duration that a person reads: "3.21s".
func (a Age) String() string { return words.Round(time.Duration(a)).String() }
