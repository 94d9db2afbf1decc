package sse_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/sse"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func Example() {
	b := bus.New(bus.Config{Job: "train"})
	events := sse.New(b)
	var running sync.WaitGroup
	running.Go(func() { _ = events.Run(context.Background()) })
	<-events.Begun() // until then it takes no listeners
	mux := http.NewServeMux()
	mux.Handle("GET /api/v1/events", events)
	server := httptest.NewServer(mux)

	if err := b.Publish(bus.Event{Type: semconv.EventRankDead, Text: "rank 3 was killed"}); err != nil {
		log.Fatal(err)
	}
	// As curl -N would; 0 asks for what is remembered too.
	answer, err := http.Get(server.URL + "/api/v1/events?last_event_id=0")
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			fmt.Println(kind)
			b.Close() // the stream ends
		}
	}
	_ = answer.Body.Close()
	server.Close()
	running.Wait()
	// Output: dev.carillon.rank.dead
}
