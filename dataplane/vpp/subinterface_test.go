package vpp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

// subOn is an interface for tags of the memif "trunk".
func subOn(name string, s wire.Sub) object {
	s.Parent = "trunk"
	return object{wire.InterfaceKey(name), wire.Interface{Type: wire.TypeSub, Up: s.Tags() > 0, Sub: s}}
}

// untaggedMember is a member of a bridge domain without the tags of its frames.
func untaggedMember(name, domain string, tags int) object {
	return object{
		wire.BridgeMemberKey(name), wire.BridgeMember{BridgeDomain: domain, Interface: name, Untag: tags},
	}
}

// trunkGround is a memif with two bridge domains.
func (l memifLab) trunkGround() []object {
	return append(l.allocation("a", 7), memifOn("trunk", "a", 1), bridge("blue.100", learning(5)),
		bridge("blue.200", learning(6)))
}

func TestSubInterfacesAreMadeReadBackChangedAndRemoved(t *testing.T) {
	for name, trial := range map[string]trial{
		"a VLAN": {backendOf(interfaceDescriptor), subOn("s", wire.Sub{VLAN: 100}), subOn("s", wire.Sub{VLAN: 101})},
		"a pair": {
			backendOf(interfaceDescriptor), subOn("s", wire.Sub{Outer: 500, VLAN: 100}), subOn("s", wire.Sub{VLAN: 100}),
		},
		"the rest": {backendOf(interfaceDescriptor), subOn("s", wire.Sub{}), object{}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newMemifLab(t)
			l.try(l.trunkGround(), trial)
		})
	}
}

func TestMembersOfATrunkAreUntagged(t *testing.T) {
	for name, trial := range map[string]trial{
		"in another bridge domain": {
			backendOf(bridgeMemberDescriptor), untaggedMember("s", "blue.100", 1), untaggedMember("s", "blue.200", 1),
		},
		"with the tags": {
			backendOf(bridgeMemberDescriptor), untaggedMember("q", "blue.100", 2), untaggedMember("q", "blue.100", 0),
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newMemifLab(t)
			subs := []object{subOn("s", wire.Sub{VLAN: 100}), subOn("q", wire.Sub{Outer: 500, VLAN: 100})}
			l.try(append(l.trunkGround(), subs...), trial)
		})
	}
}

// A dataplane deletes sub-interfaces with the interface whose frames they receive.
func TestSubInterfacesFollowTheirParent(t *testing.T) {
	l := newMemifLab(t)
	l.mustCommit(l.trunkGround()...)
	l.mustCommit(subOn("s", wire.Sub{VLAN: 100}), untaggedMember("s", "blue.100", 1))
	l.mustCommit(memifOn("trunk", "a", 2)) // needs another memif
	l.quiet()
	p, err := l.client.ports(l.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := p.byName["s"]
	if d == nil || untagged(d) != 1 || p.byIndex.of(Index(d.SupSwIfIndex)) != "trunk" {
		t.Errorf("after the change of its parent: %+v", d)
	}
}

// An interrupted creation leaves a sub-interface without a tag.
func TestASubInterfaceWithoutTagIsAdopted(t *testing.T) {
	l := newMemifLab(t)
	l.mustCommit(l.trunkGround()...)
	p, err := l.client.ports(l.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := newSub("s", wire.Sub{Parent: "trunk", VLAN: 100}, Index(p.byName["trunk"].SwIfIndex))
	if err := l.client.exchangeAll(l.Context(), []*request{r}); err != nil {
		t.Fatal(err)
	}
	l.mustCommit(subOn("s", wire.Sub{VLAN: 100}))
	l.quiet()
}

// The kernel takes the outer tag off the frames of a card, and VPP puts another one back.
func TestPairsOfTagsOnACardAreRefusedByVPP(t *testing.T) {
	d := newRuins(t)
	l := newWholeLab(t, d.socket, nil)
	l.mustCommit(append(vethOf(t, netnstest.New(t), "trunk"), afPacket("trunk", wire.Interface{Up: true}))...)
	err := l.commit(subOn("q", wire.Sub{Outer: 500, VLAN: 100}))
	refused := err != nil && strings.Contains(err.Error(), "VPP does not receive tags of 802.1ad from a network card")
	if dataplane.Prefix() == "" && err != nil || dataplane.Prefix() != "" && !refused {
		t.Errorf("a pair of tags: %v", err)
	}
	l.mustCommit(subOn("s", wire.Sub{VLAN: 100}))
	l.quiet()
}

func TestPairsOfTagsAreRefusedOnLinksOnly(t *testing.T) {
	p := &ports{links: map[Index]string{7: "eth1"}}
	pair := wire.Sub{Parent: "trunk", Outer: 500, VLAN: 100}
	if err := p.outerRefusal(pair, 7); err == nil || !strings.Contains(err.Error(), "outer VLAN 500 on eth1") {
		t.Errorf("on a link: %v", err)
	}
	if err := p.outerRefusal(pair, 8); err != nil {
		t.Errorf("on a memif: %v", err)
	}
}

func TestValidateRejectsInvalidSubInterfaces(t *testing.T) {
	for why, s := range map[string]wire.Sub{
		"a name has 1 to 48 bytes":                {VLAN: 1},
		"VLAN 4095 is not within 1 and 4094":      {Parent: "a", VLAN: 4095},
		"outer VLAN 4095 of VLAN 1":               {Parent: "a", VLAN: 1, Outer: 4095},
		"outer VLAN 5 of VLAN 0":                  {Parent: "a", Outer: 5},
		"the rest of the tagged frames is droppe": {Parent: "a"},
	} {
		v := wire.Interface{Type: wire.TypeSub, Up: true, Sub: s}
		if err := validateInterface("s", v); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%+v: %v, want %q", s, err, why)
		}
	}
	if err := validateInterface("s", wire.Interface{Type: wire.TypeTap, Sub: wire.Sub{Parent: "a"}}); err == nil {
		t.Error("a tap has tags")
	}
}

func TestSubInterfacesHaveDifferentNumbers(t *testing.T) {
	names := []string{}
	for _, s := range []wire.Sub{{VLAN: 1}, {VLAN: 2}, {Outer: 1, VLAN: 2}, {}} {
		names = append(names, fmt.Sprint(idOf(s)))
	}
	if slices.Sort(names); len(slices.Compact(names)) != 4 {
		t.Errorf("numbers of sub-interfaces: %v", names)
	}
}
