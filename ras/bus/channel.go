package bus

import (
	"context"
	"errors"
)

// ChannelConfig describes a Channel.
type ChannelConfig struct {
	Bus    *Bus // required
	Filter Filter
	Queue  int // 0 means Config.Queue
}

// Channel is the sink into this process: a Go channel.
type Channel struct {
	sub    *Subscription
	c      chan *Event
	counts Counts
}

// NewChannel makes a Channel, which queues from now on.
func NewChannel(cfg ChannelConfig) (*Channel, error) {
	if cfg.Bus == nil {
		return nil, errors.New("bus.ChannelConfig.Bus is nil: allowed is a Bus")
	}
	sub := cfg.Bus.Attach(SubscriptionConfig{Filter: cfg.Filter, Queue: cfg.Queue, After: FromStart})
	return &Channel{sub: sub, c: make(chan *Event)}, nil
}

// C yields the events. It is closed when Run returns.
func (c *Channel) C() <-chan *Event { return c.c }

// Name implements Sink.
func (*Channel) Name() string { return "channel" }

// Stats implements Sink.
func (c *Channel) Stats() Stats { return c.counts.Stats(c.sub.Dropped()) }

// Run implements Sink. It ends when ctx does, however long nobody reads.
func (c *Channel) Run(ctx context.Context) error {
	defer close(c.c)
	defer c.sub.Close()
	return forward(ctx, c.sub, c.c, &c.counts)
}

// forward moves events from a subscription to a channel.
func forward(ctx context.Context, s *Subscription, c chan<- *Event, counts *Counts) error {
	return Each(ctx, s, func(ev *Event) error {
		select {
		case c <- ev:
			if counts != nil && !ev.Notice() {
				counts.Pushed(1)
			}
		case <-ctx.Done():
		}
		return nil
	})
}

// Each calls f for each event of a subscription, until f fails, ctx ends or the Bus is closed and nothing is queued.
// The last two are no error: it is how a Sink's Run ends.
func Each(ctx context.Context, s *Subscription, f func(*Event) error) error {
	for {
		ev, err := s.Next(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrClosed):
			return nil
		case err != nil:
			return err
		}
		if err := f(ev); err != nil {
			return err
		}
	}
}
