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

// aclRules returns one rule for all IPv4 packets.
func aclRules(action acl_types.ACLAction) []acl_types.ACLRule {
	return []acl_types.ACLRule{{IsPermit: action}} // zero prefixes are 0.0.0.0/0
}

// test/conformance compares the ACLs that both dataplanes support or reject.
func TestUnsupportedACLsAreRejected(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	loop := a.loopback(t)
	set := func(action acl_types.ACLAction) (*acl.ACLAddReplaceReply, error) {
		return invoke(t, a, a.acls().ACLAddReplace, &acl.ACLAddReplace{ACLIndex: model.NoIndex, Tag: "x", R: aclRules(action)})
	}
	if _, err := set(acl_types.ACL_ACTION_API_PERMIT_REFLECT); !errors.Is(err, api.UNIMPLEMENTED) {
		t.Errorf("permit+reflect: %v", err)
	}
	reply, err := set(acl_types.ACL_ACTION_API_PERMIT)
	if err != nil {
		t.Fatal(err)
	}
	_, err = invoke(t, a, a.acls().ACLInterfaceSetACLList, &acl.ACLInterfaceSetACLList{SwIfIndex: loop, NInput: 0, Acls: []uint32{reply.ACLIndex}})
	if !errors.Is(err, api.UNIMPLEMENTED) {
		t.Errorf("output ACL: %v", err)
	}
}

func TestInterfaceACLsReachThePacketPath(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	one, two := a.loopback(t), a.loopback(t)
	add := func(index uint32, action acl_types.ACLAction) uint32 {
		t.Helper()
		reply := mustInvoke(t, a, a.acls().ACLAddReplace, &acl.ACLAddReplace{ACLIndex: index, R: aclRules(action)})
		return reply.ACLIndex
	}
	set := func(acls ...uint32) {
		t.Helper()
		for _, i := range []interface_types.InterfaceIndex{one, two} {
			mustInvoke(t, a, a.acls().ACLInterfaceSetACLList, &acl.ACLInterfaceSetACLList{SwIfIndex: i, NInput: uint8(len(acls)), Acls: acls})
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
		t.Error("two interfaces with the same ACL do not share its filter")
	}
	add(x, acl_types.ACL_ACTION_API_PERMIT)
	if filter(one) == first {
		t.Error("the interface has the filter of the replaced ACL")
	}
	set(x, y)
	if filter(one) == nil || filter(one) == filter(two) {
		t.Error("an interface with two ACLs has the filter of one")
	}
	set()
	if filter(one) != nil {
		t.Error("an interface without ACLs has a filter")
	}
}
