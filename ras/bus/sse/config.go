package sse

import (
	"errors"
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
)

// Defaults of a Config.
const (
	DefaultHeartbeat    = 15 * time.Second
	DefaultWriteTimeout = 10 * time.Second
	DefaultRetry        = 3 * time.Second
	DefaultMaxClients   = 4096
)

// Config describes a Handler. Zero fields take the defaults that they name.
type Config struct {
	// Bus is where the events come from. Required.
	Bus *bus.Bus
	// Filter bounds what clients can ask for.
	Filter bus.Filter
	// Queue is how many events wait for one client; 0 means the Bus's.
	Queue int
	// Heartbeat is the longest silence; a comment ends it, by which both sides see that the connection lives. 0 means
	// DefaultHeartbeat.
	Heartbeat time.Duration
	// WriteTimeout is how long a client may take no byte before it is dropped. 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	// Retry is how long clients are told to wait before they connect again. 0 means DefaultRetry.
	Retry time.Duration
	// MaxClients bounds the clients; those beyond are answered 503. 0 means DefaultMaxClients.
	MaxClients int
}

func (c Config) complete() Config {
	if c.Heartbeat == 0 {
		c.Heartbeat = DefaultHeartbeat
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = DefaultWriteTimeout
	}
	if c.Retry == 0 {
		c.Retry = DefaultRetry
	}
	if c.MaxClients == 0 {
		c.MaxClients = DefaultMaxClients
	}
	return c
}

// Validate names every field that has a value that is not allowed.
func (c Config) Validate() error {
	c = c.complete()
	var errs []error
	if c.Bus == nil {
		errs = append(errs, errors.New("sse.Config.Bus is nil: allowed is a Bus"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Heartbeat", c.Heartbeat}, {"WriteTimeout", c.WriteTimeout}, {"Retry", c.Retry}} {
		if d.value < time.Millisecond || d.value > time.Hour {
			errs = append(errs, fmt.Errorf("sse.Config.%s is %v: allowed are 1ms to 1h", d.name, d.value))
		}
	}
	if c.MaxClients < 1 || c.MaxClients > 1<<20 {
		errs = append(errs, fmt.Errorf("sse.Config.MaxClients is %d: allowed are 1 to %d", c.MaxClients, 1<<20))
	}
	return errors.Join(errs...)
}
