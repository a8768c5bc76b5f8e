package api

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/codec"

	"github.com/weftnet/weft/vswitch/model"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

func (a *testClient) acls() acl.RPCService { return acl.NewServiceClient(a.conn) }

// macipACLs returns the MACIP ACL of an index, or for NoIndex all.
func (a *testClient) macipACLs(t testingT, index uint32) []acl.MacipACLDetails {
	t.Helper()
	s, err := a.acls().MacipACLDump(a.context, &acl.MacipACLDump{ACLIndex: index})
	var list []acl.MacipACLDetails
	for _, d := range collect[*acl.MacipACLDetails](t, s, err) {
		list = append(list, *d)
	}
	return list
}

func (a *testClient) applied(t testingT, index interface_types.InterfaceIndex) []acl.MacipACLInterfaceListDetails {
	t.Helper()
	s, err := a.acls().MacipACLInterfaceListDump(a.context, &acl.MacipACLInterfaceListDump{SwIfIndex: index})
	var list []acl.MacipACLInterfaceListDetails
	for _, d := range collect[*acl.MacipACLInterfaceListDetails](t, s, err) {
		list = append(list, *d)
	}
	return list
}

// apply applies a MACIP ACL to an interface or removes it, and returns VPP's error.
func (a *testClient) apply(t testingT, index interface_types.InterfaceIndex, list uint32, add bool) error {
	t.Helper()
	_, err := invoke(t, a, a.acls().MacipACLInterfaceAddDel, &acl.MacipACLInterfaceAddDel{
		IsAdd:     add,
		SwIfIndex: index,
		ACLIndex:  list,
	})
	return err
}

func macipRules(prefixes ...string) []acl_types.MacipACLRule {
	var rules []acl_types.MacipACLRule
	for _, p := range prefixes {
		parsed, err := ip_types.ParsePrefix(p)
		if err != nil {
			panic(err)
		}
		rules = append(rules, acl_types.MacipACLRule{IsPermit: acl_types.ACL_ACTION_API_PERMIT, SrcPrefix: parsed,
			SrcMac:     ethernet_types.MacAddress{2, 0, 0, 0, 0, 9},
			SrcMacMask: ethernet_types.MacAddress{255, 255, 255, 255, 255, 255}})
	}
	return rules
}

// filtered reports whether the packet path has a MACIP filter for an interface.
func (r testServer) filtered(index interface_types.InterfaceIndex) (filtered bool) {
	r.engine.Look(func(s modeltest.State) { filtered = s.Interfaces[uint32(index)].MACIP != nil })
	return filtered
}

func TestMACIPACLsAreStoredAndApplied(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	one := a.loopback(t)
	two := a.loopback(t)
	rules := macipRules("10.1.1.7/32", "fd00::7/128", "fe80::/10")
	added := mustInvoke(t, a, a.acls().MacipACLAdd, &acl.MacipACLAdd{Tag: "pod", R: rules})
	list := added.ACLIndex
	for _, index := range []interface_types.InterfaceIndex{one, two} {
		if err := a.apply(t, index, list, true); err != nil || !r.filtered(index) {
			t.Fatalf("apply to %d: %v", index, err)
		}
	}
	want := []acl.MacipACLDetails{{ACLIndex: list, Tag: "pod", Count: 3, R: rules}}
	if diff := cmp.Diff(want, a.macipACLs(t, list)); diff != "" {
		t.Error(diff)
	}
	replaced, err := invoke(t, a, a.acls().MacipACLAddReplace, &acl.MacipACLAddReplace{
		ACLIndex: list,
		Tag:      "new",
		R:        rules[:1],
	})
	if err != nil || replaced.ACLIndex != list {
		t.Fatalf("replace: %+v, %v", replaced, err)
	}
	want = []acl.MacipACLDetails{{ACLIndex: list, Tag: "new", Count: 1, R: rules[:1]}}
	if diff := cmp.Diff(want, a.macipACLs(t, model.NoIndex)); diff != "" {
		t.Error(diff)
	}
	on := []acl.MacipACLInterfaceListDetails{
		{SwIfIndex: one, Count: 1, Acls: []uint32{list}}, {SwIfIndex: two, Count: 1, Acls: []uint32{list}},
	}
	if diff := cmp.Diff(on, a.applied(t, allInterfaces)); diff != "" {
		t.Error(diff)
	}
	get, err := invoke(t, a, a.acls().MacipACLInterfaceGet, &acl.MacipACLInterfaceGet{})
	if err != nil || len(get.Acls) != int(two)+1 || get.Acls[one] != list || get.Acls[0] != model.NoIndex {
		t.Errorf("macip_acl_interface_get: %+v, %v", get, err)
	}
	if err := a.apply(t, one, 0, false); err != nil || r.filtered(one) {
		t.Errorf("unapply: %v", err)
	}
	if diff := cmp.Diff(on[1:], a.applied(t, two)); diff != "" {
		t.Error(diff)
	}
	if _, err := invoke(t, a, a.acls().MacipACLDel, &acl.MacipACLDel{ACLIndex: list}); err != nil || r.filtered(two) {
		t.Errorf("delete: %v", err)
	}
	if lists, on := a.macipACLs(t, model.NoIndex), a.applied(t, allInterfaces); len(lists) != 0 || len(on) != 0 {
		t.Errorf("left: %+v %+v", lists, on)
	}
}

