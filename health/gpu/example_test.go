package gpu_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/health/gpu"
)

// A program that watches its GPUs: it gets Xids as they happen, and exports metrics. Without a GPU, it says so.
func Example() {
	m := gpu.New(gpu.Config{OnEvent: func(e gpu.Event) {
		fmt.Println(e.Condition.Text, "—", e.Condition.Advice)
	}})
	m.Start()
	defer m.Stop(context.Background())
	prometheus.NewRegistry().MustRegister(m)
	for _, g := range m.Read(context.Background()).GPUs {
		if g.Memory != nil && g.Memory.Used > g.Memory.Total {
			fmt.Println(g.Label, g.Name, "has less memory than is used")
		}
	}
}

// What to do about an Xid.
func ExampleLookupXid() {
	x := gpu.LookupXid(79)
	fmt.Printf("%s puts %s out of service\n", x, x.Scope)
	// Output: Xid 79 (GPU has fallen off the bus) puts the GPU out of service
}
