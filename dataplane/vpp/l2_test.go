package vpp

import (
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/l2"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

func bridge(label string, v wire.BridgeDomain) object {
	v.Label = label
	return object{wire.BridgeDomainKey(label), v}
}

// learning is a bridge domain as networks have it.
func learning(id uint32) wire.BridgeDomain {
	return wire.BridgeDomain{ID: id, Learn: true, Flood: true, UUFlood: true, Forward: true, Age: 5}
}

func inBridge(label, iface string, more ...func(*wire.BridgeMember)) object {
	v := wire.BridgeMember{BridgeDomain: label, Interface: iface}
	for _, f := range more {
		f(&v)
	}
	return object{wire.BridgeMemberKey(iface), v}
}

func bvi(v *wire.BridgeMember) { v.BVI = true }

func l2Entry(label, iface string, m netaddr.MAC) object {
	return object{wire.L2FIBKey(label, m), wire.L2FIB{BridgeDomain: label, MAC: m, Interface: iface}}
}

// l2Ground is two bridge domains, of which one has two members.
func l2Ground() []object {
	up := wire.Interface{Up: true}
	return []object{
		bridge("weft:blue", learning(1)), bridge("weft:red", learning(2)),
		loopback("a", up), loopback("b", up), loopback("c", up),
		inBridge("weft:blue", "a"), inBridge("weft:blue", "b"),
	}
}

func l2Trials() map[string]trial {
	group := func(n uint8) func(*wire.BridgeMember) {
		return func(v *wire.BridgeMember) { v.SplitHorizonGroup = n }
	}
	return map[string]trial{
		"bridge domain": {backendOf(bridgeDescriptor),
			bridge("weft:green", learning(3)),
			bridge("weft:green", wire.BridgeDomain{ID: 3, Learn: true, Forward: true, Age: 7})},
		"bridge domain that gets its features later": {backendOf(bridgeDescriptor),
			bridge("weft:green", wire.BridgeDomain{ID: 1<<24 - 1}), bridge("weft:green", learning(1<<24-1))},
		"bridge domain of another number": {backendOf(bridgeDescriptor),
			bridge("weft:green", learning(3)), bridge("weft:green", learning(4))},
		"member": {backendOf(bridgeMemberDescriptor), inBridge("weft:blue", "c"), inBridge("weft:red", "c")},
		"member of a split-horizon group": {backendOf(bridgeMemberDescriptor),
			inBridge("weft:blue", "c", group(1)), inBridge("weft:blue", "c", group(2))},
		"BVI": {
			backendOf(bridgeMemberDescriptor), inBridge("weft:blue", "c", bvi), inBridge("weft:red", "c", bvi),
		},
		"member that becomes a BVI": {
			backendOf(bridgeMemberDescriptor), inBridge("weft:blue", "c"), inBridge("weft:blue", "c", bvi),
		},
		"entry of the MAC table": {
			backendOf(l2FIBDescriptor), l2Entry("weft:blue", "a", mac3), l2Entry("weft:blue", "b", mac3),
		},
		"entry of the MAC table, two": {backendOf(l2FIBDescriptor), l2Entry("weft:blue", "b", mac3), object{}},
	}
}

func TestEveryKindOfLayer2IsMadeReadBackChangedAndRemoved(t *testing.T) {
	for name, trial := range l2Trials() {
		t.Run(name, func(t *testing.T) { newLab(t).try(l2Ground(), trial) })
	}
}

func TestFeaturesOfABridgeDomainChangeInPlace(t *testing.T) {
	l := newLab(t)
	l.mustCommit(append(l2Ground(), inBridge("weft:blue", "c", bvi), l2Entry("weft:blue", "a", mac3))...)
	changed := learning(1)
	changed.Learn = false
	changed.Age = 9
	l.mustCommit(bridge("weft:blue", changed))
	l.quiet()
	record, err := l.s.Resync(t.Context(), kvscheduler.ResyncOpt{})
	if err != nil || len(record.Ops) > 0 {
		t.Errorf("resync does %v, %v", record.Ops, err)
	}
	there, err := bridges{l.client}.read(t.Context())
	if err != nil || len(there.byID[1].SwIfDetails) != 3 {
		t.Errorf("bridge domain %+v, %v: members were lost", there.byID[1], err)
	}
}

func TestEntryNeedsAMemberOfItsBridgeDomain(t *testing.T) {
	l := newLab(t)
	l.mustCommit(append(l2Ground(), inBridge("weft:red", "c"))...)
	if err := l.commit(l2Entry("weft:blue", "c", mac3)); err == nil || !strings.Contains(err.Error(), "member") {
		t.Errorf("an entry by a member of another bridge domain: %v", err)
	}
	l.mustCommit(inBridge("weft:blue", "c"), l2Entry("weft:blue", "c", mac3))
	l.quiet()
	l.mustCommit(inBridge("weft:red", "c")) // the entry goes first, and waits
	if entries := dumped(l, l2FIBDescriptor(l.client)); len(entries) > 0 {
		t.Errorf("entries by a member that has left: %v", entries)
	}
	l.mustCommit(inBridge("weft:blue", "c"))
	l.quiet()
}

func TestOnlyALoopbackIsABVI(t *testing.T) {
	netnstest.RequireTap(t)
	dataplane.RequireTap(t)
	l := newLab(t)
	path := netnstest.New(t)
	l.mustCommit(bridge("weft:blue", learning(1)), object{wire.NamespaceKey(path), wire.Namespace{Path: path}},
		object{
			wire.InterfaceKey("pod-a"),
			wire.Interface{Type: wire.TypeTap, Tap: wire.Tap{Namespace: path, Name: "eth0"}},
		})
	if err := l.commit(inBridge("weft:blue", "pod-a", bvi)); err == nil ||
		!strings.Contains(err.Error(), "pod-a is no loopback") {
		t.Errorf("a tap as BVI: %v", err)
	}
	l.mustCommit(inBridge("weft:blue", "pod-a"))
	l.quiet()
}

func TestForeignBridgeDomainsAreNotTouched(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l2Ground()...)
	theirs := l.looped(3, "")
	join := func(i Index, domain uint32) {
		l.send(&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: i.api(), BdID: domain, Enable: true},
			&l2.SwInterfaceSetL2BridgeReply{})
	}
	l.send(&l2.BridgeDomainAddDelV2{BdID: 55, BdTag: "theirs", IsAdd: true}, &l2.BridgeDomainAddDelV2Reply{})
	join(theirs, 55)
	l.send(&l2.L2fibAddDel{Mac: [6]byte(mac3), BdID: 55, SwIfIndex: theirs.api(), IsAdd: true, StaticMac: true},
		&l2.L2fibAddDelReply{})
	join(l.looped(4, ""), 66) // which makes one without a tag
	join(l.looped(5, ""), 1)  // a guest in ours
	l.send(&l2.L2fibAddDel{Mac: [6]byte(mac2), BdID: 1, SwIfIndex: theirs.api(), IsAdd: true, StaticMac: true},
		&l2.L2fibAddDelReply{})
	before := l.allBridges()
	l.quiet()
	l.resync()
	if after := l.allBridges(); !slices.Equal(after, before) {
		t.Errorf("bridge domains %v, want %v", after, before)
	}
	for id, says := range map[uint32]string{55: `belongs to "theirs"`, 66: `belongs to ""`} {
		if err := l.commit(bridge("weft:green", learning(id))); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("bridge domain %d is taken: %v", id, err)
		}
	}
}

