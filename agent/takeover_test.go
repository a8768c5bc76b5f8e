package agent

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
)

// takeovers are what programs in pods do with eth0, given the pod's network namespace. They return the namespace where
// the pod's address is afterwards.
func takeovers() map[string]func(t *testing.T, netns string) string {
	return map[string]func(t *testing.T, netns string) string{
		"renamed": func(t *testing.T, netns string) string {
			netnstest.Do(t, netns, func() {
				link, config := takenDown(t)
				must.Succeed(t, netlink.LinkSetName(link, "wan0"))
				config.restoreTo(t, link)
			})
			return netns
		},
		"port of a bridge with the address": func(t *testing.T, netns string) string {
			netnstest.Do(t, netns, func() {
				link, config := takenDown(t)
				bridge := newBridge(t, link.Attrs().HardwareAddr)
				must.Succeed(t, errors.Join(netlink.LinkSetMaster(link, bridge), netlink.LinkSetUp(link)))
				config.restoreTo(t, bridge)
			})
			return netns
		},
		"in a nested namespace": func(t *testing.T, netns string) string {
			nested := netnstest.New(t)
			to, err := os.Open(nested)
			must.Succeed(t, err)
			defer to.Close()
			var config linkConfig
			netnstest.Do(t, netns, func() {
				var link netlink.Link
				link, config = takenDown(t)
				must.Succeed(t, netlink.LinkSetNsFd(link, int(to.Fd())))
			})
			netnstest.Do(t, nested, func() { config.restoreTo(t, mustLink(t, "eth0")) })
			return nested
		},
		"binding of a virtual machine": bindVirtualMachine,
	}
}

// bindVirtualMachine does what KubeVirt's bridge binding does (virt-launcher, "bridge" of the interface): eth0 becomes
// the port eth0-nic of a bridge with another MAC, a dummy with the pod's address has the name eth0, and the machine has
// the pod's MAC and address. The machine is a namespace with a veth to the bridge.
func bindVirtualMachine(t *testing.T, netns string) string {
	machine := netnstest.New(t)
	to, err := os.Open(machine)
	must.Succeed(t, err)
	defer to.Close()
	var config linkConfig
	netnstest.Do(t, netns, func() {
		var link netlink.Link
		link, config = takenDown(t)
		mac := link.Attrs().HardwareAddr
		for _, a := range config.addresses {
			must.Succeed(t, netlink.AddrDel(link, &netlink.Addr{IPNet: a.IPNet}))
		}
		<-time.After(500 * time.Millisecond) // longer than the agent collects notifications
		must.Succeed(t, netlink.LinkSetName(link, "eth0-nic"))
		must.Succeed(t, netlink.LinkSetHardwareAddr(link, []byte{2, 7, 7, 7, 7, 7}))
		bridge := newBridge(t, []byte{2, 7, 7, 7, 7, 8})
		must.Succeed(t,
			errors.Join(netlink.LinkSetMaster(link, bridge), netlink.LinkSetUp(link), netlink.LinkSetUp(bridge)))
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: "tap0", MasterIndex: bridge.Attrs().Index})
		pair.PeerName = "enp1s0"
		pair.PeerHardwareAddr = mac
		pair.PeerNamespace = netlink.NsFd(int(to.Fd()))
		must.Succeed(t, errors.Join(netlink.LinkAdd(pair), netlink.LinkSetUp(pair)))
		dummy := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}} // kernels without dummy links have bridges
		must.Succeed(t, netlink.LinkAdd(dummy))
		for _, a := range config.addresses {
			must.Succeed(t, netlink.AddrAdd(dummy, &netlink.Addr{IPNet: a.IPNet, Flags: a.Flags}))
		}
	})
	netnstest.Do(t, machine, func() { config.restoreTo(t, mustLink(t, "enp1s0")) })
	return machine
}

// linkConfig are the IPv4 addresses, neighbours and routes of a link.
type linkConfig struct {
	addresses  []netlink.Addr
	neighbours []netlink.Neigh
	routes     []netlink.Route
}

