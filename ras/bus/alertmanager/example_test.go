package alertmanager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/alertmanager"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func Example() {
	// In the place of an Alertmanager.
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var alerts []struct{ Labels, Annotations map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil {
			log.Print(err)
		}
		for _, a := range alerts {
			fmt.Println(r.URL.Path, a.Labels["alertname"], a.Labels["severity"], a.Annotations["summary"])
		}
	}))
	defer server.Close()

	b := bus.New(bus.Config{Job: "train"})
	sink, err := alertmanager.New(alertmanager.Config{
		SinkConfig: bus.SinkConfig{Bus: b, Filter: bus.Filter{Types: []string{"verdict."}, Least: bus.Warning}},
		URLs:       []string{server.URL},
	})
	if err != nil {
		log.Fatal(err)
	}
	err = b.Publish(bus.Event{
		Type: semconv.EventVerdictOpened, Stage: bus.Opened, Key: "dead/3", Severity: bus.Critical, Rank: "3",
		Reason: "rank_dead",
		Text:   "rank 3 was killed by signal 9",
	})
	if err != nil {
		log.Fatal(err)
	}
	b.Close() // Run returns when what is queued is told
	if err := sink.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: /api/v2/alerts CarillonVerdict critical rank 3 was killed by signal 9
}
