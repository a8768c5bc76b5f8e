package api

import (
	"errors"
	"slices"
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
func TestInvalidACLsAreRejected(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	loop := a.loopback(t)
	_, err := invoke(t, a, a.acls().ACLAddReplace, &acl.ACLAddReplace{
		ACLIndex: model.NoIndex,
		R:        aclRules(acl_types.ACL_ACTION_API_PERMIT_REFLECT + 1),
	})
	if !errors.Is(err, api.INVALID_VALUE) {
		t.Errorf("unknown action: %v", err)
	}
	_, err = invoke(t, a, a.acls().ACLInterfaceSetACLList, &acl.ACLInterfaceSetACLList{SwIfIndex: loop, NInput: 1})
	if !errors.Is(err, api.INVALID_VALUE) {
		t.Errorf("more input ACLs than ACLs: %v", err)
	}
}

func TestOutputACLsAndReflectionAreReadBack(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	loop := a.loopback(t)
	in := mustInvoke(t, a, a.acls().ACLAddReplace, &acl.ACLAddReplace{
		ACLIndex: model.NoIndex,
		R:        aclRules(acl_types.ACL_ACTION_API_PERMIT_REFLECT),
	})
	out := mustInvoke(t, a, a.acls().ACLAddReplace, &acl.ACLAddReplace{
		ACLIndex: model.NoIndex,
		R:        aclRules(acl_types.ACL_ACTION_API_DENY),
	})
	mustInvoke(t, a, a.acls().ACLInterfaceSetACLList, &acl.ACLInterfaceSetACLList{
		SwIfIndex: loop,
		NInput:    1,
		Acls:      []uint32{in.ACLIndex, out.ACLIndex},
	})
	lists := r.model.ACLs.Interfaces(uint32(loop))
	if len(lists) != 1 || !slices.Equal(lists[0].Input, []uint32{in.ACLIndex}) ||
		!slices.Equal(lists[0].Output, []uint32{out.ACLIndex}) {
		t.Errorf("lists %+v", lists)
	}
	acls := r.model.ACLs.List(model.NoIndex)
	if len(acls) != 2 || !acls[0].Rules[0].Reflect || !acls[0].Rules[0].Permit || acls[1].Rules[0].Permit {
		t.Errorf("ACLs %+v", acls)
	}
	if _, err := invoke(t, a, a.acls().ACLDel, &acl.ACLDel{ACLIndex: in.ACLIndex}); !errors.Is(err,
		api.ACL_IN_USE_INBOUND) {
		t.Errorf("delete an input ACL: %v", err)
	}
	if _, err := invoke(t, a, a.acls().ACLDel, &acl.ACLDel{ACLIndex: out.ACLIndex}); !errors.Is(err,
		api.ACL_IN_USE_OUTBOUND) {
		t.Errorf("delete an output ACL: %v", err)
	}
}

func TestRulesAreCountedOnRequestOnly(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	loop := a.loopback(t)
	in := mustInvoke(t, a, a.acls().ACLAddReplace, &acl.ACLAddReplace{
		ACLIndex: model.NoIndex,
		R:        aclRules(acl_types.ACL_ACTION_API_DENY),
	})
	mustInvoke(t, a, a.acls().ACLInterfaceSetACLList, &acl.ACLInterfaceSetACLList{
		SwIfIndex: loop,
		NInput:    1,
		Acls:      []uint32{in.ACLIndex},
	})
	for _, on := range []bool{false, true} {
		if on {
			mustInvoke(t, a, a.acls().ACLStatsIntfCountersEnable, &acl.ACLStatsIntfCountersEnable{Enable: true})
		}
		counting := false
		r.engine.Look(func(s modeltest.State) { counting = s.Interfaces[uint32(loop)].ACL.Count })
		if counting != on || len(r.model.ACLs.Hits()) > 0 != on {
			t.Errorf("counting %t with %d counters, want %t", counting, len(r.model.ACLs.Hits()), on)
		}
	}
}

func TestInterfaceACLsReachThePacketPath(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	one := a.loopback(t)
	two := a.loopback(t)
	add := func(index uint32, action acl_types.ACLAction) uint32 {
		t.Helper()
		reply := mustInvoke(t, a, a.acls().ACLAddReplace, &acl.ACLAddReplace{ACLIndex: index, R: aclRules(action)})
		return reply.ACLIndex
	}
	set := func(acls ...uint32) {
		t.Helper()
		for _, i := range []interface_types.InterfaceIndex{one, two} {
			mustInvoke(t, a, a.acls().ACLInterfaceSetACLList, &acl.ACLInterfaceSetACLList{
				SwIfIndex: i,
				NInput:    uint8(len(acls)),
				Acls:      acls,
			})
		}
	}
	filters := func(i interface_types.InterfaceIndex) (f []*forward.ACLFilter) {
		r.engine.Look(func(s modeltest.State) { f = s.Interfaces[uint32(i)].ACL.Input })
		return f
	}
	x := add(model.NoIndex, acl_types.ACL_ACTION_API_DENY)
	y := add(model.NoIndex, acl_types.ACL_ACTION_API_PERMIT)
	set(x)
	first := filters(one)
	if len(first) != 1 || !slices.Equal(first, filters(two)) {
		t.Error("two interfaces with the same ACL do not share its filter")
	}
	add(x, acl_types.ACL_ACTION_API_PERMIT)
	if slices.Equal(filters(one), first) {
		t.Error("the interface has the filter of the replaced ACL")
	}
	set(x, y)
	if both := filters(one); len(both) != 2 || both[0] == both[1] || !slices.Equal(both, filters(two)) {
		t.Error("an interface with two ACLs does not have the filters of both")
	}
	set()
	if len(filters(one)) != 0 {
		t.Error("an interface without ACLs has a filter")
	}
}
