package tape

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
)

// The sites of C++ programs are read with readable names, both in one record.
func TestSitesOfPrograms(t *testing.T) {
	w := newTape(t, Config{})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}})
	line := lifecycle.Site{Func: "_ZN1C1fEv+0x1 in job.so+0x2", File: "job.go", Line: 3} // in Go
	for _, tt := range []struct{ written, read lifecycle.Site }{
		{
			lifecycle.Site{Func: "_ZN4c10d8NCCLComm7destroyEv+0xc in libtorch_cuda.so+0x1f2c"},
			lifecycle.Site{Func: "c10d::NCCLComm::destroy+0xc in libtorch_cuda.so+0x1f2c"},
		},
		{lifecycle.Site{Func: "_ZN3fooIiE3barEi+0x1 in a.so+0x2"}, lifecycle.Site{Func: "foo::bar+0x1 in a.so+0x2"}},
		{lifecycle.Site{Func: "_ZN+0x1 in job.so+0x2"}, lifecycle.Site{Func: "_ZN+0x1 in job.so+0x2"}},
		{lifecycle.Site{Func: "step+0x4a in job.so+0x2"}, lifecycle.Site{Func: "step+0x4a in job.so+0x2"}},
		{lifecycle.Site{Func: "job+0x2", File: "/none/job"}, lifecycle.Site{Func: "job+0x2", File: "/none/job"}},
		{lifecycle.Site{Func: "job", File: "/none/job"}, lifecycle.Site{Func: "job", File: "/none/job"}},
		{line, line},
	} {
		c.Life(LifeRecord{Stage: StageMisuse, Site: tt.written, First: tt.written})
		events := all(t, openTape(t, w.Path()))
		last := events[len(events)-1].Life
		if diff := cmp.Diff([]lifecycle.Site{tt.read, tt.read}, []lifecycle.Site{last.Site, last.First}); diff != "" {
			t.Errorf("%q is read as (-want +got):\n%s", tt.written.Func, diff)
		}
	}
}
