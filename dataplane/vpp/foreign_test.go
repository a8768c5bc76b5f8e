package vpp

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

// send asks the dataplane behind the scheduler's back.
func (l *lab) send(msg, reply api.Message) {
	l.Helper()
	r := ask(msg.GetMessageName(), msg, reply)
	l.client.exchange(l.Context(), r)
	if err := r.fault(); err != nil {
		l.Fatal(err)
	}
}

// looped creates a loopback with that number, tagged if tag is not empty.
func (l *lab) looped(instance uint32, tag string) Index {
	l.Helper()
	reply := &interfaces.CreateLoopbackInstanceReply{}
	l.send(&interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: instance}, reply)
	if tag != "" {
		l.send(&interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: reply.SwIfIndex, Tag: tag},
			&interfaces.SwInterfaceTagAddDelReply{})
	}
	return Index(reply.SwIfIndex)
}

// there lists all interfaces by the dataplane's names for them.
func (l *lab) there() []string {
	l.Helper()
	p, err := l.client.ports(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	var names []string
	for _, d := range p.list {
		names = append(names, d.InterfaceName)
	}
	return names
}

func (l *lab) resync() {
	l.Helper()
	if _, err := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{}); err != nil {
		l.Fatal(err)
	}
}

func TestForeignObjectsAreNeverTouched(t *testing.T) {
	l := newLab(t)
	l.mustCommit(ground()...)
	far, ok := l.s.View().Status(ref(wire.KindInterface, "far"))
	if !ok || far.Phase != kvscheduler.InSync {
		t.Fatalf("far is %+v", far)
	}
	_, meta, _ := l.s.View().Applied(ref(wire.KindInterface, "far"))
	l.looped(3, "")
	l.looped(4, "a third party")
	l.looped(5, "almost#ours")
	l.send(&ip.IPTableAddDelV2{Table: ip.IPTable{TableID: 55, Name: "theirs"}, IsAdd: true}, &ip.IPTableAddDelV2Reply{})
	learned := ip_neighbor.IPNeighbor{
		SwIfIndex:  meta.(Index).api(),
		MacAddress: [6]byte(mac3),
		IPAddress:  apiAddress(linkLocalOf(mac3)),
	}
	l.send(&ip_neighbor.IPNeighborAddDel{IsAdd: true, Neighbor: learned}, &ip_neighbor.IPNeighborAddDelReply{})
	before := l.there()
	l.quiet()
	l.resync()
	if after := l.there(); !slices.Equal(after, before) {
		t.Errorf("interfaces %v, want %v", after, before)
	}
	owners, err := vrfs{c: l.client}.owners(t.Context())
	if err != nil || owners[Table{55, netaddr.IP4}] != "theirs" {
		t.Errorf("tables %v, %v", owners, err)
	}
	blue := object{wire.VRFKey("blue", netaddr.IP4), wire.VRF{ID: 55, Family: netaddr.IP4, Label: "blue"}}
	if err := l.commit(blue); err == nil || !strings.Contains(err.Error(), `belongs to "theirs"`) {
		t.Errorf("a table of others is taken: %v", err)
	}
}

// A restarted dataplane gives the number to the next interface of any client.
func TestAnInterfaceWhoseNumberAnotherProgramUsesIsNotDeleted(t *testing.T) {
	l := newLab(t)
	gate := loopback("gate", wire.Interface{MAC: mac1})
	l.mustCommit(gate)
	_, meta, _ := l.s.View().Applied(ref(wire.KindInterface, "gate"))
	theirs := &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: meta.(Index).api(), Tag: "a third party"}
	l.send(theirs, &interfaces.SwInterfaceTagAddDelReply{})
	before := l.there()
	l.mustCommit(object{gate.key, nil})
	if after := l.there(); !slices.Equal(after, before) {
		t.Errorf("interfaces %v, want %v", after, before)
	}
}

func TestInterruptedCreationsAreRemoved(t *testing.T) {
	l := newLab(t)
	before := l.there()
	l.looped(firstInstance+1, "") // died between creation and tag
	// of an agent that has forgotten it
	l.looped(firstInstance+2, interfaceTag("old", wire.Interface{Type: "loopback"}))
	gate := loopback("gate", wire.Interface{MAC: mac1})
	l.mustCommit(gate)
	l.looped(firstInstance+3, interfaceTag("gate", gate.value.(wire.Interface))) // made twice
	l.resync()
	l.quiet()
	l.mustCommit(object{gate.key, nil})
	if after := l.there(); !slices.Equal(after, before) {
		t.Errorf("interfaces %v, want %v", after, before)
	}
}

// A dataplane with pending requests of a lost connection may have created an interface twice and given its addresses to
// the second one.
func TestDuplicateInterfaceLosesItsAddresses(t *testing.T) {
	l := newLab(t)
	before := l.there()
	prefix := netip.MustParsePrefix("192.0.2.1/32")
	gate := loopback("gate", wire.Interface{MAC: mac1, Up: true})
	address := wire.Address{Interface: "gate", Prefix: prefix}
	held := object{wire.AddressKey("gate", prefix), address}
	pods := object{wire.VRFKey("pods", netaddr.IP4), wire.VRF{ID: 100, Family: netaddr.IP4, Label: "pods"}}
	l.mustCommit(pods, gate, member("gate", netaddr.IP4), held)
	_, meta, _ := l.s.View().Applied(ref(wire.KindInterface, "gate"))
	first := meta.(Index)
	second := l.looped(firstInstance+3, interfaceTag("gate", gate.value.(wire.Interface)))
	l.send(&interfaces.SwInterfaceSetTable{SwIfIndex: second.api(), VrfID: 100}, &interfaces.SwInterfaceSetTableReply{})
	for _, r := range []*request{addDelAddress(address, first, false), addDelAddress(address, second, true)} {
		if l.client.exchange(t.Context(), r); r.fault() != nil {
			t.Fatal(r.fault())
		}
	}
	l.resync()
	l.quiet()
	l.mustCommit(object{held.key, nil}, object{member("gate", netaddr.IP4).key, nil}, object{gate.key, nil}, object{
		pods.key, nil,
	})
	if after := l.there(); !slices.Equal(after, before) {
		t.Errorf("interfaces %v, want %v", after, before)
	}
}

func TestTapIsMadeInANamespaceWithALongPath(t *testing.T) {
	netnstest.RequireTap(t)
	dataplane.RequireTap(t)
	l := newLab(t)
	path := netnstest.New(t)
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 20))
	if err := os.WriteFile(long, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(path, long, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(long, unix.MNT_DETACH) }()
	err := l.commit(object{wire.NamespaceKey(long), wire.Namespace{Path: long}}, object{wire.InterfaceKey("pod-a"),
		wire.Interface{
			Type: wire.TypeTap,
			MAC:  mac1,
			Tap:  wire.Tap{Namespace: long, Name: "eth0", MAC: mac2, MTU: 1500},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if got := linkIn(t, path, "eth0"); got != "02:00:00:00:00:02 1500" {
		t.Errorf("the Linux end has %q", got)
	}
	l.quiet()
}
