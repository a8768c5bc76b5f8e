package vpp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

func TestOwnPortsAreThoseWithOurTag(t *testing.T) {
	netnstest.RequireTap(t)
	dataplane.RequireTap(t)
	l := newLab(t)
	path := netnstest.New(t)
	end := wire.Tap{Namespace: path, Name: "eth0", MAC: mac2, MTU: 1450}
	pod := object{wire.InterfaceKey("pod-a"), wire.Interface{Type: wire.TypeTap, MAC: mac1, MTU: 1500, Tap: end}}
	l.mustCommit(append(ground(), object{wire.NamespaceKey(path), wire.Namespace{Path: path}}, pod,
		member("pod-a", netaddr.IP4), member("pod-a", netaddr.IP6),
		neighbourOn("pod-a", "10.1.0.5", mac2), neighbourOn("pod-a", "fd00::5", mac2),
		neighbourOn("far", "10.1.0.6", mac2))...)
	l.strangersTap(path)
	taps, err := l.client.Inventory().OwnPorts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(taps) != 1 || taps[0].Name != "pod-a" || taps[0].Interface.Tap != end {
		t.Fatalf("own taps %+v, want pod-a with %+v", taps, end)
	}
	if got := fmt.Sprint(taps[0].Addresses); got != "[10.1.0.5 fd00::5]" {
		t.Errorf("addresses %s", got)
	}
	if taps[0].PeerMAC != mac2 {
		t.Errorf("MAC %s of the neighbours, want %s", taps[0].PeerMAC, mac2)
	}
	if !taps[0].MadeAs(wire.Interface{Type: wire.TypeTap, Tap: end}) {
		t.Error("the tap was made as it says, and does not say so")
	}
	end.MAC = mac3
	if taps[0].MadeAs(wire.Interface{Type: wire.TypeTap, Tap: end}) {
		t.Error("the tap says that it was made with another MAC")
	}
}

func TestATapIsKnownByItsLongNamespace(t *testing.T) {
	netnstest.RequireTap(t)
	dataplane.RequireTap(t)
	l := newLab(t)
	path := netnstest.New(t)
	long := filepath.Join(t.TempDir(), strings.Repeat("n", maxNamespace))
	if err := os.Symlink(path, long); err != nil {
		t.Fatal(err)
	}
	end := wire.Tap{Namespace: long, Name: "eth0"}
	l.mustCommit(object{wire.NamespaceKey(long), wire.Namespace{Path: long}},
		object{wire.InterfaceKey("pod-a"), wire.Interface{Type: wire.TypeTap, MAC: mac1, Tap: end}})
	taps, err := l.client.Inventory().OwnPorts(t.Context())
	if err != nil || len(taps) != 1 {
		t.Fatalf("own taps %+v, error %v", taps, err)
	}
	if taps[0].Interface.Tap.Namespace == long || !taps[0].MadeAs(wire.Interface{Type: wire.TypeTap, Tap: end}) {
		t.Errorf("tap %+v, want one that says otherwise and was made as %+v", taps[0], end)
	}
}

func TestAnInterfaceOnAVethIsAPortToo(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	path := netnstest.New(t)
	on := afPacket("a", wire.Interface{MAC: mac1, MTU: 1400, Up: true})
	l.mustCommit(append(vethOf(t, path, "a"), on)...)
	ports, err := l.client.Inventory().OwnPorts(t.Context())
	if err != nil || len(ports) != 1 {
		t.Fatalf("own ports %+v, error %v", ports, err)
	}
	p := ports[0]
	want := on.value.(wire.Interface)
	if p.Name != "a" || p.Interface.Type != wire.TypeAFPacket || p.Interface.AFPacket.Link != "wefta" ||
		p.Interface.MTU != 1400 {
		t.Errorf("port %+v", p)
	}
	if !p.MadeAs(want) || p.MadeAs(p.Interface) {
		t.Error("the tag does not tell what makes the link")
	}
}

func TestPortsHaveLabelsOfTheirNetworks(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	a := netnstest.New(t)
	b := netnstest.New(t)
	routed := append(append(ground(), vethOf(t, b, "b")...), afPacket("b", wire.Interface{MTU: 1500}),
		member("b", netaddr.IP4), member("b", netaddr.IP6))
	l.mustCommit(append(append(routed, bridge("weft:blue", learning(7))), bridgedPodOf(t, a, "a", "10.7.0.1/24")...)...)
	ports, err := l.client.Inventory().OwnPorts(t.Context())
	if err != nil || len(ports) != 2 {
		t.Fatalf("own ports %+v, error %v", ports, err)
	}
	tables, domains, err := l.client.Inventory().OwnNumbers(t.Context())
	if err != nil || len(tables) != 1 || len(domains) != 1 || domains["weft:blue"] != 7 {
		t.Fatalf("tables %v, bridge domains %v, error %v", tables, domains, err)
	}
	if got := ports[0].Labels; len(got) != 1 || got[0] != "weft:blue" {
		t.Errorf("a is in %q", got)
	}
	if got := ports[1].Labels; len(got) != 1 || tables[got[0]] == 0 {
		t.Errorf("b is in %q, and the tables are %v", got, tables)
	}
}

// strangersTap creates a tap with a foreign tag.
func (l *lab) strangersTap(path string) {
	l.Helper()
	r := ask("tap_create_v3", &tapv2.TapCreateV3{
		ID: uint32(noIndex), UseRandomMac: true, HostNamespaceSet: true, HostNamespace: path,
		HostIfNameSet: true, HostIfName: "eth9", Tag: "another's",
	}, &tapv2.TapCreateV3Reply{})
	l.client.exchange(l.Context(), r)
	if err := r.fault(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		gone := ask("tap_delete_v2", &tapv2.TapDeleteV2{SwIfIndex: r.reply.(*tapv2.TapCreateV3Reply).SwIfIndex},
			&tapv2.TapDeleteV2Reply{})
		l.client.exchange(l.Context(), gone)
	})
}
