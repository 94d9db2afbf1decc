package verdict_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/verdict"
)

// TestAgeInJSON: an Age is read as it was written. An absurd one is read as the longest one, and not refused.
func TestAgeInJSON(t *testing.T) {
	const most = verdict.Age(1e9 * time.Second)
	for _, tc := range []struct {
		age, want verdict.Age
		text      string
	}{
		{0, 0, "0"},
		{verdict.Age(3402614599), verdict.Age(3402614599), "3.402614599"},
		{1, 1, "0.000000001"},
		{verdict.Age(100 * 24 * time.Hour), verdict.Age(100 * 24 * time.Hour), "8640000"},
		{math.MaxInt64, most, "1000000000"},
		{math.MinInt64, -most, "-1000000000"},
	} {
		b, err := json.Marshal(tc.age)
		if err != nil || string(b) != tc.text {
			t.Errorf("%d: %s, %v; want %s", tc.age, b, err, tc.text)
		}
		var got verdict.Age
		if err := json.Unmarshal(b, &got); err != nil || got != tc.want {
			t.Errorf("%s was read as %d, %v; want %d", b, got, err, tc.want)
		}
	}
	for _, text := range []string{"1000000001", "-1e300", `"1"`, "{}", "true"} {
		var got verdict.Age
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s was read as %v", text, got)
		}
	}
}