// allBridges describes all bridge domains, in the order of the dataplane.
func (l *lab) allBridges() (found []string) {
	l.Helper()
	there, err := bridges{l.client}.read(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	for id, d := range there.byID {
		r := askAll(&l2.L2FibTableDump{BdID: uint32(id)}, &l2.L2FibTableDetails{})
		l.client.exchange(l.Context(), r)
		found = append(found, strings.Join([]string{
			d.BdTag, strings.Repeat("member ", len(d.SwIfDetails)), strings.Repeat("MAC ", len(r.details))}, " "))
	}
	slices.Sort(found)
	return found
}

func TestOrphanedBridgeDomainsAreRemoved(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l2Ground()...)
	for id, label := range map[uint32]string{70: "weft:old", 71: "weft:blue"} { // forgotten, and made twice
		l.send(&l2.BridgeDomainAddDelV2{BdID: id, BdTag: bridgePrefix + label, IsAdd: true},
			&l2.BridgeDomainAddDelV2Reply{})
	}
	stray, ok := l.s.View().Status(ref(wire.KindInterface, "c"))
	if !ok || stray.Phase != kvscheduler.InSync {
		t.Fatalf("c is %+v", stray)
	}
	_, meta, _ := l.s.View().Applied(ref(wire.KindInterface, "c"))
	l.send(&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: meta.(Index).api(), BdID: 70, Enable: true},
		&l2.SwInterfaceSetL2BridgeReply{})
	l.resync()
	l.quiet()
	there, err := bridges{l.client}.read(t.Context())
	if err != nil || len(there.byID) != 2 {
		t.Errorf("bridge domains %v, %v", there.names, err)
	}
}