func TestMACIPRetvals(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	loop := a.loopback(t)
	long := macipRules("10.0.0.0/8")
	long[0].SrcPrefix.Len = 33
	for rule, c := range map[string]struct {
		do   func() error
		want api.VPPApiError
	}{
		"replacing an unknown ACL": {
			calling(t, a, a.acls().MacipACLAddReplace, &acl.MacipACLAddReplace{ACLIndex: 77}), api.NO_SUCH_ENTRY,
		},
		"deleting an unknown ACL": {
			calling(t, a, a.acls().MacipACLDel, &acl.MacipACLDel{ACLIndex: 77}), api.NO_SUCH_ENTRY,
		},
		"applying an unknown ACL": {func() error { return a.apply(t, loop, 77, true) }, api.NO_SUCH_ENTRY},
		"nothing to unapply":      {func() error { return a.apply(t, loop, 77, false) }, api.NO_SUCH_ENTRY},
		"unknown interface":       {func() error { return a.apply(t, 4711, 77, false) }, api.INVALID_SW_IF_INDEX},
		"a prefix of 33 bits": {
			calling(t, a, a.acls().MacipACLAdd, &acl.MacipACLAdd{R: long}), api.INVALID_VALUE,
		},
		"a tag without terminating NUL": {
			calling(t, a, a.acls().MacipACLAdd, &acl.MacipACLAdd{Tag: strings.Repeat("x", 64)}), api.INVALID_VALUE,
		},
	} {
		if err := c.do(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

func TestMACIPIndexIsNotReusedAndDeletedInterfaceHasNoACL(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	add := func() uint32 {
		reply := mustInvoke(t, a, a.acls().MacipACLAddReplace, &acl.MacipACLAddReplace{ACLIndex: model.NoIndex})
		return reply.ACLIndex
	}
	first := add()
	mustInvoke(t, a, a.acls().MacipACLDel, &acl.MacipACLDel{ACLIndex: first})
	second := add()
	if second == first {
		t.Errorf("index %d is reused", first)
	}
	loop := a.loopback(t)
	if err := a.apply(t, loop, second, true); err != nil {
		t.Fatal(err)
	}
	mustInvoke(t, a, a.ifs.DeleteLoopback, &interfaces.DeleteLoopback{SwIfIndex: loop})
	if on := a.applied(t, allInterfaces); len(on) != 0 {
		t.Errorf("left: %+v", on)
	}
}

func TestListLongerThanItsMessageClosesTheConnection(t *testing.T) {
	r := start(t, Limits{})
	for name, m := range map[string]struct {
		message api.Message
		count   int
	}{"add": {&acl.MacipACLAdd{R: macipRules("10.0.0.1/32")}, 64}, "replace": {
		&acl.MacipACLAddReplace{ACLIndex: model.NoIndex, R: macipRules("10.0.0.1/32")}, 68,
	},
		"IP ACL": {&acl.ACLAddReplace{ACLIndex: model.NoIndex, R: aclRules(acl_types.ACL_ACTION_API_PERMIT)}, 68}} {
		for change, answered := range map[byte]bool{0: true, 1: false} {
			c := r.register(t)
			data := must(codec.EncodeMsg(m.message, r.table.id(m.message)))
			binary.BigEndian.PutUint32(data[2:], c.index)
			data[requestHeader+m.count+3] += change
			c.sendFrame(t, data)
			if got := c.answers(t, r.Server); got != answered {
				t.Errorf("%s with a count that is %d too high: answered %v", name, change, got)
			}
			c.Close()
		}
	}
}
