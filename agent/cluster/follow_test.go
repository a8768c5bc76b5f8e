package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

func TestWhatIsRefusedIsTriedEverMoreRarelyAsLongAsNothingChanges(t *testing.T) {
	var now followed
	tries := func(ticks int, pods uint64) (at []int) {
		for i := range ticks {
			now.tick(pods)
			if now.tryAgain {
				at = append(at, i+1)
			}
			now.done()
		}
		return at
	}
	if got := tries(100, 0); !slices.Equal(got, []int{1, 2, 4, 8, 16, 32, 62, 92}) { // in units of 10 s
		t.Errorf("tried at ticks %v", got)
	}
	if got := tries(10, 1); !slices.Equal(got, []int{1, 2, 4, 8}) {
		t.Errorf("a pod came or went, and it is tried at ticks %v", got)
	}
	now.changed()
	if !now.tryAgain {
		t.Error("the cluster says something else, and nothing is tried")
	}
	now.tryAgain = false
	if got := tries(10, 1); !slices.Equal(got, []int{1, 2, 4, 8}) {
		t.Errorf("the cluster said something else, and it is tried at ticks %v", got)
	}
}

// The informers may know a pod long before its ADD ends: the announcement follows the attachment.
func TestAPodWithAPrefixBehindItChangesTheAnnouncement(t *testing.T) {
	f := NewFollower(FollowerConfig{})
	wakes := func(h podmanager.Happening, prefixes ...netip.Prefix) bool {
		f.CountChange(podmanager.Outcome{
			Happening:  h,
			Attachment: &pod.Attachment{Interfaces: []pod.Interface{{}, {RoutedPrefixes: prefixes}}},
		})
		select {
		case <-f.routedChanged:
			return true
		default:
			return false
		}
	}
	p := netip.MustParsePrefix("10.60.1.0/24")
	if !wakes(podmanager.Added, p) || !wakes(podmanager.Removed, p) {
		t.Error("the node does not announce that a prefix came or went")
	}
	if wakes(podmanager.Added) || wakes(podmanager.Failed, p) {
		t.Error("the node announces although no prefix came or went")
	}
}

func TestANodeAnnouncesThePrefixesBehindAllOfItsPods(t *testing.T) {
	behind := func(network string, prefixes ...string) pod.Interface {
		i := pod.Interface{Network: network}
		for _, p := range prefixes {
			i.RoutedPrefixes = append(i.RoutedPrefixes, netip.MustParsePrefix(p))
		}
		return i
	}
	got := routedOf([]pod.Attachment{
		{Interfaces: []pod.Interface{{Network: "blue"}, behind("blue", "10.60.2.0/24", "fd60::/64")}},
		{Interfaces: []pod.Interface{behind("blue", "10.60.1.0/24"), behind("red", "10.61.0.0/24")}},
		{Interfaces: []pod.Interface{behind("blue", "10.60.1.0/24")}}, // a new sandbox of the same pod
	})
	const want = "map[blue:[10.60.1.0/24 10.60.2.0/24 fd60::/64] red:[10.61.0.0/24]]"
	if fmt.Sprint(got) != want {
		t.Errorf("announced are %v, want %s", got, want)
	}
}

// refuser refuses all that the cluster wants, and counts the events.
type refuser struct {
	*Follower
	reason string
	asked  map[string]int
	log    bytes.Buffer
}

func newRefuser(t *testing.T) *refuser {
	r := &refuser{reason: "pods use it", asked: map[string]int{}}
	loop := eventloop.New(eventloop.Config{Committer: &eventlooptest.Committer{}})
	eventloop.On(loop, "refuse", func(_ context.Context, ev *pod.SetPools, _ *eventloop.Txn) error {
		r.asked["pools"]++
		ev.Refused = map[string]string{"p": r.reason}
		return nil
	})
	eventloop.On(loop, "refuse", func(_ context.Context, ev *pod.SetNetworks, _ *eventloop.Txn) error {
		r.asked["networks"]++
		ev.Refused = map[string]string{"blue": r.reason}
		return nil
	})
	eventloop.On(loop, "refuse", func(_ context.Context, ev *pod.SetExternals, _ *eventloop.Txn) error {
		r.asked["externals"]++
		ev.Refused = map[string]string{"out": r.reason}
		return nil
	})
	eventlooptest.Ready(t, loop)
	network, err := ipnet.New(ipnet.Config{
		Networks: networks.Config{Pools: []netaddr.Pool{{Name: "p", Prefix: netip.MustParsePrefix("10.1.0.0/24")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	r.Follower = NewFollower(FollowerConfig{
		Parts: Parts{
			Loop:      loop,
			Network:   network,
			Networks:  NewNodeNetworks(nil, loop, log),
			Scheduler: kvscheduler.New(kvscheduler.Config{}),
		},
		Config: config.Config{Kubernetes: config.Kubernetes{Addresses: config.OfPools}}, Log: log,
	})
	return r
}

func (r *refuser) round(t *testing.T, now *followed) {
	r.followPools(t.Context(), now)
	r.Networks.Set(t.Context(), &pod.SetNetworks{From: "cluster"})
	r.followExternals(t.Context(), now)
}

func TestWhatIsRefusedIsNeitherSetNorLoggedAtEachLook(t *testing.T) {
	r := newRefuser(t)
	now := &followed{
		view: nodeview.View{Externals: []nodeview.External{{External: pod.External{Name: "out", Interface: "eth1"}}}},
	}
	for range 5 {
		r.round(t, now)
	}
	now.tryAgain = true
	r.round(t, now)
	if r.asked["pools"] != 2 || r.asked["externals"] != 2 {
		t.Errorf("asked to set %v times, and it was time to try again once", r.asked)
	}
	for _, name := range []string{"name=p ", "network=blue ", "name=out "} {
		if n := strings.Count(r.log.String(), name); n != 1 {
			t.Errorf("logged %d times of %s:\n%s", n, name, r.log.String())
		}
	}
	r.reason = "others use it"
	r.round(t, now)
	if n := strings.Count(r.log.String(), "others use it"); n != 3 {
		t.Errorf("the new reason is logged %d times, for 3 objects:\n%s", n, r.log.String())
	}
}
