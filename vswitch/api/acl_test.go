package api

import (
	"errors"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

// aclRules are one rule with an action, for all packets of IPv4.
func aclRules(action acl_types.ACLAction) []acl_types.ACLRule {
	return []acl_types.ACLRule{{IsPermit: action}} // zero prefixes are 0.0.0.0/0
}

// TestACLsThatOnlyVPPCanAreRefused tests what VPP can and weft-vswitch cannot. What both can, and what both refuse, is compared in
// test/conformance.
func TestACLsThatOnlyVPPCanAreRefused(t *testing.T) {
	r := start(t, Limits{})
	a := newAsker(t.Context(), r.connect(t))
	loop := a.loopback(t)
	set := func(action acl_types.ACLAction) (*acl.ACLAddReplaceReply, error) {
		return ask(t, a, a.acls().ACLAddReplace, &acl.ACLAddReplace{ACLIndex: model.NoIndex, Tag: "x", R: aclRules(action)})
	}
	if _, err := set(acl_types.ACL_ACTION_API_PERMIT_REFLECT); !errors.Is(err, api.UNIMPLEMENTED) {
		t.Errorf("permit+reflect: %v", err)
	}
	reply, err := set(acl_types.ACL_ACTION_API_PERMIT)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ask(t, a, a.acls().ACLInterfaceSetACLList, &acl.ACLInterfaceSetACLList{SwIfIndex: loop, NInput: 0, Acls: []uint32{reply.ACLIndex}})
	if !errors.Is(err, api.UNIMPLEMENTED) {
		t.Errorf("a list for what is sent: %v", err)
	}
}

// TestACLsOfInterfacesReachThePacketPath looks at the filter of an interface as its list changes.
func TestACLsOfInterfacesReachThePacketPath(t *testing.T) {
	r := start(t, Limits{})
	a := newAsker(t.Context(), r.connect(t))
	one, two := a.loopback(t), a.loopback(t)
	add := func(index uint32, action acl_types.ACLAction) uint32 {
		t.Helper()
		reply, err := ask(t, a, a.acls().ACLAddReplace, &acl.ACLAddReplace{ACLIndex: index, R: aclRules(action)})
		if err != nil {
			t.Fatal(err)
		}
		return reply.ACLIndex
	}
	set := func(acls ...uint32) {
		t.Helper()
		for _, i := range []interface_types.InterfaceIndex{one, two} {
			_, err := ask(t, a, a.acls().ACLInterfaceSetACLList, &acl.ACLInterfaceSetACLList{SwIfIndex: i, NInput: uint8(len(acls)), Acls: acls})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	filter := func(i interface_types.InterfaceIndex) (f *forward.ACLFilter) {
		r.engine.Look(func(s modeltest.State) { f = s.Interfaces[uint32(i)].ACL })
		return f
	}
	x, y := add(model.NoIndex, acl_types.ACL_ACTION_API_DENY), add(model.NoIndex, acl_types.ACL_ACTION_API_PERMIT)
	set(x)
	first := filter(one)
	if first == nil || first != filter(two) {
		t.Error("two interfaces with one ACL do not share its filter")
	}
	add(x, acl_types.ACL_ACTION_API_PERMIT)
	if filter(one) == first {
		t.Error("a replaced ACL does not reach its interface")
	}
	set(x, y)
	if filter(one) == nil || filter(one) == filter(two) {
		t.Error("a list of two has the filter of one")
	}
	set()
	if filter(one) != nil {
		t.Error("an empty list has a filter")
	}
}
