package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/peer"
	"github.com/weftnet/weft/test/e2e/weft"
)

const (
	rounds       = 3 // alternately with each CNI, so that load of the machine affects both
	roundSamples = 8 // pods per round, one after the other
)

// roundCrowd is the number of concurrent pods per round.
var roundCrowd = weft.Crowd(16, 8)

// besideRange returns a node's range for the pods of the bridge.
func besideRange(i int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.98.%d.0/24", i)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:98:%d::/64", i)),
	}
}

// starts are the measurements of one CNI.
type starts struct {
	single []time.Duration // from the creation of a pod to its readiness
	crowds time.Duration   // all of them
}

// A benchmark: it compares the start of pods with the plugins bridge and host-local on the same nodes, and prints
// ratios, which mean little on a shared machine.
func TestPodStartComparedWithBridge(t *testing.T) {
	if os.Getenv("WEFT_E2E_PEER") == "" {
		t.Skip("a benchmark of five minutes: WEFT_E2E_PEER=1 runs it")
	}
	needWeft(t)
	s := newSpace(t)
	s.deploy("crowd")
	var ours, theirs starts
	t.Cleanup(func() {
		for _, n := range s.c.Nodes {
			_ = peer.Behind(n) // after a failed round; otherwise it is done already
		}
	})
	for r := range rounds {
		s.measure(fmt.Sprintf("weft-%d", r), &ours)
		for i, n := range s.c.Nodes {
			s.must(peer.Before(n, besideRange(i)))
		}
		s.awaitCNI(r, true)
		s.measure(fmt.Sprintf("bridge-%d", r), &theirs)
		for _, n := range s.c.Nodes {
			s.must(peer.Behind(n))
		}
		s.awaitCNI(r, false)
	}
	for _, both := range [][]time.Duration{ours.single, theirs.single} {
		slices.Sort(both)
	}
	p50 := len(ours.single) / 2
	p99 := len(ours.single) * 99 / 100
	t.Logf("a pod is ready after p50 %s, p99 %s; with bridge p50 %s, p99 %s: ratio %.2f, %.2f (aim: at most 1.1)",
		round(ours.single[p50]), round(ours.single[p99]), round(theirs.single[p50]), round(theirs.single[p99]),
		ratio(ours.single[p50], theirs.single[p50]), ratio(ours.single[p99], theirs.single[p99]))
	t.Logf("%d concurrent pods: %.1f a second; with bridge %.1f a second: ratio of times %.2f",
		roundCrowd, float64(rounds*roundCrowd)/ours.crowds.Seconds(),
		float64(rounds*roundCrowd)/theirs.crowds.Seconds(), ratio(ours.crowds, theirs.crowds))
}

func ratio(a, b time.Duration) float64 { return a.Seconds() / b.Seconds() }

// measure starts pods one after the other, then many concurrently, and deletes all: no pod ends while others start.
func (s *space) measure(name string, into *starts) {
	s.t.Helper()
	for i := range roundSamples {
		into.single = append(into.single,
			s.timeToReady(fmt.Sprintf("%s-%d", name, i), s.c.Nodes[i%len(s.c.Nodes)].Name))
	}
	started := time.Now()
	s.scale("crowd", int32(roundCrowd))
	s.awaitReadyOf("app=crowd", roundCrowd)
	took := time.Since(started)
	s.t.Logf("%s: %d concurrent pods after %s", name, roundCrowd, round(took))
	into.crowds += took
	s.scale("crowd", 0)
	s.deleteAll()
}

// awaitCNI waits until the runtimes of all nodes use the CNI. It checks that with pods, which exist until those of the
// measurement are deleted.
func (s *space) awaitCNI(round int, bridge bool) {
	s.t.Helper()
	tries := 0
	s.must(cluster.Eventually(s.t.Context(), fmt.Sprintf("all nodes' pods use the bridge: %t", bridge),
		func(context.Context) (err error) {
			tries++
			name := func(i int) string { return fmt.Sprintf("whose-%d-%t-%d-%d", round, bridge, i, tries) }
			for i, n := range s.c.Nodes {
				s.create(name(i), n.Name)
			}
			for i, n := range s.c.Nodes {
				pod := s.ready(name(i))
				if peer.Has(besideRange(i), pod.Status.PodIP) != bridge {
					err = errors.Join(err, errors.New("pods of "+n.Name+" do not yet"))
				}
			}
			return err
		}))
}
