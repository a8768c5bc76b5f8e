package forward_test

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// onLink makes 10.1.1.0/24 and fd00::/64 subnets of the pod's link.
func (p *pod) onLink(t *testing.T) {
	t.Helper()
	netnstest.Do(t, p.namespace, func() {
		link, err := netlink.LinkByName(p.info.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, prefix := range []string{"10.1.1.0/24", "fd00::/64"} {
			r := netlink.Route{
				LinkIndex: link.Attrs().Index,
				Dst:       network(netip.MustParsePrefix(prefix)),
				Scope:     netlink.SCOPE_LINK,
			}
			if err := netlink.RouteAdd(&r); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Pods in one subnet reach each other through an interface that answers for them.
func TestPodsReachOthersThroughProxies(t *testing.T) {
	for rule, answer := range map[string]func(l *lab, b *pod) error{
		"for a range and a host": func(l *lab, b *pod) error {
			l.engine.SetProxies(forward.Proxies{
				ARP: []forward.ProxyRange{{Low: b.v4, High: b.v4}},
				ND:  []forward.ProxyHost{{Addr: b.v6, Interface: b.index}},
			})
			return l.proxy(l.pods[0], forward.Interface{ProxyARP: true})
		},
		"for everyone": func(l *lab, b *pod) error {
			l.engine.SetProxies(forward.Proxies{
				ARP: []forward.ProxyRange{
					{High: netip.MustParseAddr("255.255.255.255"), Low: netip.MustParseAddr("0.0.0.1")},
				},
			})
			return l.proxy(l.pods[0], forward.Interface{ProxyARP: true, ProxyND: true})
		},
	} {
		t.Run(rule, func(t *testing.T) {
			l := newLab(t)
			a := l.pod()
			b := l.vethPod(cable{})
			if err := answer(l, b); err != nil {
				t.Fatal(err)
			}
			l.engine.Publish()
			a.onLink(t)
			a.wantReply(t, ping{to: b.v4})
			a.wantReply(t, ping{to: b.v6})
		})
	}
}

// proxy changes the pod's interface.
func (l *lab) proxy(p *pod, i forward.Interface) error {
	i.Up = true
	i.MAC = frame.MAC{2, 0, 0, 0, 0, byte(p.index)}
	i.LinkLocal = gateway6
	i.IP6Enabled = true
	i.Addresses = []netip.Addr{gateway4, netip.MustParseAddr("fd00::ffff")}
	return l.engine.SetInterface(p.index, i)
}

// A pod with MACIP rules reaches others from its own address only.
func TestSpoofedPacketsAreDropped(t *testing.T) {
	l := newLab(t)
	a := l.pod(func(_ *pod, c *port.TapConfig) {
		c.HostAddresses = append(c.HostAddresses, netip.MustParsePrefix("10.1.1.99/32"),
			netip.MustParsePrefix("fd00::99/128"))
	})
	b := l.vethPod(cable{})
	var rules []forward.MACIPRule
	for _, prefix := range []string{"10.1.1.1/32", "fd00::1/128", "fe80::/64"} {
		rules = append(rules, forward.MACIPRule{
			Permit: true,
			MAC:    a.info.HostMAC,
			Mask:   frame.Broadcast,
			Prefix: netip.MustParsePrefix(prefix),
		})
	}
	if err := l.proxy(a, forward.Interface{MACIP: forward.NewMACIPFilter(rules)}); err != nil {
		t.Fatal(err)
	}
	l.engine.Publish()
	a.sendFrom(t, netip.MustParseAddr("10.1.1.99"), b.v4)
	a.sendFrom(t, netip.MustParseAddr("fd00::99"), b.v6)
	eventually(t, "both are dropped: the ARP request and the neighbour solicitation", func() bool {
		drops := l.engine.Drops()
		return drops["l2-input-acl/input ACL misses"] > 0 && drops["ip6-inacl/input ACL misses"] > 0
	})
	a.wantReply(t, ping{to: b.v4})
	a.wantReply(t, ping{to: b.v6})
	b.wantReply(t, ping{to: a.v4})
}
