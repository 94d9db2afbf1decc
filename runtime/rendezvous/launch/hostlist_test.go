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
		if got := firstHost(list); got != want {
			t.Errorf("%q starts with %q, not %q", list, got, want)
		}
	}
	for _, list := range []string{
		"", ",n1", "n1,", "n1,,n2", "n[1-3", "n1-3]", "n[]", "n[1,]", "n[1-]", "n[-3]", "n[a-c]", "n[1-2-3]",
		"n[1-2]x y", "(null)", "n[[1]]",
	} {
		if got := firstHost(list); got != "" {
			t.Errorf("%q is taken for a list that starts with %q", list, got)
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
		host := firstHost(list)
		if host == "" {
			return
		}
		if strings.ContainsAny(host, "[], \n:/") || len(host) > len(list) {
			t.Fatalf("%q starts with %q", list, host)
		}
		if again := firstHost(host); again != host {
			t.Fatalf("the first host %q of %q is itself a list that starts with %q", host, list, again)
		}
		if more := firstHost(list + ",z"); more != host {
			t.Fatalf("%q with one more host starts with %q, not %q", list, more, host)
		}
	})
}
