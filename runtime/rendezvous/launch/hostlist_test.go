package launch

import (
	"strings"
	"testing"
)

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"n1":                       "n1",
		"n[01-03,7]":               "n01",
		"n[7,1-3]":                 "n7",
		"login,n[1-4]":             "login",
		"n[1-4],login":             "n1",
		"gnode[10,20,25,37]":       "gnode10",
		"rack[2-3]node[007-010]":   "rack2node007",
		"a[1]-ib0.cluster.example": "a1-ib0.cluster.example",
		"n[99999999999999999999999-99999999999999999999999]": "n99999999999999999999999",
	} {
		if got, err := FirstHost(list); err != nil || got != want {
			t.Errorf("%q starts with %q (%v), not %q", list, got, err, want)
		}
	}
	for list, why := range map[string]string{
		"":                                 "empty",
		",n1":                              "empty",
		"n1,":                              "empty",
		"n1,,n2":                           "empty",
		"n[1-3":                            "not closed",
		"n1-3]":                            "no part of a host's name",
		"n[]":                              "neither a number",
		"n[1,]":                            "neither a number",
		"n[1-]":                            "neither a number",
		"n[-3]":                            "neither a number",
		"n[a-c]":                           "neither a number",
		"n[1-2-3]":                         "neither a number",
		"n[3-1]":                           "goes down",
		"n[1-2]x y":                        "no part of a host's name",
		"(null)":                           "no part of a host's name",
		"n[[1]]":                           "neither a number",
		strings.Repeat("n", maxHostlist+1): "at most",
	} {
		if got, err := FirstHost(list); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.40q: %q, %v; expected an error with %q", list, got, err, why)
		}
	}
}

func FuzzFirstHost(f *testing.F) {
	for _, seed := range []string{
		"n1", "n[01-03,7]", "login,n[1-4]", "rack[2-3]node[007-010]", "n[", "n]", "n[1-", ",",
		"[1]", "n[3-1]", "(null)",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		host, err := FirstHost(list)
		if err != nil {
			return
		}
		if host == "" || strings.ContainsAny(host, "[], \n:/") || len(host) > len(list) {
			t.Fatalf("%q starts with %q", list, host)
		}
		if again, err := FirstHost(host); err != nil || again != host {
			t.Fatalf("the first host %q of %q is itself a list that starts with %q (%v)", host, list, again, err)
		}
		if more, err := FirstHost(list + ",z"); err != nil || more != host {
			t.Fatalf("%q with one more host starts with %q (%v), not %q", list, more, err, host)
		}
	})
}
