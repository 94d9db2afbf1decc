package words_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

func ExampleRanks() {
	fmt.Println(words.Ranks([]int{3}))
	fmt.Println(words.Ranks([]int{5, 0, 2, 1}))
	// Output:
	// rank 3
	// ranks 0 to 2 and 5
}

func TestRanks(t *testing.T) {
	evens, pairs := make([]int, 100), make([]int, 0, 100)
	for i := range evens {
		evens[i] = 2 * i
		pairs = append(pairs, 4*i, 4*i+1)
	}
	for want, ranks := range map[string][]int{
		"no rank":                nil,
		"rank 7":                 {7, 7},
		"ranks 0 and 1":          {1, 0},
		"ranks 0 to 2":           {0, 1, 2},
		"ranks 0, 1 and 3":       {0, 1, 3, 3},
		"ranks 0, 2 to 4 and 63": {0, 2, 3, 4, 63},
		"ranks 0, 2, 4, 6, 8, 10, 12, 14 and 92 more": evens,
		"ranks 0, 1, 4, 5, 8, 9, 12, 13 and 192 more": pairs,
	} {
		if got := words.Ranks(ranks); got != want {
			t.Errorf("%v: %q, want %q", ranks, got, want)
		}
	}
}

func TestList(t *testing.T) {
	letters := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	for n, want := range map[int]string{
		0: "", 1: "a", 2: "a and b", 3: "a, b and c", 8: "a, b, c, d, e, f, g and h",
		10: "a, b, c, d, e, f, g, h and 2 more",
	} {
		if got := words.List(letters[:n]); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestCaptured(t *testing.T) {
	for operations, want := range map[uint64]string{
		1:  "1 operation captured in CUDA graphs, whose replays are not seen",
		12: "12 operations captured in CUDA graphs, whose replays are not seen",
	} {
		if got := words.Captured(operations); got != want {
			t.Errorf("%d: %q", operations, got)
		}
	}
}

func TestRound(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                   "0s",
		999:                                 "999ns",
		12345:                               "12.3µs",
		12345678:                            "12.3ms",
		3214 * time.Millisecond:             "3.21s",
		59940 * time.Millisecond:            "59.9s",
		83400 * time.Millisecond:            "1m23s",
		25*time.Hour + 400*time.Millisecond: "25h0m0s",
		-12345678:                           "-12.3ms",
	} {
		if got := words.Round(d).String(); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}

func TestName(t *testing.T) {
	type colour uint8
	names := []string{"red", "green"}
	for c, want := range map[colour]string{0: "red", 1: "green", 2: "colour(2)"} {
		if got := words.Name("colour", names, c); got != want {
			t.Errorf("%d: %q, want %q", c, got, want)
		}
	}
	if c, err := words.Named[colour]("colour", names, "green"); c != 1 || err != nil {
		t.Errorf("green: %d, %v", c, err)
	}
	_, err := words.Named[colour]("colour", names, "blue")
	if want := `"blue" is no colour: allowed are red, green`; err == nil || err.Error() != want {
		t.Errorf("blue: %v, want %s", err, want)
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"short", 5, "short"},
		{"longer", 5, "lo…"},
		{"größer", 6, "gr…"}, // no half of a character
		{"a\xffb", 9, "a\uFFFDb"},
		{"a\xffb\xffc", 8, "a\uFFFDb…"}, // longer when it is valid
	} {
		if got := words.Clip(test.text, test.n); got != test.want {
			t.Errorf("Clip(%q, %d) is %q, want %q", test.text, test.n, got, test.want)
		}
	}
}

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"rank 3: größer":           "rank 3: größer",
		"one\ttab":                 "one tab",
		"\nfirst\r\n\nsecond\n":    "first; second",
		"a\u2028b\u2029c":          "a; b; c",
		"\x1b[2J\x7f\x00":          `\u001b[2J\u007f\u0000`,
		"\u0085\u009b":             `\u0085\u009b`,
		"user\u202egpj.exe\u2066x": `user\u202egpj.exe\u2066x`,
		"cut \xff":                 "cut \uFFFD",
	} {
		if got := words.Line(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		} else if again := words.Line(got); again != got {
			t.Errorf("%q: a second time it is %q", got, again)
		}
	}
}
