//go:build linux && cgo

package node_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/carillon-rt/carillon/runtime/cuda/fakecuda"
	"github.com/carillon-rt/carillon/runtime/engine/cuda"
	"github.com/carillon-rt/carillon/runtime/node"
)

const onFakeVariable = "CARILLONTEST_NODE_ON_FAKE" // this process has been started with the fake driver

// TestModuleHasTheGPU: an fx program gets the GPU of its local rank with WithGPU, and nil without.
func TestModuleHasTheGPU(t *testing.T) {
	if os.Getenv(onFakeVariable) == "" {
		onFake(t)
		return
	}
	cfg := node.Default()
	cfg.TapeDir = t.TempDir()
	cfg.World.LocalRank = 1
	for _, asked := range []bool{true, false} {
		opts := []fx.Option{node.Module, fx.Supply(&cfg), fx.NopLogger}
		if asked {
			opts = append(opts, node.Provide(func() node.Option { return node.WithGPU(cuda.Options{}) }))
		}
		var g *cuda.GPU
		app := fxtest.New(t, append(opts, fx.Populate(&g))...)
		app.RequireStart()
		if (g != nil) != asked {
			t.Errorf("with WithGPU: %v, the GPU is %v", asked, g)
		}
		if g != nil && g.Context().Device().Ordinal() != 1 {
			t.Errorf("the GPU of local rank 1 is device %d", g.Context().Device().Ordinal())
		}
		app.RequireStop()
	}
}

// onFake runs the test in its own process: a process finds the driver when it starts.
func onFake(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	driver, err := fakecuda.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := fakecuda.BuildKernels(dir, filepath.Join("..", "..", "kernels", "cuda", "*.cu"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), onFakeVariable+"=1", "LD_LIBRARY_PATH="+filepath.Dir(driver), "FAKECUDA_DEVICES=2",
		"FAKECUDA_KERNELS="+kernels)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
