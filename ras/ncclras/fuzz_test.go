package ncclras

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// seed adds the captures, and pieces of them.
func seed(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(files) == 0 {
		f.Fatalf("%v, %d files", err, len(files))
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(strings.TrimPrefix(string(b), "OK\n"))
		f.Add(string(b[:len(b)/2]))
	}
}

// sound fails if a status contains something impossible, or the notes that are made of it do.
func sound(t *testing.T, s *Status) {
	for i := range s.Comms {
		if err := s.Comms[i].check(); err != nil {
			t.Error(err)
		}
	}
	if len(s.Damage) > maxDamages {
		t.Errorf("%d times damage", len(s.Damage))
	}
	var v View
	v.Learn(s, start)
	v.Learn(s, start.Add(10*time.Second))
	mine := own(7, lifecycle.CommID{1})
	notes := v.Notes(mine, hosts, start.Add(20*time.Second))
	for _, n := range notes {
		if n.Fate != verdict.Alive && n.Fate != verdict.Unreachable || !n.Stale {
			t.Errorf("NCCL says nothing of that: %v", said(notes))
		}
	}
	verdict.Diagnose(append(mine, notes...))
}

func FuzzJSON(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseJSON(strings.NewReader(text)); err == nil {
			sound(t, s)
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add("{\n\"event\": \"PEER_DEAD\",\n\"peer\": {\n\"host\": \"10.0.0.1\",\n\"pid\": 7\n}\n}\n")
	f.Add("{\n\"event\": \"PEER_DEAD\",\n\"peer\": {\n\"host\": \"10.0.0.1\",\n\"pid\": 7\n}\n\"details\": \"\"\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		var events events
		var v View
		for line := range strings.Lines(text) {
			if ev, ok := events.line(strings.TrimSuffix(line, "\n")); ok {
				if ev.Name == "" || (ev.Process.PID == 0) != !ev.Process.Host.IsValid() {
					t.Errorf("event %+v", ev)
				}
				v.Hear(ev, start)
			}
			if events.object.Len() > maxEvent+len(line)+1 {
				t.Fatalf("%d bytes of an event are kept", events.object.Len())
			}
		}
		v.Notes(own(7, lifecycle.CommID{1}), hosts, start)
	})
}
