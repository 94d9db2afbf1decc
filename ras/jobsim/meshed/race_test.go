//go:build race

package meshed_test

import "time"

const quiet = time.Minute // see norace_test.go
