package ping

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Loss is what became of a stream of echoes.
type Loss struct {
	Sent, Answered int
	// Median, P99 and Slowest are round trips of those answered.
	Median, P99, Slowest time.Duration
}

// String says how many of how many were lost.
func (l Loss) String() string {
	return fmt.Sprintf("%d sent, %d lost, slowest %s", l.Sent, l.Sent-l.Answered, l.Slowest.Round(10*time.Microsecond))
}

// mostEchoes is how many echoes have sequence numbers of their own.
const mostEchoes = 1 << 16

// Stream sends an echo each interval until ctx ends, then waits up to a second for what is missing. It ends by itself
// after mostEchoes.
func (p *Pinger) Stream(ctx context.Context, to netip.Addr, interval time.Duration) (Loss, error) {
	if err := p.conn.SetReadDeadline(time.Time{}); err != nil {
		return Loss{}, err
	}
	answers := make(chan arrival, mostEchoes) // never full
	go p.collect(answers)
	sent, err := p.sendEach(ctx, to, interval)
	// Ends collect, now or when the last answer had its time.
	err = errors.Join(err, p.conn.SetReadDeadline(time.Now().Add(lastAnswer)))
	return tally(sent, answers, func() { _ = p.conn.SetReadDeadline(time.Now()) }), err
}

// Sent is how many echoes Stream has sent so far.
func (p *Pinger) Sent() int { return int(p.sent.Load()) }

// lastAnswer is how long the answers to the last echoes have. One that comes later than that is lost.
const lastAnswer = 5 * time.Second

// collect passes answers on until the socket's deadline.
func (p *Pinger) collect(answers chan<- arrival) {
	defer close(answers)
	for {
		answer, err := p.receive()
		if err != nil {
			return
		}
		answers <- answer
	}
}

// sendEach gives the time at which each echo was sent, by sequence number.
func (p *Pinger) sendEach(ctx context.Context, to netip.Addr, interval time.Duration) ([]time.Time, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var sent []time.Time
	for len(sent) < mostEchoes {
		at := time.Now()
		if err := p.send(to, len(sent)); err != nil {
			return sent, err
		}
		sent = append(sent, at)
		p.sent.Add(1)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return sent, nil
		}
	}
	return sent, nil
}

// tally counts each echo's first answer and calls complete as soon as none is missing.
func tally(sent []time.Time, answers <-chan arrival, complete func()) Loss {
	l := Loss{Sent: len(sent)}
	seen := make([]bool, len(sent))
	var took []time.Duration
	for a := range answers {
		if a.seq >= len(sent) || seen[a.seq] {
			continue
		}
		seen[a.seq] = true
		l.Answered++
		took = append(took, a.at.Sub(sent[a.seq]))
		if l.Answered == l.Sent {
			complete()
		}
	}
	if slices.Sort(took); len(took) > 0 {
		l.Median, l.P99, l.Slowest = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	}
	return l
}
