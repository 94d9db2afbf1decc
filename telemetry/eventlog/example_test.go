package eventlog_test

import (
	"log"
	"log/slog"
	"os"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/eventlog"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func Example() {
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	l, err := eventlog.New(eventlog.Config{
		Handler: slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}).
			WithAttrs([]slog.Attr{slog.Int("rank", 2)}),
		Wall: wall,
	})
	if err != nil {
		log.Fatal(err)
	}
	step := model.New(model.Limits{}).Apply(&tape.Event{
		Comm: tape.CommInfo{ID: lifecycle.CommID{15: 1}, Name: "world", Rank: 2, Size: 4}, IsLife: true,
		Life: tape.LifeRecord{
			Act: tape.ActInit, Stage: tape.StageEnd, Start: 1_000_000, Time: 4_100_000,
			State: lifecycle.StateReady, Peer: -1,
		},
	})
	l.Observe(&step)
	// Output:
	// level=INFO msg=ccl.comm.init rank=2 comm=world comm_rank=2 size=4 id=00000000000000000000000000000001 took=3.1ms state=ready subsys=INIT
}
