package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/webhook"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func Example() {
	const secret = "known to both, and to nobody else"
	verifier, err := standardwebhooks.NewWebhookRaw([]byte(secret))
	if err != nil {
		log.Fatal(err)
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			return
		}
		if err := verifier.Verify(body, r.Header); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		var ev bus.Event
		if err := json.Unmarshal(body, &ev); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Println(ev.Severity, ev.Text)
	}))
	defer receiver.Close()

	b := bus.New(bus.Config{Job: "train"})
	sink, err := webhook.New(webhook.Config{
		SinkConfig: bus.SinkConfig{Bus: b}, URL: receiver.URL, Secrets: []string{secret},
	})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- sink.Run(context.Background()) }()
	err = b.Publish(bus.Event{
		Type: semconv.EventRankDead, Severity: bus.Critical, Text: "rank 3 was killed by signal 9",
	})
	if err != nil {
		log.Fatal(err)
	}
	b.Close()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: critical rank 3 was killed by signal 9
}
