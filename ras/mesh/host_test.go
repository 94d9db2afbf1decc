package mesh

import (
	"os"
	"strconv"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/process"
)

func TestSelf(t *testing.T) {
	m, err := Self(3, 8)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != host+"-"+strconv.Itoa(os.Getpid()) || m.Rank != 3 || m.JobSize != 8 || m.ID != process.Self() {
		t.Errorf("this process is %+v", m)
	}
}
