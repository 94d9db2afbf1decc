package tape

import (
	"errors"
	"os"
	"testing"
)

func TestClaim(t *testing.T) {
	w := newTape(t, Config{})
	w.Exporter(7)
	c, err := OpenClaim(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	if h := c.Header(); h.Exporter != 7 || h.Exported != 0 {
		t.Errorf("before: %+v", h)
	}
	if _, err := OpenClaim(w.Path()); !errors.Is(err, ErrClaimed) {
		t.Errorf("a second claim: %v", err)
	}
	if err := c.Sent(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if c, err = OpenClaim(w.Path()); err != nil {
		t.Fatal(err)
	}
	if h := c.Header(); h.Exporter != 7 || h.Exported != AllExported {
		t.Errorf("after: %+v", h)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := OpenClaim(os.DevNull); err == nil {
		t.Error("what is no tape is claimed")
	}
}
