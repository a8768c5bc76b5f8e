package drift

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/wire"
)

// podLab is a monitor with desired objects on the link of a pod, none of which can be made.
type podLab struct {
	*Monitor
	link, address string // keys of the link and of an address on it
}

const patienceNetns = "/run/netns/none"

func newPodLab(t *testing.T) *podLab {
	t.Helper()
	s := kvscheduler.New(kvscheduler.Config{Sources: []string{"test"}})
	must.Succeed(t, linux.Register(s, linux.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	s.Ready("test")
	prefix := netip.MustParsePrefix("10.1.0.7/32")
	l := &podLab{Monitor: New(Config{Scheduler: s}), link: wire.VethKey("weft-a")}
	l.address = wire.LinuxAddressKey(l.link, prefix)
	l.desire(t, l.link, wire.Veth{
		Namespace: patienceNetns,
		Name:      "eth0",
		MAC:       patienceMAC,
		HostName:  "weft-a",
		HostMAC:   patienceMAC,
		MTU:       1500,
		Alias:     "weft:a",
		Up:        true,
	})
	l.desire(t, l.address, wire.LinuxAddress{On: l.link, Namespace: patienceNetns, Link: "eth0", Prefix: prefix})
	return l
}

var patienceMAC = netaddr.MAC{2, 0, 0, 0, 0, 1}

// desire makes a value desired. Its creation fails.
func (l *podLab) desire(t *testing.T, key string, v any) {
	t.Helper()
	o, err := l.Scheduler.Object(key, v)
	must.Succeed(t, err)
	txn := kvscheduler.Txn{Source: "test", Mode: kvscheduler.BestEffort, Set: []kvscheduler.Object{o}}
	_, _ = l.Scheduler.Commit(t.Context(), txn)
	ref, err := kvscheduler.ParseRef(key)
	must.Succeed(t, err)
	if _, is := l.Scheduler.View().Desired(ref); !is {
		t.Fatalf("%s is not desired", key)
	}
}

// Each kind of object on a pod's link belongs to this link; the same kinds on a link of the node belong to none of a
// pod.
func TestObjectsOnALinkOfAPodBelongToIt(t *testing.T) {
	l := newPodLab(t)
	link := l.link
	address := netip.MustParseAddr("10.1.0.8")
	prefix := netip.PrefixFrom(address, 32)
	for key, v := range map[string]any{
		wire.LinuxAddressKey(link, prefix): wire.LinuxAddress{
			On:        link,
			Namespace: patienceNetns,
			Link:      "eth0",
			Prefix:    prefix,
		},
		wire.LinuxRouteKey(link, prefix): wire.LinuxRoute{
			On:          link,
			Namespace:   patienceNetns,
			Link:        "eth0",
			Destination: prefix,
		},
		wire.LinuxNeighbourKey(link, address): wire.LinuxNeighbour{
			On:        link,
			Namespace: patienceNetns,
			Link:      "eth0",
			Address:   address,
			MAC:       patienceMAC,
		},
		wire.HardeningKey(link): wire.Hardening{On: link, Namespace: patienceNetns, Link: "eth0"},
		wire.SysctlKey(link, "net/ipv6/conf/eth0/accept_ra"): wire.Sysctl{On: link, Namespace: patienceNetns,
			Name: "net/ipv6/conf/eth0/accept_ra", Value: "0"},
		wire.AnnouncementKey(link, address): wire.Announcement{
			On:        link,
			Namespace: patienceNetns,
			Link:      "eth0",
			Address:   address,
			Member:    wire.BridgeMemberKey("weft-a"),
		},
	} {
		l.desire(t, key, v)
		if got, isPods := l.linkInPod(kvscheduler.OpRecord{Ref: key}); !isPods || got.String() != link {
			t.Errorf("%s belongs to %s, in a pod: %v", key, got, isPods)
		}
	}
	if got, isPods := l.linkInPod(kvscheduler.OpRecord{Ref: link}); !isPods || got.String() != link {
		t.Errorf("the link belongs to %s, in a pod: %v", got, isPods)
	}
}

// missing is the operation of a check that would create a missing object.
func missing(key string) kvscheduler.OpRecord {
	return kvscheduler.OpRecord{Ref: key, Verb: kvscheduler.Create.String(), Why: "drift"}
}

// A program that takes a link over needs some time, but a link that is missing has no such program.
func TestOnlyALinkThatExistsHasTimeForChanges(t *testing.T) {
	l := newPodLab(t)
	now := time.Now()
	all := kvscheduler.ResyncOpt{}
	if found := l.unfinished(all, []kvscheduler.OpRecord{missing(l.link), missing(l.address)}, now); len(found) != 2 {
		t.Errorf("a missing link: %d of 2 objects are repaired", len(found))
	}
	changed := []kvscheduler.OpRecord{missing(l.address)}
	for after, want := range map[time.Duration]int{0: 0, podGrace - 1: 0, podGrace: 1} {
		l.since = map[kvscheduler.Ref]time.Time{}
		l.unfinished(all, slices.Clone(changed), now)
		if found := l.unfinished(all, slices.Clone(changed), now.Add(after)); len(found) != want {
			t.Errorf("%s after the address was lost: %d objects are repaired, want %d", after, len(found), want)
		}
	}
}

// The time begins again with each change: a check that finds the link as desired ends it.
func TestTimeForChangesBeginsAgainAfterALinkWasAsDesired(t *testing.T) {
	l := newPodLab(t)
	link, err := kvscheduler.ParseRef(l.link)
	must.Succeed(t, err)
	began := time.Now()
	of := kvscheduler.ResyncOpt{Refs: []kvscheduler.Ref{link}}
	l.unfinished(of, []kvscheduler.OpRecord{missing(l.address)}, began)
	l.unfinished(of, nil, began.Add(time.Second))
	again := began.Add(podGrace)
	if found := l.unfinished(of, []kvscheduler.OpRecord{missing(l.address)}, again); len(found) != 0 {
		t.Error("the second change is repaired at once")
	}
	if found := l.unfinished(of, []kvscheduler.OpRecord{missing(l.address)}, again.Add(podGrace)); len(found) != 1 {
		t.Error("the second change is not repaired in time")
	}
}
