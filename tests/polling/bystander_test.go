package polling

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// answersVariable has the unrelated server's answers, as JSON.
const answersVariable = "POLLING_TEST_ANSWERS"

// shape is the unrelated server's answer to a path: so many bytes, in one out of Every answers; the others are
// refusals.
type shape struct {
	Bytes int
	Every int // 1: all
}

// runBystander is a server that has nothing to do with Carillon: net/http with fixed answers. There are as many of them
// as ranks, so that the load wakes as many processes. At the end it is killed.
func runBystander(ctx context.Context) error {
	shapes := map[string]shape{}
	if err := json.Unmarshal([]byte(os.Getenv(answersVariable)), &shapes); err != nil {
		return err
	}
	handler := http.NewServeMux()
	for path, s := range shapes {
		handler.Handle(path, fixed(s))
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listens", "http://"+l.Addr().String()+"/")
	return server.Serve(l)
}

func fixed(s shape) http.Handler {
	body := bytes.Repeat([]byte{'x'}, s.Bytes)
	var count atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if count.Add(1)%int64(s.Every) != 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write(body[:min(len(body), 80)]) // the client went away
			return
		}
		_, _ = w.Write(body) // the client went away
	})
}
