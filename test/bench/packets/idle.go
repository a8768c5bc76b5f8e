package packets

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	idleMemifs = 10
	idleTime   = 5 * time.Second
)

// idle measures the dataplane's processor time while clients are connected and send nothing.
func (r *run) idle(ctx context.Context) error {
	var links []*link
	var wires []memifPair
	defer func() {
		for _, l := range links {
			l.close()
		}
	}()
	for i := range idleMemifs / 2 {
		w, err := r.dataplane.addMemifPair(ctx, "idle", uint32(2*i), false)
		if err != nil {
			return err
		}
		l, err := r.pair(ctx, w)
		if err != nil {
			return err
		}
		links = append(links, l)
		wires = append(wires, w)
	}
	if err := await(ctx, time.Second); err != nil { // until it sleeps
		return err
	}
	busy, err := r.dataplane.busyFor(ctx, idleTime)
	if err != nil {
		return err
	}
	share := 100 * busy.Seconds() / idleTime.Seconds()
	fmt.Fprintf(r.Out, "idle, %d clients connected, for %s: %.2f %% of one processor, all threads\n", idleMemifs,
		idleTime, share)
	r.verdicts.add("idle, % of one processor", atMost(1), share, "%.2f")
	var errs []error
	for _, w := range wires {
		errs = append(errs, r.dataplane.disconnect(ctx, w))
	}
	return errors.Join(errs...)
}

// busyFor returns the processor time of all threads during f.
func (d *dataplane) busyFor(ctx context.Context, duration time.Duration) (busy time.Duration, err error) {
	before, err := cpuTimes(d.pid())
	if err != nil {
		return 0, err
	}
	if err := await(ctx, duration); err != nil {
		return 0, err
	}
	after, err := cpuTimes(d.pid())
	for tid, t := range after {
		busy += t - before[tid]
	}
	return busy, err
}
