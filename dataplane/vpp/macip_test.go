package vpp

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/wire"
)

// macipOn permits sources with mac3 on an interface.
func macipOn(name string, sources ...string) object {
	v := wire.MACIP{Interface: name}
	for _, s := range sources {
		v.Rules = append(v.Rules, wire.MACIPRule{MAC: mac3, Source: netip.MustParsePrefix(s)})
	}
	return object{wire.MACIPKey(name), v}
}

func TestRulesForSendersAreMadeReadBackChangedAndRemoved(t *testing.T) {
	newLab(t).try([]object{
		loopback("a", wire.Interface{}), loopback("b", wire.Interface{}), macipOn("b", "10.0.0.9/32"),
	},
		trial{
			backendOf(macipDescriptor), macipOn("a", "10.0.0.1/32", "fd00::1/128", "fe80::1/128"),
			macipOn("a", "10.0.0.0/24"),
		})
}

// list makes a list behind the scheduler's back, applied to an interface if one is named.
func (l *lab) list(tag, iface string) ACL {
	l.Helper()
	reply := &acl.MacipACLAddReplaceReply{}
	l.send(&acl.MacipACLAddReplace{ACLIndex: uint32(noACL), Tag: tag, Count: 1,
		R: []acl_types.MacipACLRule{
			{IsPermit: acl_types.ACL_ACTION_API_PERMIT, SrcPrefix: apiPrefix(netip.MustParsePrefix("10.0.0.0/8"))},
		}}, reply)
	if iface != "" {
		_, meta, _ := l.s.View().Applied(ref(wire.KindInterface, iface))
		l.send(&acl.MacipACLInterfaceAddDel{IsAdd: true, SwIfIndex: meta.(Index).api(), ACLIndex: reply.ACLIndex},
			&acl.MacipACLInterfaceAddDelReply{})
	}
	return ACL(reply.ACLIndex)
}

// lists are the tags of all lists.
func (l *lab) lists() (tags []string) {
	l.Helper()
	r := dumpLists(noACL)
	l.client.exchange(l.Context(), r)
	if err := r.fault(); err != nil {
		l.Fatal(err)
	}
	for _, d := range listOf[*acl.MacipACLDetails](r) {
		tags = append(tags, d.Tag)
	}
	slices.Sort(tags)
	return tags
}

func TestOrphanedListsAreRemovedAndForeignOnesKept(t *testing.T) {
	l := newLab(t)
	a := macipOn("a", "10.0.0.1/32")
	tag := newTag("a", macipHash(a.value.(wire.MACIP)))
	l.mustCommit(loopback("a", wire.Interface{}), loopback("b", wire.Interface{}), a)
	l.list("theirs", "b")
	l.list("almost#ours", "")
	l.list(newTag("gone", 7), "") // of an interface that is forgotten
	l.list(tag, "")               // died before it was applied
	l.resync()
	l.quiet()
	if got, want := l.lists(), []string{tag, "almost#ours", "theirs"}; !slices.Equal(got, want) {
		t.Errorf("lists %q, want %q", got, want)
	}
	l.mustCommit(object{a.key, nil})
	if got, want := l.lists(), []string{"almost#ours", "theirs"}; !slices.Equal(got, want) {
		t.Errorf("lists %q, want %q", got, want)
	}
}

func TestInterfaceWithAForeignListIsRepaired(t *testing.T) {
	l := newLab(t)
	a := macipOn("a", "10.0.0.1/32")
	l.mustCommit(loopback("a", wire.Interface{}), a)
	l.list("theirs", "a")
	if got := len(l.differences()); got != 1 {
		t.Errorf("%d differences are seen, want 1", got)
	}
	l.resync()
	l.quiet()
	if got := len(l.lists()); got != 2 {
		t.Errorf("lists %q", l.lists())
	}
}

func TestListThatCannotBeAppliedIsRemoved(t *testing.T) {
	l := newLab(t)
	batch := []macipItem{{Name: "a", Want: macipOn("a", "10.0.0.1/32").value.(wire.MACIP), Handles: []any{Index(4711)}}}
	macips{l.client}.Create(t.Context(), batch)
	if err := batch[0].Err; err == nil || !strings.Contains(err.Error(), "macip_acl_interface_add_del") ||
		outcome(err) != "not applied" {
		t.Errorf("on an interface that is not there: %v (%s)", err, outcome(err))
	}
	if lists := l.lists(); len(lists) > 0 {
		t.Errorf("lists %q are left behind", lists)
	}
}

