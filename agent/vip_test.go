package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/keepalived"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
	"github.com/weftnet/weft/test/programs"
)

// permitted lets an interface have the addresses and MACs of keepalived.Instances.
const permitted = `{"t1": ` + keepalived.Options + `}`

// newVIPLab is a lab whose network blue permits the addresses of keepalived.Instances.
func newVIPLab(t *testing.T) *lab {
	t.Helper()
	keepalived.Require(t)
	l := newLabWith(t, programs.Build(t), node.Options{Embedded: true})
	must.Succeed(t, l.SetNetworks([]node.Network{{
		Name: "blue", Type: "L2", AntiSpoof: true,
		CIDRs:            []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24"), netip.MustParsePrefix("fd05::/64")},
		AllowedAddresses: []string{"10.5.0.100-10.5.0.110", "fd05::100/120"},
		VirtualRouters:   []int{54, 55},
	}}))
	must.Succeed(t, errors.Join(l.StopAgent(), l.StartAgent(t.Context())))
	return l
}

// member adds a pod with an interface t1 on the network blue.
func (l *lab) member(name, kind, options string) *node.Pod {
	l.Helper()
	p := l.pod(name)
	annotations := map[string]string{customInterfaces: "t1/" + kind + "/blue"}
	if options != "" {
		annotations[customOptions] = options
	}
	l.cni("ADD", p, annotated(annotations))
	return p
}

// reach sends requests from a pod until an address answers. The MAC of a virtual router is on the port of the pod that
// used it last, until the next advertisement of the master at most, so a request may be lost.
func (l *lab) reach(from *node.Pod, to netip.Addr) {
	l.Helper()
	p, err := ping.Open(from.Netns, to)
	must.Succeed(l.T, err)
	ctx, cancel := context.WithTimeout(l.Context(), 30*time.Second)
	defer cancel()
	_, err = p.Reach(ctx, to)
	must.Succeed(l.T, errors.Join(err, p.Close()))
}

// mustServe waits until the client knows the MAC of each virtual address on its own, as that of the pod where the
// instance uses the MAC of its interface, and reaches the address.
func (l *lab) mustServe(client, by *node.Pod, instances []keepalived.Instance) {
	l.Helper()
	for _, v := range instances {
		if v.MAC == "" {
			l.knows(client, v.Address.Addr(), by)
		}
	}
	for _, v := range instances {
		l.reach(client, v.Address.Addr())
		if v.MAC != "" && l.neighbour(client, v.Address.Addr()) != v.MAC {
			l.Errorf("the client has MAC %s for %s, want %s", l.neighbour(client, v.Address.Addr()), v.Address, v.MAC)
		}
	}
}

// neighbour returns the MAC that the link t1 of a pod has for an address.
func (l *lab) neighbour(p *node.Pod, address netip.Addr) (mac string) {
	l.Helper()
	netnstest.Do(l, p.Netns, func() {
		entries, err := netlink.NeighList(mustLink(l.T, "t1").Attrs().Index, netlink.FAMILY_ALL)
		must.Succeed(l.T, err)
		for _, n := range entries {
			if n.IP.Equal(net.IP(address.AsSlice())) {
				mac = cmp.Or(mac, n.HardwareAddr.String())
			}
		}
	})
	return mac
}

// awaitMaster waits until a pod has the addresses of all instances.
func (l *lab) awaitMaster(p *node.Pod, instances []keepalived.Instance) {
	l.Helper()
	for _, v := range instances {
		has := func() bool { return keepalived.Has(l, p.Netns, v.Address.Addr()) }
		l.await(has, p.Name+" is master of "+v.Address.String())
	}
}

// A pair of pods runs keepalived. The addresses move when the master stops, and when its pod is deleted; a neighbour
// learns it without sending anything.
func TestVirtualAddressesMoveBetweenPods(t *testing.T) {
	for _, kind := range []string{"tap", "veth"} {
		t.Run(kind, func(t *testing.T) {
			l := newVIPLab(t)
			client := l.member("client", kind, "")
			one := l.member("one", kind, permitted)
			two := l.member("two", kind, permitted)
			first := keepalived.Start(l, one.Netns, 200, keepalived.Instances())
			l.awaitMaster(one, keepalived.Instances())
			keepalived.Start(l, two.Netns, 100, keepalived.Instances())
			for _, v := range keepalived.Instances() {
				l.reach(client, v.Address.Addr())
			}
			l.mustServe(client, one, keepalived.Instances())

			began := time.Now()
			first.Stop()
			l.awaitMaster(two, keepalived.Instances())
			l.mustServe(client, two, keepalived.Instances())
			t.Logf("the client reaches all addresses %v after the master stopped", time.Since(began))

			keepalived.Start(l, one.Netns, 200, keepalived.Instances())
			l.awaitMaster(one, keepalived.Instances())
			l.mustServe(client, one, keepalived.Instances())

			began = time.Now()
			l.cni("DEL", one, nil) // without a word to the other one
			l.awaitMaster(two, keepalived.Instances())
			l.mustServe(client, two, keepalived.Instances())
			t.Logf("the client reaches all addresses %v after the pod of the master was deleted", time.Since(began))
		})
	}
}

// A pod of the network takes the addresses of a pair, by instances of its own. Without the permission its neighbours do
// not notice; with it they do, so the test can tell the difference.
func TestAPodWithoutPermissionCannotTakeAVirtualAddress(t *testing.T) {
	l := newVIPLab(t)
	client := l.member("client", "tap", "")
	owner := l.member("owner", "tap", permitted)
	keepalived.Start(l, owner.Netns, 200, keepalived.Instances())
	l.awaitMaster(owner, keepalived.Instances())
	for _, v := range keepalived.Instances() {
		l.reach(client, v.Address.Addr())
	}
	l.mustServe(client, owner, keepalived.Instances())

	var stolen []keepalived.Instance // by other virtual routers, so that the owner stays master
	for _, v := range keepalived.Instances() {
		if v.MAC == "" {
			v.Router += 100
			stolen = append(stolen, v)
		}
	}
	for _, options := range []string{"", permitted} {
		thief := l.member("thief"+fmt.Sprint(len(options)), "tap", options)
		taker := keepalived.Start(l, thief.Netns, 250, stolen)
		l.awaitMaster(thief, stolen)
		for _, v := range stolen {
			a := v.Address.Addr()
			l.await(func() bool { return taker.Announced(a) }, "announcement of "+a.String()+" by "+thief.Name)
			if options != "" {
				l.knows(client, a, thief)
				continue
			}
			l.mustReach(client, a)
			l.knows(client, a, owner)
		}
		taker.Stop()
		l.cni("DEL", thief, nil)
	}
}
