package ccl_test

import "testing"

// Scenarios with ranks that reach each other through shared memory.
func TestScenariosWithSharedMemory(t *testing.T) { playAll(t, "testdata/linux") }
