package ipnet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// restarted returns a new node with only the saved state of the old one, as JSON.
func (n *node) restarted(t testing.TB, pools ...netaddr.Pool) *node {
	t.Helper()
	config := n.config
	if len(pools) > 0 {
		config.Networks.Pools = pools
	}
	b, err := json.Marshal(n.kept())
	if err != nil {
		t.Fatal(err)
	}
	var read ipnet.Saved
	if err := json.Unmarshal(b, &read); err != nil {
		t.Fatal(err)
	}
	again := nodeOf(t, config)
	again.now = n.now
	again.saver = n.saver
	again.Restore(read)
	return again.run(t)
}

func TestRestartAndResyncChangeNothing(t *testing.T) {
	for name, pools := range families {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, pools...).run(t)
			for i := range 7 {
				n.add(t, sandbox(fmt.Sprint("pod", i)))
			}
			n.delete(t, sandbox("pod2"))
			n.now = n.now.Add(coolDown)
			n.delete(t, sandbox("pod4"))
			again := n.restarted(t, pools...)
			if got, want := list(t, again.committer.Values()), list(t, n.committer.Values()); got != want {
				t.Errorf("values\n%s\nwant\n%s", got, want)
			}
			stats, leases := n.Networks.Addresses()
			statsAgain, leasesAgain := again.Networks.Addresses()
			if !reflect.DeepEqual(stats, statsAgain) || !reflect.DeepEqual(ofPods(leases), ofPods(leasesAgain)) {
				t.Errorf("addresses %v %v, want %v %v", statsAgain, leasesAgain, stats, leases)
			}
			for range 8 {
				ev := sandbox(fmt.Sprint("new", again.now.Unix()))
				got := again.add(t, ev).Interfaces[0].Addresses
				want := n.add(t, ev).Interfaces[0].Addresses
				if !reflect.DeepEqual(got, want) {
					t.Errorf("the next pod gets %v, before the restart %v", got, want)
				}
				n.now = n.now.Add(coolDown)
				again.now = again.now.Add(coolDown)
			}
		})
	}
}

func TestAttachmentsTakePrecedenceOverLeases(t *testing.T) {
	log := &bytes.Buffer{}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	network, err := ipnet.New(ipnet.Config{
		Networks: networks.Config{
			Pools:    []netaddr.Pool{four},
			CoolDown: coolDown,
			Now:      func() time.Time { return now },
			Log:      slog.New(slog.NewTextHandler(log, nil)),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	attachment := func(id, address string) *pod.Attachment {
		return &pod.Attachment{
			Key: pod.Key{Network: "weft", ContainerID: id, IfName: "eth0"},
			Interfaces: []pod.Interface{
				{Name: "eth0", Object: "weft-" + id, Addresses: []netip.Prefix{netip.MustParsePrefix(address + "/32")}},
			},
		}
	}
	lease := func(address, holder string, state ipam.State) ipam.Lease {
		return ipam.Lease{
			Pool:    "default4",
			Address: netip.MustParseAddr(address),
			Holder:  holder,
			State:   state,
			FreeAt:  now.Add(time.Second),
		}
	}
	network.Restore(ipnet.Saved{Saved: attach.Saved{Attachments: []*pod.Attachment{
		attachment("unleased", "10.1.0.2"),
		attachment("cooling", "10.1.0.3"),
		attachment("stolen", "10.1.0.4"),
		attachment("outside", "10.9.0.9"),
		{Key: pod.Key{Network: "weft", ContainerID: "chained", IfName: "eth0"}},
	}, Leases: []ipam.Lease{
		lease("10.1.0.3", "weft/cooling/eth0", ipam.Cooling),
		lease("10.1.0.4", "weft/thief/eth0", ipam.Used),
		lease("10.1.0.5", "weft/orphan/eth0", ipam.Used),
		lease("10.1.0.6", "weft/gone/eth0", ipam.Cooling),
	}}})
	want := map[string]string{
		"10.1.0.1": "internal node", "10.1.0.2": "used weft/unleased/eth0", "10.1.0.3": "used weft/cooling/eth0",
		"10.1.0.4": "used weft/stolen/eth0", "10.1.0.5": "cooling weft/orphan/eth0",
		"10.1.0.6": "cooling weft/gone/eth0",
	}
	_, leases := network.Networks.Addresses()
	got := map[string]string{}
	for _, l := range leases {
		got[l.Address.String()] = l.State.String() + " " + l.Holder
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("leases %v, want %v", got, want)
	}
	if part := "weft/outside/eth0: address 10.9.0.9 is in no pool"; !strings.Contains(log.String(), part) {
		t.Errorf("the log lacks %q:\n%s", part, log)
	}
}

func TestPodWithoutItsPoolKeepsItsInterface(t *testing.T) {
	n := newNode(t, four).run(t)
	a := n.add(t, sandbox("a"))
	other := netaddr.Pool{Name: "other", Prefix: netip.MustParsePrefix("10.7.0.0/28")}
	again := n.restarted(t, other)
	for _, key := range again.Pods.Objects(a) {
		if again.committer.Values()[key] == nil {
			t.Errorf("%s is missing", key)
		}
	}
	again.delete(t, sandbox("a"))
	if left := again.committer.Values(); len(left) != len(newNode(t, other).run(t).committer.Values()) {
		t.Errorf("left:\n%s", list(t, left))
	}
}

func TestRepeatedResyncChangesNothing(t *testing.T) {
	n := newNode(t, four, six).run(t)
	n.add(t, sandbox("a"))
	before := n.state(t)
	for _, kind := range []eventloop.Resync{eventloop.Full, eventloop.Upstream, eventloop.Downstream} {
		if _, err := n.loop.Do(context.Background(), eventloop.Resynchronize{Kind: kind, Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		if after := n.state(t); after != before {
			t.Errorf("%s resync: before\n%s\nafter\n%s", kind, before, after)
		}
	}
}
