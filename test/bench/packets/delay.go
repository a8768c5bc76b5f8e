package packets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// delays is the number of packets for the latency.
const delays = 200_000

// latency measures one packet at a time from one client to the other; its thread and the worker poll.
func (r *run) latency(ctx context.Context) error {
	for i, routed := range []bool{false, true} {
		name := []string{"L2", "L3"}[i]
		var all []time.Duration
		err := r.onWire(ctx, name, routed, func(l *link) (err error) {
			all, err = l.delays(ctx)
			return err
		})
		if err != nil {
			return fmt.Errorf("latency, %s: %w", name, err)
		}
		slices.Sort(all)
		p50 := all[len(all)/2]
		p99 := all[len(all)*99/100]
		fmt.Fprintf(r.Out,
			"one-way latency, %s, 64 B, client to client, all polling: p50 %.2f us, p99 %.2f us, most %.0f us, of %d packets\n",
			name, micro(p50), micro(p99), micro(all[len(all)-1]), len(all))
		r.verdicts.add(name+": one-way latency p50, us", atMost(2), micro(p50), "%.2f")
	}
	return nil
}

func micro(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// onWire connects clients to two memifs, with both threads pinned, and deletes them after f.
func (r *run) onWire(ctx context.Context, name string, routed bool, f func(*link) error) error {
	w, err := r.dataplane.addMemifPair(ctx, name, 0, routed)
	if err != nil {
		return err
	}
	l, err := r.pair(ctx, w)
	if err != nil {
		return err
	}
	err = pinned(testerProcessor, func() error {
		if err := l.fill(w, sizes[0]); err != nil {
			return err
		}
		worker, err := busiest(r.dataplane.pid(), func() { l.saturate(sizes[0], 100*time.Millisecond) })
		if err != nil {
			return err
		}
		return errors.Join(pinTo(worker.tid, workerProcessor), f(l))
	})
	l.close()
	return errors.Join(err, r.dataplane.disconnect(ctx, w))
}

var errLost = errors.New("a packet did not arrive")

func (l *link) delays(ctx context.Context) ([]time.Duration, error) {
	all := make([]time.Duration, 0, delays)
	for len(all) < delays && ctx.Err() == nil {
		one, _, err := l.cross()
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, ctx.Err()
}

// longPause is the shortest pause that counts: it fills a ring of 1024 slots at 3.4 Mpps.
const longPause = 300 * time.Microsecond

// cross sends a packet to the other end, and returns its delay, and the part of the delay in which this thread was not
// on its processor, in pauses that count.
func (l *link) cross() (took, away time.Duration, err error) {
	began := time.Now()
	if !l.send(0, 1, sizes[0]) {
		return 0, 0, errLost
	}
	for last := began; ; {
		n := l.take(1)
		now := time.Now()
		if d := now.Sub(last); d >= longPause {
			away += d
		}
		if took = now.Sub(began); n > 0 {
			return took, away, nil
		}
		if took > timeout {
			return took, away, errLost
		}
		last = now
	}
}
