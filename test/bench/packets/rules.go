package packets

import (
	"context"
	"fmt"
	"net/netip"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// newACL is the index of an ACL that is created.
const newACL = ^uint32(0)

// restrict gives both memifs of a pair the ACL of a scenario.
func (d *dataplane) restrict(ctx context.Context, w memifPair, s scenario) error {
	c := acl.NewServiceClient(d.conn)
	rules := peerRules(s)
	reply, err := c.ACLAddReplace(ctx, &acl.ACLAddReplace{
		ACLIndex: newACL,
		Tag:      "bench",
		Count:    uint32(len(rules)),
		R:        rules,
	})
	if err != nil {
		return fmt.Errorf("make an ACL of %d rules: %w", len(rules), err)
	}
	for _, index := range w.indexes {
		if _, err := c.ACLInterfaceSetACLList(ctx, &acl.ACLInterfaceSetACLList{
			SwIfIndex: index,
			Count:     1,
			NInput:    1,
			Acls:      []uint32{reply.ACLIndex},
		}); err != nil {
			return fmt.Errorf("apply the ACL: %w", err)
		}
	}
	return nil
}

// peerRules returns rules as network policies have them: TCP and UDP ports of many peers. The last one permits the
// packets of the clients.
func peerRules(s scenario) []acl_types.ACLRule {
	action := acl_types.ACL_ACTION_API_PERMIT
	if s.sessions {
		action = acl_types.ACL_ACTION_API_PERMIT_REFLECT
	}
	rules := make([]acl_types.ACLRule, s.rules)
	for i := range rules {
		first := uint16(80 + i%7)
		rules[i] = acl_types.ACLRule{
			IsPermit: action,
			DstPrefix: prefixOf(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}),
				32)),
			Proto:                 []ip_types.IPProto{ip_types.IP_API_PROTO_TCP, ip_types.IP_API_PROTO_UDP}[i%2],
			SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeFirst: first, DstportOrIcmpcodeLast: first + uint16(i%3*10),
		}
	}
	last := &rules[len(rules)-1]
	last.Proto = ip_types.IP_API_PROTO_UDP
	last.DstPrefix = prefixOf(destinations)
	last.DstportOrIcmpcodeFirst = clientPort
	last.DstportOrIcmpcodeLast = clientPort
	return rules
}

func prefixOf(p netip.Prefix) ip_types.Prefix {
	return ip_types.Prefix{Address: ip_types.NewAddress(p.Addr().AsSlice()), Len: uint8(p.Bits())}
}