// takenDown sets eth0 down, which a rename may need, and returns it with its configuration. It runs in the pod's
// namespace.
func takenDown(t *testing.T) (link netlink.Link, c linkConfig) {
	t.Helper()
	link = mustLink(t, "eth0")
	var err error
	c.addresses, err = netlink.AddrList(link, netlink.FAMILY_V4)
	must.Succeed(t, err)
	c.neighbours, err = netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
	must.Succeed(t, err)
	c.routes, err = netlink.RouteList(link, netlink.FAMILY_V4)
	must.Succeed(t, err)
	must.Succeed(t, netlink.LinkSetDown(link))
	return link, c
}

// restoreTo sets a link up with a configuration.
func (c linkConfig) restoreTo(t *testing.T, link netlink.Link) {
	t.Helper()
	must.Succeed(t, netlink.LinkSetUp(link))
	for _, a := range c.addresses {
		must.Succeed(t, netlink.AddrReplace(link, &netlink.Addr{IPNet: a.IPNet}))
	}
	for _, n := range c.neighbours {
		if n.State&netlink.NUD_PERMANENT != 0 {
			n.LinkIndex = link.Attrs().Index
			must.Succeed(t, netlink.NeighSet(&n))
		}
	}
	for _, hasGateway := range []bool{false, true} {
		for _, r := range c.routes {
			if (r.Gw != nil) == hasGateway {
				r.LinkIndex = link.Attrs().Index
				r.Flags &= int(netlink.FLAG_ONLINK)
				must.Succeed(t, netlink.RouteReplace(&r))
			}
		}
	}
}

func mustLink(t *testing.T, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	must.Succeed(t, err)
	return link
}

func newBridge(t *testing.T, mac []byte) netlink.Link {
	t.Helper()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "k6t-eth0", HardwareAddr: mac}}
	if err := netlink.LinkAdd(bridge); err != nil {
		t.Skip("needs bridges: ", err)
	}
	return mustLink(t, "k6t-eth0")
}

// A program in a pod takes eth0 over. The agent leaves it alone: no drift, CHECK succeeds, the audit finds nothing,
// packets flow, also after the agent was killed and started. DEL leaves nothing.
func TestInterfaceThatThePodTookOverIsLeftAlone(t *testing.T) {
	for _, linkType := range []string{"tap", "veth"} {
		for name, take := range takeovers() {
			t.Run(linkType+" "+name, func(t *testing.T) {
				d := newDriftLab(t, linkType, "--audit=2s")
				where := take(t, d.pod.Netns)
				d.undisturbed(2 * podGrace)
				d.audited()
				if err := errors.Join(d.KillAgent(), d.StartAgent(t.Context(), "--audit=2s")); err != nil {
					t.Fatal(err)
				}
				d.undisturbed(podGrace)
				d.text("resync", "downstream")
				d.undisturbed(0)
				d.cni("DEL", d.pod, nil)
				d.hasNoLinkOfWeft(d.pod.Netns)
				d.hasNoLinkOfWeft(where)
			})
		}
	}
}

// podGrace is the time for which the agent waits for a program in a pod.
const podGrace = 3 * time.Second

// undisturbed waits, and fails the test if the pod is not connected and as the ADD promised, or if drift was repaired.
func (d *driftLab) undisturbed(wait time.Duration) {
	d.Helper()
	<-time.After(wait)
	d.check(d.pod, d.result)
	d.mustReach(d.other, d.address)
	if events := d.driftEvents(); len(events) > 0 {
		d.Errorf("drift: %q", events)
	}
}

// audited fails the test if an audit finds a difference.
func (d *driftLab) audited() {
	d.Helper()
	var audit struct {
		Objects int
		Found   []any
	}
	d.ctl(&audit, "audit")
	if audit.Objects == 0 || len(audit.Found) > 0 {
		d.Errorf("an audit of %d objects found %v", audit.Objects, audit.Found)
	}
}

// hasNoLinkOfWeft fails the test if a link in a namespace has Weft's alias.
func (d *driftLab) hasNoLinkOfWeft(netns string) {
	d.Helper()
	netnstest.Do(d, netns, func() {
		links, err := netlink.LinkList()
		must.Succeed(d.T, err)
		if slices.ContainsFunc(links, func(l netlink.Link) bool {
			return strings.HasPrefix(l.Attrs().Alias, "weft:")
		}) {
			d.Errorf("a link of Weft is left in %s", netns)
		}
	})
}
