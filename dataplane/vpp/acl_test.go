package vpp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// rule permits or denies UDP of IPv4 to some ports.
func rule(permit bool, first, last uint16) wire.ACLRule {
	ports := wire.ACLPorts{
		Protocols:    wire.Single(17),
		Sources:      wire.Range{Last: 65535},
		Destinations: wire.Range{First: first, Last: last},
	}
	return wire.ACLRule{Permit: permit, Family: netaddr.IP4, Ports: []wire.ACLPorts{ports}}
}

func aclOf(label string, rules ...wire.ACLRule) object {
	return object{wire.ACLKey(label), wire.ACL{Label: label, Rules: rules}}
}

func aclOn(iface, label string) object {
	return object{wire.InterfaceACLKey(iface), wire.InterfaceACL{Interface: iface, Input: []string{label}}}
}

// manyRules returns rules that differ.
func manyRules(n int) []wire.ACLRule {
	rules := make([]wire.ACLRule, n)
	for i := range rules {
		rules[i] = rule(true, uint16(i%0xffff), uint16(i%0xffff))
		rules[i].From = []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32),
		}
	}
	return rules
}

// combinations is a rule with sources and ports, n by m of which the dataplane has.
func combinations(n, m int) wire.ACLRule {
	r := rule(true, 1, 1)
	r.Ports = nil
	for i := range n {
		r.From = append(r.From, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 2}), 32))
	}
	for i := range m {
		r.Ports = append(r.Ports, rule(true, uint16(2*i), uint16(2*i)).Ports...)
	}
	return r
}

// A hostile policy may be a product that exceeds memory, so it is counted before anything is made.
func TestEntriesAreCountedWithoutMakingThem(t *testing.T) {
	r := combinations(20_000, 20_000)
	if got := countEntries([]wire.ACLRule{r, r}); got != 800_000_000 {
		t.Errorf("%d entries", got)
	}
	v := wire.ACL{Label: "x", Rules: []wire.ACLRule{r}}
	if n := testing.AllocsPerRun(1, func() { _ = validateACL("x", v) }); n > 10 {
		t.Errorf("%v allocations", n)
	}
	if validateACL("x", v) == nil {
		t.Error("400,000,000 rules are accepted")
	}
	small := combinations(3, 5)
	small.To = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("10.3.0.0/16")}
	n := 0
	for range entries([]wire.ACLRule{small}) {
		n++
	}
	if n != 30 || countEntries([]wire.ACLRule{small}) != n {
		t.Errorf("%d entries, counted %d", n, countEntries([]wire.ACLRule{small}))
	}
}

