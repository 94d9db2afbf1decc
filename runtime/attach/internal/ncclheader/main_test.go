package main

import (
	"strings"
	"testing"
)

const (
	count  = "function\tncclCommCount\t2.18.1\t2.31.2\tncclResult_t ncclCommCount(const ncclComm_t comm, int* count)\n"
	first  = "config\tncclConfig_t\t2.18.1\t\tsize_t size unsigned int magic const char *netName\n"
	longer = "config\tncclConfig_t\t2.26.2\t\tsize_t size unsigned int magic const char *netName int trafficClass\n"
)

func TestParse(t *testing.T) {
	a, err := parse("# comment\nkind\tname\tfirst\tlast\ttext\n" + count + first + longer)
	if err != nil {
		t.Fatal(err)
	}
	f := a.Functions[0]
	if f.Result != "ncclResult_t" || f.Params != "const ncclComm_t comm, int* count" || f.Version != 21801 {
		t.Errorf("the function is %+v", f)
	}
	if got := strings.Join(a.Configs[1].Fields, "; "); got !=
		"size_t size; unsigned int magic; const char *netName; int trafficClass" {
		t.Errorf("the fields are %s", got)
	}
	if a.Newest() != 22602 || a.Since() != "2.26.2" {
		t.Errorf("the newest version is %d, %s", a.Newest(), a.Since())
	}
}

func TestParseRefuses(t *testing.T) {
	for table, want := range map[string]string{
		count: "no functions, or no configurations",
		count + "config\tncclConfig_t\t2.18.1\t\n":                              "has 3 cells",
		count + "config\tncclConfig_t\tnew\t\tint size\n":                       "is no version",
		count + "config\tncclConfig_t\t2.18.1\t\tint size int\n":                "ends in a type",
		count + longer + first:                                                  "not what it was before",
		"macro\tNCCL_X\t2.18.1\t\t1\n":                                          "unknown kind",
		"function\tncclSend\t2.18.1\t2.31.2\tncclResult_t ncclRecv(int peer)\n": "no prototype of ncclSend",
	} {
		if _, err := parse(table); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", table, err, want)
		}
	}
}
