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

// crash kills the agent while A pings B, starts a new one, and expects that nothing happened to the pods.
func (d *demo) crash(ctx context.Context) error {
	before, err := d.attachments(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	ended, err := d.startPings(ctx)
	if err != nil {
		return err
	}
	restart := errors.Join(pause(ctx, calm), d.restart(ctx), pause(ctx, calm))
	loss, err := ended()
	if err := errors.Join(restart, err); err != nil {
		return err
	}
	d.say("pings a -> b meanwhile: %s", loss)
	if loss.Answered != loss.Sent {
		return fmt.Errorf("%d pings were lost", loss.Sent-loss.Answered)
	}
	after, err := d.attachments(ctx)
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("attachments before the crash:\n%s\nand after:\n%s", before, after)
	}
	d.say("attachments are the same")
	return d.showResync(ctx, begun)
}

// startPings begins to ping; ended ends it and says what became of it.
func (d *demo) startPings(ctx context.Context) (ended func() (ping.Loss, error), err error) {
	to := d.b.addresses[0]
	p, err := ping.Open(d.a.Netns, to)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var loss ping.Loss
	go func() {
		defer close(done)
		loss, err = p.Stream(ctx, to, pingInterval)
	}()
	return func() (ping.Loss, error) {
		cancel()
		<-done
		return loss, errors.Join(err, p.Close())
	}, nil
}

func (d *demo) restart(ctx context.Context) error {
	old, dataplane := d.node.AgentPID(), d.node.DataplanePID()
	if err := d.node.KillAgent(); err != nil {
		return err
	}
	begun := time.Now()
	if err := d.node.StartAgent(ctx); err != nil {
		return err
	}
	d.say("weft-agent %d was killed, %d is ready after %s", old, d.node.AgentPID(), short(time.Since(begun)))
	if now := d.node.DataplanePID(); now != dataplane {
		return fmt.Errorf("weft-vswitch is another process: %d, it was %d", now, dataplane)
	}
	return nil
}

// pause waits; the pings go on.
func pause(ctx context.Context, t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
