package packets

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// cost returns the nanoseconds per packet.
func (l load) cost() float64 { return float64(l.busy.Nanoseconds()) / float64(max(l.arrived, 1)) }

// full returns the share of attempts to send that found no space in the ring.
func (l load) full() float64 { return float64(l.waits) / float64(l.waits+l.sent/burst+1) }

// paced is a load with the delays of its bursts.
type paced struct {
	load
	all []time.Duration // in ascending order
}

// share returns the delay that the given percentage of the bursts did not exceed.
func (d paced) share(percent int) time.Duration {
	if len(d.all) == 0 {
		return 0
	}
	return d.all[(len(d.all)-1)*percent/100]
}

// fleet is a set of links that one thread uses.
type fleet struct {
	links []*link
	wires []memifPair
}

func (f *fleet) close() {
	for _, l := range f.links {
		l.close()
	}
}

// fill fills the rings of each link.
func (f *fleet) fill(size int) error {
	for i, l := range f.links {
		if err := l.write(f.wires[i], size); err != nil {
			return err
		}
		f.drain()
	}
	f.quiet()
	return nil
}

func (f *fleet) drain() (taken int) {
	for _, l := range f.links {
		taken += l.drain()
	}
	return taken
}

// quiet receives packets in flight until no more arrive.
func (f *fleet) quiet() {
	for last := time.Now(); time.Since(last) < quietTime; {
		if f.drain() > 0 {
			last = time.Now()
		}
	}
}

// top returns the round with the least cost. It ignores rounds in which other processes used the dataplane's processor.
func (f *fleet) top(ctx context.Context, size int, worker thread, best *load) error {
	clock, err := newTaskClock(worker)
	if err != nil {
		return err
	}
	defer clock.close()
	counted := 0
	for deadline := time.Now().Add(versusPatience); counted < versusRounds && time.Now().Before(deadline) &&
		ctx.Err() == nil; {
		one, err := clock.during(func() load { return f.saturate(size, versusRound) })
		if err != nil {
			return err
		}
		if one.busy < versusRound/2 || one.arrived == 0 {
			continue
		}
		if counted++; best.arrived == 0 || one.cost() < best.cost() {
			*best = one
		}
	}
	if counted == 0 && ctx.Err() == nil {
		return fmt.Errorf(
			"the machine is too busy: in no %s of %s the dataplane was on its processor for half of the time",
			versusRound, versusPatience)
	}
	return ctx.Err()
}

// saturate keeps all transmit rings full and empties the receive rings. Packets in flight at the end do not count.
func (f *fleet) saturate(size int, duration time.Duration) (m load) {
	began := time.Now()
	for m.took = 0; m.took < duration; m.took = time.Since(began) {
		for _, l := range f.links {
			for i := range l.ends {
				if l.send(i, burst, size) {
					m.sent += burst
				} else {
					m.waits++
				}
				m.arrived += uint64(l.take(1 - i))
			}
		}
	}
	return m
}

// flight is a burst in flight.
type flight struct {
	last uint64 // number of arrived packets when the burst has arrived
	at   time.Time
}

// way is a direction of a link.
type way struct {
	sent, arrived uint64
	flights       []flight
}

// pace sends at a rate, on all links in turn, and measures delays. It keeps at most a receive ring of packets in
// flight.
func (f *fleet) pace(size int, packets float64, duration time.Duration) (m paced) {
	f.quiet()
	ways := make([][2]way, len(f.links))
	window := uint64(f.links[0].ends[0].RxQueues()[0].Size())
	m.all = make([]time.Duration, 0, int(2*packets*duration.Seconds()/paceBurst))
	next := 0
	began := time.Now()
	for m.took = 0; m.took < duration; {
		now := time.Now()
		m.took = now.Sub(began)
		due := uint64(m.took.Seconds() * packets)
		for range 2 * len(f.links) {
			if m.sent+paceBurst > due {
				break
			}
			l := next / 2 % len(f.links)
			i := next % 2
			next++
			d := &ways[l][i]
			if d.sent+paceBurst > d.arrived+window || !f.links[l].send(i, paceBurst, size) {
				m.waits++
				continue
			}
			d.sent += paceBurst
			m.sent += paceBurst
			d.flights = append(d.flights, flight{d.sent, now})
		}
		f.arrive(ways, &m)
	}
	for last := time.Now(); m.lost() > 0 && time.Since(last) < quietTime; {
		if f.arrive(ways, &m) > 0 {
			last = time.Now()
		}
	}
	slices.Sort(m.all)
	return m
}

// arrive receives packets.
func (f *fleet) arrive(ways [][2]way, m *paced) (taken int) {
	for l := range f.links {
		for i := range ways[l] {
			n := f.links[l].take(1 - i)
			if n == 0 {
				continue
			}
			now := time.Now()
			taken += n
			m.arrived += uint64(n)
			ways[l][i].land(uint64(n), now, m)
		}
	}
	return taken
}

// land ends the flights of bursts that have arrived.
func (d *way) land(n uint64, now time.Time, m *paced) {
	d.arrived += n
	done := 0
	for done < len(d.flights) && d.flights[done].last <= d.arrived {
		m.all = append(m.all, now.Sub(d.flights[done].at))
		done++
	}
	d.flights = slices.Delete(d.flights, 0, done)
}
