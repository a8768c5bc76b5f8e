package packets

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"
)

const costMethod = `
The worker's cost: its thread's time on a processor by the packets that arrive, both ways at once, from clients of this process
that send frames from where they lie and do not look at what comes, so that the dataplane is what limits the rate; in %d rounds
of %s, the median and, least disturbed by others, the least. Then half that rate, in bursts of 32: what did not arrive is lost.
`

// load is the result of one measurement with weft's memif clients.
type load struct {
	sent, arrived, waits uint64
	took, busy           time.Duration
}

func (l load) rate() rate {
	return rate{float64(l.arrived) / l.took.Seconds(), l.busy / time.Duration(max(l.arrived, 1))}
}

// lost returns the number of lost packets; it is negative if packets arrived twice.
func (l load) lost() int64 { return int64(l.sent) - int64(l.arrived) }

// cost measures the top rate, and the loss at half of it.
func (r *run) cost(ctx context.Context) (err error) {
	fmt.Fprintf(r.Out, costMethod, costRounds, costRound)
	table := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "own clients\tns/packet\tleast\ttop Mpps\tring full\thalf, sent\tof due\tlost\t\n")
	defer func() { err = errors.Join(err, table.Flush()) }()
	lost := int64(0)
	for i, routed := range []bool{false, true} {
		w, err := r.dataplane.addMemifPair(ctx, []string{"L2", "L3"}[i], 0, routed)
		if err != nil {
			return err
		}
		for _, size := range sizes {
			top, least, half, err := r.costOf(ctx, w, size)
			if err != nil {
				return fmt.Errorf("%s, %d bytes: %w", w.name, size, err)
			}
			fmt.Fprintf(table, "%s, %d B\t%d\t%d\t%.2f\t%.2f\t%d\t%.2f\t%d\t\n", w.name, size,
				top.rate().cost.Nanoseconds(), least.Nanoseconds(), top.rate().packets/1e6,
				float64(top.waits)/float64(top.waits+top.sent/burst+1), half.sent,
				2*float64(half.sent)/half.took.Seconds()/top.rate().packets, half.lost())
			lost += half.lost()
			if size == 64 && !routed {
				r.verdicts.add("L2, 64 B: ns of one core a packet", atMost(40), float64(top.rate().cost.Nanoseconds()),
					"%.0f")
				r.verdicts.add("the same, the least of all rounds", atMost(40), float64(least.Nanoseconds()), "%.0f")
			}
		}
		if err := r.dataplane.disconnect(ctx, w); err != nil {
			return err
		}
	}
	r.verdicts.add("packets lost at half the top rate", atMost(0), float64(lost), "%.0f")
	return nil
}

// Many short rounds, so that one of them has the machine for itself.
const (
	costRounds = 9
	costRound  = 200 * time.Millisecond
)

// costOf returns the top rate of a way, the median of several measurements, and the half of that.
func (r *run) costOf(ctx context.Context, w memifPair, size int) (top load, least time.Duration, half load, err error) {
	l, err := r.pair(ctx, w)
	if err != nil {
		return top, least, half, err
	}
	defer l.close()
	err = pinned(testerProcessor, func() error {
		if err := l.fill(w, size); err != nil {
			return err
		}
		worker, err := busiest(r.dataplane.pid(), func() { l.saturate(size, 200*time.Millisecond) })
		if err != nil {
			return err
		}
		if err := pinTo(worker.tid, workerProcessor); err != nil {
			return err
		}
		var all []load
		for range costRounds {
			one, err := worker.during(func() load { return l.saturate(size, costRound) })
			if err != nil {
				return err
			}
			all = append(all, one)
		}
		top = medianLoad(all)
		least = all[0].rate().cost
		half = l.pace(size, top.rate().packets/2, r.Duration)
		return ctx.Err()
	})
	return top, least, half, err
}

// during adds the thread's processor time during f.
func (t thread) during(f func() load) (load, error) {
	before, err := t.cpuTime()
	if err != nil {
		return load{}, err
	}
	l := f()
	after, err := t.cpuTime()
	l.busy = after - before
	return l, err
}

// saturate keeps both transmit rings full and empties the receive rings.
func (l *link) saturate(size int, duration time.Duration) (m load) {
	began := time.Now()
	for m.took = 0; m.took < duration; m.took = time.Since(began) {
		for i := range l.ends {
			if l.send(i, burst, size) {
				m.sent += burst
			} else {
				m.waits++
			}
			m.arrived += uint64(l.take(1 - i))
		}
	}
	m.arrived += uint64(l.quiet())
	return m
}

// paceBurst is the number of packets that are due at a time.
const paceBurst = 32

// pace sends at a rate in both directions. It keeps at most a receive ring of packets in flight: this thread is the
// receiver too, and a loss by its own pause is not the dataplane's.
func (l *link) pace(size int, packets float64, duration time.Duration) (m load) {
	began := time.Now()
	window := uint64(l.ends[0].RxQueues()[0].Size())
	for m.took = 0; m.took < duration; m.took = time.Since(began) {
		due := uint64(m.took.Seconds() * packets)
		for i := 0; i < len(l.ends) && m.sent+paceBurst <= due; i++ {
			if m.sent+paceBurst <= m.arrived+window && l.send(i, paceBurst, size) {
				m.sent += paceBurst
			} else {
				m.waits++
			}
		}
		m.arrived += uint64(l.drain())
	}
	m.arrived += uint64(l.quiet())
	return m
}
