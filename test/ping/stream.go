package ping

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Loss is the result of a stream of echo requests.
type Loss struct {
	Sent, Answered int
	// Median, P99 and Slowest are round-trip times of the answered requests.
	Median, P99, Slowest time.Duration
	// FirstLost and LastLost are the times when the first and the last lost request were sent; zero if none was lost.
	FirstLost, LastLost time.Time
}

// String returns the numbers of sent and lost requests, and when they were lost.
func (l Loss) String() string {
	text := fmt.Sprintf("%d sent, %d lost, slowest %s", l.Sent, l.Sent-l.Answered, l.Slowest.Round(10*time.Microsecond))
	if l.FirstLost.IsZero() {
		return text
	}
	const clock = "15:04:05.000"
	return text + fmt.Sprintf(", lost from %s to %s UTC", l.FirstLost.UTC().Format(clock), l.LastLost.UTC().Format(clock))
}

// mostEchoes is the number of different sequence numbers.
const mostEchoes = 1 << 16

// Stream sends an echo request each interval until ctx ends or mostEchoes are sent, then waits up to a second for
// missing replies.
func (p *Pinger) Stream(ctx context.Context, to netip.Addr, interval time.Duration) (Loss, error) {
	if err := p.conn.SetReadDeadline(time.Time{}); err != nil {
		return Loss{}, err
	}
	answers := make(chan arrival, mostEchoes) // never full
	go p.collect(answers)
	sent, err := p.sendEach(ctx, to, interval)
	// Ends collect, now or at the deadline of the last reply.
	err = errors.Join(err, p.conn.SetReadDeadline(time.Now().Add(lastAnswer)))
	return tally(sent, answers, func() { _ = p.conn.SetReadDeadline(time.Now()) }), err
}

// Sent returns the number of echo requests that Stream has sent so far.
func (p *Pinger) Sent() int { return int(p.sent.Load()) }

// lastAnswer is the timeout of the last replies. A later reply counts as lost.
const lastAnswer = 5 * time.Second

// collect passes replies on until the socket's deadline.
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

// sendEach returns the send time of each echo request, by sequence number.
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

// tally counts each request's first reply and calls complete when none is missing.
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
	for seq, at := range sent {
		if seen[seq] {
			continue
		}
		if l.FirstLost.IsZero() {
			l.FirstLost = at
		}
		l.LastLost = at
	}
	if slices.Sort(took); len(took) > 0 {
		l.Median = took[len(took)/2]
		l.P99 = took[len(took)*99/100]
		l.Slowest = took[len(took)-1]
	}
	return l
}
