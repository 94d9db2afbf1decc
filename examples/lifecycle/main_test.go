package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// masks hide what differs from run to run, and that the program is a test here.
var masks = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "<trace id>"},
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "<id>"},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\d[ T][\d:.]+Z?`), "<time>"},
	{regexp.MustCompile(`(\bgoroutine |\.go:|\.line=|\.line\.number=|goroutine\.id=)\d+`), "${1}N"},
	{regexp.MustCompile(`\blifecycle\.(\w)`), "main.$1"},
}

func mask(text string) string {
	for _, m := range masks {
		text = m.what.ReplaceAllString(text, m.by)
	}
	return text
}

// TestOutput checks all of the program's output. Every mistake must get an answer and leave its span.
func TestOutput(t *testing.T) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	datadriven.RunTest(t, "testdata/output.txt", func(t *testing.T, _ *datadriven.TestData) string {
		var out bytes.Buffer
		if err := run(ctx, &printer{out: &out, mask: mask}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	})
}
