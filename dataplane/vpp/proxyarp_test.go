package vpp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/ip"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

func proxyOn(name, first, last string) object {
	v := wire.ProxyARP{
		Interface: name,
		VRF:       wire.VRFName("pods", netaddr.IP4),
		First:     netip.MustParseAddr(first),
		Last:      netip.MustParseAddr(last),
	}
	return object{wire.Key(wire.KindProxyARP, wire.ProxyARPName(name, v.First)), v}
}

// proxied describes the ranges and interfaces of the dataplane's proxy ARP.
func (l *lab) proxied() (parts []string) {
	l.Helper()
	there, err := proxyARPs{c: l.client}.parts(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	p, err := l.client.ports(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	for r := range there.ranges {
		parts = append(parts, fmt.Sprintf("%d:%s-%s", r.Table, r.First, r.Last))
	}
	for i := range there.interfaces {
		parts = append(parts, p.byIndex.of(i))
	}
	slices.Sort(parts)
	return parts
}

func (l *lab) mustProxy(want ...string) {
	l.Helper()
	if got := l.proxied(); !slices.Equal(got, want) {
		l.Errorf("the dataplane answers for %q, want %q", got, want)
	}
}

func TestProxyARPIsMadeReadBackChangedAndRemoved(t *testing.T) {
	l := newLab(t)
	l.mustCommit(ground()...)
	proxy := proxyOn("far", "10.5.0.0", "10.5.0.255")
	wider := proxyOn("far", "10.5.0.0", "10.5.1.255")
	l.mustCommit(proxy)
	l.quiet()
	l.mustCommit(wider)
	l.quiet()
	l.mustProxy("100:10.5.0.0-10.5.1.255", "far")
	off := func() {
		l.send(
			&arp.ProxyArpAddDel{
				Proxy: arp.ProxyArp{TableID: 100, Low: [4]byte{10, 5, 0, 0}, Hi: [4]byte{10, 5, 1, 255}},
			},
			&arp.ProxyArpAddDelReply{})
	}
	off()
	if got := len(l.differences()); got != 1 {
		t.Errorf("%d differences are seen, want 1", got)
	}
	l.resync()
	l.quiet()
	l.mustProxy("100:10.5.0.0-10.5.1.255", "far")
	off() // what is gone is deleted without error
	l.mustCommit(object{proxy.key, nil})
	l.mustProxy()
	for _, o := range ground() {
		l.mustCommit(object{o.key, nil})
	}
	if left := l.ours(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSharedPartsOfProxyARPAreRemovedWithTheLastObject(t *testing.T) {
	l := newLab(t)
	l.mustCommit(ground()...)
	onFar := proxyOn("far", "10.5.0.0", "10.5.0.255")
	onGate := proxyOn("gate", "10.5.0.0", "10.5.0.255")
	second := proxyOn("far", "10.6.0.0", "10.6.0.9")
	l.mustCommit(onFar, second)
	l.mustCommit(onGate, object{onFar.key, nil}) // in one transaction
	l.quiet()
	l.mustProxy("100:10.5.0.0-10.5.0.255", "100:10.6.0.0-10.6.0.9", "far", "gate")
	l.mustCommit(object{second.key, nil})
	l.quiet()
	l.mustProxy("100:10.5.0.0-10.5.0.255", "gate")
	l.mustCommit(onFar, second)
	l.mustCommit(object{onGate.key, nil}, object{onFar.key, nil}, object{second.key, nil})
	l.mustProxy()
}

func TestOrphanedProxyARPIsRemovedAndForeignOneKept(t *testing.T) {
	l := newLab(t)
	l.mustCommit(append(ground(), proxyOn("far", "10.5.0.0", "10.5.0.255"))...)
	add := func(table uint32, n byte) {
		l.send(
			&arp.ProxyArpAddDel{
				IsAdd: true,
				Proxy: arp.ProxyArp{TableID: table, Low: [4]byte{10, n, 0, 0}, Hi: [4]byte{10, n, 0, 9}},
			},
			&arp.ProxyArpAddDelReply{})
	}
	enable := func(i Index) {
		l.send(&arp.ProxyArpIntfcEnableDisable{SwIfIndex: i.api(), Enable: true},
			&arp.ProxyArpIntfcEnableDisableReply{})
	}
	_, gate, _ := l.s.View().Applied(ref(wire.KindInterface, "gate"))
	add(100, 7)
	enable(gate.(Index))
	l.send(&ip.IPTableAddDelV2{Table: ip.IPTable{TableID: 55, Name: "theirs"}, IsAdd: true}, &ip.IPTableAddDelV2Reply{})
	add(55, 8)
	theirs := l.looped(3, "")
	enable(theirs)
	l.resync()
	l.quiet()
	l.mustProxy(fmt.Sprintf("#%d", theirs), "100:10.5.0.0-10.5.0.255", "55:10.8.0.0-10.8.0.9", "far")
}

func TestClaimsOfUnknownObjectsEnd(t *testing.T) {
	c := &claims{of: map[string]claim{}}
	m := Proxy{ProxyRange{1, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, 7}
	c.set("a", m)
	needed := func() bool {
		r, i := c.need(m)
		return r && i
	}
	for n, step := range []struct {
		known map[string]wire.ProxyARP
		want  bool
	}{{nil, true}, {map[string]wire.ProxyARP{"a": {}}, true}, {nil, false}} {
		if n == 1 {
			c.set("a", m) // as a dump that finds it does
		}
		c.keep(step.known)
		if n == 2 {
			c.keep(step.known)
		}
		if needed() != step.want {
			t.Errorf("step %d: needed is %v", n, !step.want)
		}
	}
}