// plannedACL is the ACL of pods on layer 2 networks, as ipnet plans it.
func plannedACL(t *testing.T) object {
	t.Helper()
	file, err := os.Open("../../ipnet/testdata/node-dual.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var v wire.ACL
	lines := bufio.NewScanner(file)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		if value, ok := bytes.CutPrefix(lines.Bytes(), []byte(wire.ACLKey("weft:guard")+" ")); ok {
			if err := json.Unmarshal(value, &v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v.Label == "" {
		t.Fatal("the golden file has no ACL")
	}
	return object{wire.ACLKey(v.Label), v}
}

func TestACLsAreMadeReadBackChangedAndRemoved(t *testing.T) {
	any4 := wire.ACLRule{Permit: true, Family: netaddr.IP4}
	manyProtocols := wire.ACLRule{Permit: true, Family: netaddr.IP6, Ports: []wire.ACLPorts{
		{
			Protocols:    wire.Range{First: 1, Last: 255},
			Sources:      wire.Range{Last: 255},
			Destinations: wire.Range{First: 3, Last: 7},
		},
	}}
	prefixes := func(texts ...string) (list []netip.Prefix) {
		for _, text := range texts {
			list = append(list, netip.MustParsePrefix(text))
		}
		return list
	}
	sets := rule(true, 1, 2)
	sets.From, sets.To = prefixes("10.0.0.1/32", "10.0.0.4/30"), prefixes("10.1.0.0/16", "10.3.0.0/16", "10.9.0.0/32")
	sets.Ports = append(sets.Ports, rule(true, 9, 9).Ports[0])
	for name, trial := range map[string]trial{
		"of rules": {
			backendOf(aclDescriptor), aclOf("x", rule(false, 68, 68), any4), aclOf("x", any4, manyProtocols),
		},
		"of sets":      {backendOf(aclDescriptor), aclOf("x", sets, any4), aclOf("x", any4, sets)},
		"of all rules": {backendOf(aclDescriptor), plannedACL(t), object{}},
		"of many": {
			backendOf(aclDescriptor), aclOf("x", manyRules(10_000)...), aclOf("x", manyRules(maxACLRules)...),
		},
	} {
		t.Run(name, func(t *testing.T) { newLab(t).try([]object{loopback("a", wire.Interface{})}, trial) })
	}
	t.Run("of an interface", func(t *testing.T) {
		newLab(t).try([]object{
			loopback("a", wire.Interface{}), loopback("b", wire.Interface{}), aclOf("x", any4), aclOf("y", any4),
			aclOn("b", "x"),
		},
			trial{backendOf(interfaceACLDescriptor), aclOn("a", "x"), aclOn("a", "y")})
	})
}

// makeACL makes an ACL behind the scheduler's back.
func (l *lab) makeACL(tag string) uint32 {
	l.Helper()
	reply := &acl.ACLAddReplaceReply{}
	m := setACL(aclOf("x", rule(true, 1, 2)).value.(wire.ACL), noACLIndex).msg.(*acl.ACLAddReplace)
	m.Tag = tag
	l.send(m, reply)
	return reply.ACLIndex
}

// setACLs sets the lists of an interface behind the scheduler's back.
func (l *lab) setACLs(iface string, input uint8, acls ...uint32) {
	l.Helper()
	_, meta, _ := l.s.View().Applied(ref(wire.KindInterface, iface))
	l.send(
		&acl.ACLInterfaceSetACLList{SwIfIndex: meta.(Index).api(), Count: uint8(len(acls)), NInput: input, Acls: acls},
		&acl.ACLInterfaceSetACLListReply{})
}

// aclTags are the tags of all ACLs.
func (l *lab) aclTags() (tags []string) {
	l.Helper()
	r := dumpACLs(noACLIndex)
	l.client.exchange(l.Context(), r)
	if err := r.fault(); err != nil {
		l.Fatal(err)
	}
	for _, d := range listOf[*acl.ACLDetails](r) {
		tags = append(tags, d.Tag)
	}
	slices.Sort(tags)
	return tags
}

func TestACLsThatAreNotDesiredAreRemovedAndForeignOnesKept(t *testing.T) {
	l := newLab(t)
	x := aclOf("x", rule(true, 1, 2))
	tag := newTag("x", aclHash(x.value.(wire.ACL)))
	l.mustCommit(loopback("a", wire.Interface{}), loopback("b", wire.Interface{}), loopback("c", wire.Interface{}), x,
		aclOn("a", "x"))
	l.setACLs("b", 1, l.makeACL(newTag("gone", 7))) // of an earlier version of the agent
	l.setACLs("c", 1, l.makeACL("theirs"))
	l.setACLs("a", 1, l.makeACL(tag)) // made twice
	l.resync()
	l.quiet()
	if got, want := l.aclTags(), []string{"theirs", tag}; !slices.Equal(got, want) {
		t.Errorf("ACLs %q, want %q", got, want)
	}
	l.mustCommit(object{aclOn("a", "x").key, nil}, object{x.key, nil})
	if got, want := l.aclTags(), []string{"theirs"}; !slices.Equal(got, want) {
		t.Errorf("ACLs %q, want %q", got, want)
	}
}

func TestACLAndItsInterfacesAreRepaired(t *testing.T) {
	l := newLab(t)
	x := aclOf("x", rule(false, 68, 68))
	l.mustCommit(loopback("a", wire.Interface{}), x, aclOn("a", "x"))
	_, meta, _ := l.s.View().Applied(ref(wire.KindACL, "x"))
	ours := meta.(ACLIndex)
	for what, do := range map[string]func(){
		"none":               func() { l.setACLs("a", 0) },
		"a foreign one":      func() { l.setACLs("a", 1, l.makeACL("theirs")) },
		"a foreign one more": func() { l.setACLs("a", 2, l.makeACL("theirs too"), uint32(ours)) },
		"other rules": func() {
			m := setACL(aclOf("x", rule(true, 68, 68)).value.(wire.ACL), ours).msg.(*acl.ACLAddReplace)
			m.Tag = newTag("x", aclHash(x.value.(wire.ACL)))
			l.send(m, &acl.ACLAddReplaceReply{})
		},
		"a rule that Weft does not make": func() {
			m := setACL(x.value.(wire.ACL), ours).msg.(*acl.ACLAddReplace)
			m.R[0].TCPFlagsMask = 1
			l.send(m, &acl.ACLAddReplaceReply{})
		},
	} {
		do()
		if got := len(l.differences()); got != 1 {
			t.Errorf("%s: %d differences, want 1", what, got)
		}
		l.resync()
		l.quiet()
	}
}

func TestMemberJoinsBehindItsACL(t *testing.T) {
	l := newLab(t)
	filtered := inBridge("weft:blue", "a", func(v *wire.BridgeMember) { v.Filtered = true })
	x := aclOf("x", rule(true, 1, 2))
	on := aclOn("a", "x")
	l.mustCommit(bridge("weft:blue", learning(1)), loopback("a", wire.Interface{Up: true}))
	if err := l.commit(filtered); err == nil || !strings.Contains(err.Error(), on.key) {
		t.Errorf("without an ACL: %v", err)
	}
	l.mustCommit(filtered, on, x)
	l.quiet()
	l.mustCommit(object{x.key, nil}, object{on.key, nil}, object{filtered.key, nil})
	l.alwaysBefore(0, on.key, filtered.key)
	l.alwaysBefore(0, x.key, on.key)
}

func TestACLThatVPPWouldRefuseIsRefused(t *testing.T) {
	long := rule(true, 1, 2)
	long.Ports[0].Protocols.Last = 256
	empty := rule(true, 2, 1)
	for name, v := range map[string]wire.ACL{
		"no rules":       {Label: "x"},
		"too many rules": {Label: "x", Rules: manyRules(maxACLRules + 1)},
		"another name":   {Label: "y", Rules: []wire.ACLRule{rule(true, 1, 2)}},
		"no family":      {Label: "x", Rules: []wire.ACLRule{{Permit: true}}},
		"ports of any protocol": {
			Label: "x",
			Rules: []wire.ACLRule{{Family: netaddr.IP4, Ports: []wire.ACLPorts{{Sources: wire.Single(7)}}}},
		},
		"too many combinations":  {Label: "x", Rules: []wire.ACLRule{combinations(300, 267)}},
		"protocol 256":           {Label: "x", Rules: []wire.ACLRule{long}},
		"range without a number": {Label: "x", Rules: []wire.ACLRule{empty}},
		"protocol 0 among several": {
			Label: "x",
			Rules: []wire.ACLRule{{Family: netaddr.IP4, Ports: []wire.ACLPorts{{Protocols: wire.Range{Last: 3}}}}},
		},
	} {
		if err := validateACL("x", v); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := validateACL("weft:guard", plannedACL(t).value.(wire.ACL)); err != nil {
		t.Error(err)
	}
	if _, has := listsOf("a", &acl.ACLInterfaceListDetails{Acls: []uint32{4}, NInput: 1}, map[uint32]string{
		5: "x",
	}); has {
		t.Error("a foreign ACL is ours")
	}
	want := wire.InterfaceACL{Interface: "a", Input: []string{"#4"}, Output: []string{"x"}}
	if v, _ := listsOf("a", &acl.ACLInterfaceListDetails{Acls: []uint32{4, 5}, NInput: 1}, map[uint32]string{
		5: "x",
	}); !v.Equal(want) {
		t.Errorf("%+v, want %+v", v, want)
	}
}

func TestRulesOfPoliciesAreReadBackAsTheyWereWritten(t *testing.T) {
	source := []netip.Prefix{netip.MustParsePrefix("10.1.0.5/32")}
	port := []wire.ACLPorts{
		{Protocols: wire.Single(6), Sources: wire.Range{Last: 65535}, Destinations: wire.Single(80)},
	}
	for _, r := range []wire.ACLRule{
		{Permit: true, Reflect: true, Family: netaddr.IP4, From: source, Ports: port},
		{Permit: true, Reflect: true, Family: netaddr.IP6, To: []netip.Prefix{netip.MustParsePrefix("fd00::/64")}},
		{Family: netaddr.IP4, From: source, To: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}},
		{Permit: true, Family: netaddr.IP6},
	} {
		if err := validateACLRule(r); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
		for e := range entriesOfRule(&r) {
			if got := aclRulesOf([]acl_types.ACLRule{apiACLRule(e)}); len(got) != 1 || !got[0].Equal(r) {
				t.Errorf("%+v is read back as %+v", r, got)
			}
		}
	}
	for what, r := range map[string]wire.ACLRule{
		"a prefix of another family": {Family: netaddr.IP6, From: source},
		"host bits":                  {Family: netaddr.IP4, To: []netip.Prefix{netip.MustParsePrefix("10.1.0.5/16")}},
		"a session of a denial":      {Family: netaddr.IP4, Reflect: true},
	} {
		if validateACLRule(r) == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestRulesThatDifferInTheirOriginOnlyAreTheSame(t *testing.T) {
	a := aclOf("x", rule(true, 1, 2)).value.(wire.ACL)
	b := aclOf("x", rule(true, 1, 2)).value.(wire.ACL)
	b.Rules[0].Origin = "networkpolicy a/b"
	if !sameACL(a, b) || aclHash(a) != aclHash(b) {
		t.Error("the dataplane would get the same rules again")
	}
}