func TestPodSendsOnlyFromItsAddresses(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	a := netnstest.New(t)
	b := netnstest.New(t)
	l.mustCommit(append(append(bridgedPodOf(t, a, "a", "10.7.0.1/24"), bridgedPodOf(t, b, "b", "10.7.0.2/24")...),
		bridge("weft:blue", learning(1)))...)
	mustReach(t, a, "10.7.0.2")
	var own net.HardwareAddr
	netnstest.Do(t, a, func() {
		link, err := net.InterfaceByName("eth1")
		if err != nil {
			t.Fatal(err)
		}
		own = link.HardwareAddr
	})
	only := func(source string) object {
		return object{wire.MACIPKey("a"), wire.MACIP{Interface: "a",
			Rules: []wire.MACIPRule{{MAC: netaddr.MAC(own), Source: netip.MustParsePrefix(source)}}}}
	}
	l.mustCommit(only("10.7.0.9/32"))
	l.quiet()
	if got := answerTo(t, a, netip.MustParseAddr("10.7.0.2")); !strings.HasPrefix(got, "nothing") {
		t.Errorf("with another's address: %s", got)
	}
	l.mustCommit(only("10.7.0.1/32"))
	l.quiet()
	mustReach(t, a, "10.7.0.2")
}

func TestDataplaneWithoutAPluginIsRefusedWithItsName(t *testing.T) {
	other := &acl.MacipACLAddReplace{}
	p := &peer{t: t, answer: obliging, messages: slices.DeleteFunc(slices.Clone(Needed), func(m api.Message) bool {
		return strings.HasPrefix(m.GetMessageName(), "macip_")
	})}
	p.listen()
	_, err := connectWithin(t.Context(), p.socket, Options{})
	if err == nil || !strings.Contains(err.Error(), other.GetMessageName()) ||
		!strings.Contains(err.Error(), "acl_plugin.so is not loaded") {
		t.Errorf("got %v", err)
	}
}

// TestSourceRulesPrecedeForwarding checks the order of operations: rules are created before objects that admit packets,
// and deleted after them.
func TestSourceRulesPrecedeForwarding(t *testing.T) {
	l := newMemifLab(t)
	routed := member("m1", netaddr.IP4).value.(wire.InterfaceVRF)
	routed.AntiSpoofed = true
	bridged := inBridge("weft:blue", "m2").value.(wire.BridgeMember)
	bridged.AntiSpoofed = true
	lets := []object{{wire.InterfaceVRFKey("m1", netaddr.IP4), routed}, {wire.BridgeMemberKey("m2"), bridged}}
	rules := []object{macipOn("m1", "10.0.0.1/32"), macipOn("m2", "10.0.0.2/32")}
	l.mustCommit(append(l.allocation("a", 5), vrf(netaddr.IP4, 100), bridge("weft:blue", learning(7)),
		memifOn("m1", "a", 1), memifOn("m2", "a", 2))...)
	if err := l.commit(lets...); err == nil || !strings.Contains(err.Error(), wire.MACIPKey("m1")) {
		t.Errorf("without rules: %v", err)
	}
	l.mustCommit(append(lets, rules...)...)
	l.quiet()
	_, meta, _ := l.s.View().Applied(ref(wire.KindMACIP, "m2"))
	// it is let in again when it is judged again
	l.send(&acl.MacipACLDel{ACLIndex: uint32(meta.(ACL))}, &acl.MacipACLDelReply{})
	l.resync()
	l.quiet()
	l.mustCommit(object{rules[0].key, nil}, object{rules[1].key, nil}, object{lets[0].key, nil}, object{
		lets[1].key, nil,
	})
	l.alwaysBefore(0, rules[0].key, lets[0].key)
	l.alwaysBefore(0, rules[1].key, lets[1].key)
}

// alwaysBefore fails the test if after the given record the second object ever existed without the first. At that
// record neither exists: the log does not have the objects that end with a dataplane.
func (l *lab) alwaysBefore(since uint64, first, second string) {
	l.Helper()
	there := map[string]bool{}
	for r := range l.s.Log(since) {
		for _, op := range r.Ops {
			switch op.Verb {
			case "create", "delete":
				there[op.Ref] = op.Verb == "create"
			}
			if there[second] && !there[first] {
				l.Errorf("after %s %s (%s) there is %s without %s", op.Verb, op.Ref, op.Why, second, first)
			}
		}
	}
}
