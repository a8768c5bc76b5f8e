package drift

import (
	"context"
	"net/netip"
	"sync"
	"testing"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/wire"
)

// Each kind of object on a pod's link belongs to this link; the same kinds on a link of the node belong to none of a pod.
func TestObjectsOnALinkOfAPodBelongToIt(t *testing.T) {
	s := kvscheduler.New(kvscheduler.Config{Sources: []string{"test"}})
	must.Succeed(t, linux.Register(s, linux.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	s.Ready("test")
	const netns = "/run/netns/none"
	link, address := wire.VethKey("weft-a"), netip.MustParseAddr("10.1.0.7")
	prefix, mac := netip.PrefixFrom(address, 32), wire.MAC{2, 0, 0, 0, 0, 1}
	d := New(Config{Scheduler: s})
	for key, v := range map[string]any{
		wire.LinuxAddressKey(link, prefix):    wire.LinuxAddress{On: link, Namespace: netns, Link: "eth0", Prefix: prefix},
		wire.LinuxRouteKey(link, prefix):      wire.LinuxRoute{On: link, Namespace: netns, Link: "eth0", Destination: prefix},
		wire.LinuxNeighbourKey(link, address): wire.LinuxNeighbour{On: link, Namespace: netns, Link: "eth0", Address: address, MAC: mac},
		wire.HardeningKey(link):               wire.Hardening{On: link, Namespace: netns, Link: "eth0"},
		wire.SysctlKey(link, "net/ipv6/conf/eth0/accept_ra"): wire.Sysctl{On: link, Namespace: netns,
			Name: "net/ipv6/conf/eth0/accept_ra", Value: "0"},
		wire.AnnouncementKey(link, address): wire.Announcement{On: link, Namespace: netns, Link: "eth0", Address: address, Member: wire.BridgeMemberKey("weft-a")},
		link:                                wire.Veth{Namespace: netns, Name: "eth0", MAC: mac, HostName: "weft-a", HostMAC: mac, MTU: 1500, Alias: "weft:a", Up: true},
	} {
		o, err := s.Object(key, v)
		must.Succeed(t, err)
		_, err = s.Commit(ctx, kvscheduler.Txn{Source: "test", Mode: kvscheduler.BestEffort, Set: []kvscheduler.Object{o}})
		if got, isPods := d.linkInPod(kvscheduler.OpRecord{Ref: key}); !isPods || got.String() != link {
			t.Errorf("%s belongs to %s, in a pod: %v (commit: %v)", key, got, isPods, err)
		}
	}
}
