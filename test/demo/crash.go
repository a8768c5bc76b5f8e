package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weftnet/weft/test/ping"
)

const (
	pingInterval = 10 * time.Millisecond
	calm         = 300 * time.Millisecond // pings before the crash, and after the new agent is ready
)

// crash kills the agent while A pings B, starts a new one, and expects no effect on the pods.
func (d *demo) crash(ctx context.Context) error {
	before, err := d.attachments(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	streams, err := d.startPings(ctx)
	if err != nil {
		return err
	}
	restart := errors.Join(pause(ctx, calm), d.restart(ctx), pause(ctx, calm))
	if err := errors.Join(restart, d.endPings(streams)); err != nil {
		return err
	}
	after, err := d.attachments(ctx)
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("attachments before the crash:\n%s\nafter:\n%s", before, after)
	}
	d.printf("attachments are the same")
	return d.showResync(ctx, begun)
}

// stream sends pings from A to B through one interface.
type stream struct {
	link   string
	cancel context.CancelFunc
	done   chan error
	loss   ping.Loss
}

// startPings starts a stream on each interface.
func (d *demo) startPings(ctx context.Context) (streams []*stream, err error) {
	for _, l := range d.b.links {
		to := l.Bare()[0]
		p, err := ping.OpenOn(d.a.Netns, l.Name, to)
		if err != nil {
			return nil, errors.Join(err, d.endPings(streams))
		}
		ctx, cancel := context.WithCancel(ctx)
		s := &stream{link: l.Name, cancel: cancel, done: make(chan error, 1)}
		go func() {
			var err error
			s.loss, err = p.Stream(ctx, to, pingInterval)
			s.done <- errors.Join(err, p.Close())
		}()
		streams = append(streams, s)
	}
	return streams, nil
}

// endPings ends the streams; a lost ping is an error.
func (d *demo) endPings(streams []*stream) (err error) {
	for _, s := range streams {
		s.cancel()
		err = errors.Join(err, <-s.done)
		d.printf("pings a -> b by %-5s during the restart: %s", s.link, s.loss)
		if lost := s.loss.Sent - s.loss.Answered; lost != 0 {
			err = errors.Join(err, fmt.Errorf("%d pings by %s were lost", lost, s.link))
		}
	}
	return err
}

func (d *demo) restart(ctx context.Context) error {
	old := d.node.AgentPID()
	dataplane := d.node.DataplanePID()
	if err := d.node.KillAgent(); err != nil {
		return err
	}
	begun := time.Now()
	if err := d.node.StartAgent(ctx); err != nil {
		return err
	}
	d.printf("weft-agent %d was killed, %d is ready after %s", old, d.node.AgentPID(), short(time.Since(begun)))
	if now := d.node.DataplanePID(); now != dataplane {
		return fmt.Errorf("the dataplane is process %d, before the crash it was %d", now, dataplane)
	}
	return nil
}

// pause waits while the pings continue.
func pause(ctx context.Context, t time.Duration) error {
	select {
	case <-time.After(t):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
