package api

import (
	"slices"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

const (
	// aclRuleLen is the length of an acl_rule: action, two prefixes of 18 bytes, protocol, four ports, two bytes of TCP
	// flags.
	aclRuleLen = 48
	// macipRuleLen is the length of a macip_acl_rule: action, MAC, mask, a prefix of 18 bytes.
	macipRuleLen = 31
)

// aclHandlers serve the ACL plugin.
var aclHandlers = []handler{
	call(func(m *model.Model, r *acl.MacipACLAdd) (*acl.MacipACLAddReply, error) {
		index, err := setMACIP(m, model.NoIndex, r.Tag, r.R)
		return &acl.MacipACLAddReply{ACLIndex: index}, err
	}).withList(64, macipRuleLen),
	call(func(m *model.Model, r *acl.MacipACLAddReplace) (*acl.MacipACLAddReplaceReply, error) {
		index, err := setMACIP(m, r.ACLIndex, r.Tag, r.R)
		return &acl.MacipACLAddReplaceReply{ACLIndex: index}, err
	}).withList(68, macipRuleLen),
	set[acl.MacipACLDelReply](func(m *model.Model, r *acl.MacipACLDel) error { return m.MACIPs.Delete(r.ACLIndex) }),
	set[acl.MacipACLInterfaceAddDelReply](func(m *model.Model, r *acl.MacipACLInterfaceAddDel) error {
		if r.IsAdd {
			return m.MACIPs.Apply(uint32(r.SwIfIndex), r.ACLIndex)
		}
		return m.MACIPs.Unapply(uint32(r.SwIfIndex))
	}),
	dump(func(m *model.Model, r *acl.MacipACLDump) ([]model.MACIPDetails, error) {
		return m.MACIPs.List(r.ACLIndex), nil
	}, func(_ *acl.MacipACLDump, a model.MACIPDetails) acl.MacipACLDetails {
		return acl.MacipACLDetails{
			ACLIndex: a.Index,
			Tag:      a.Tag,
			Count:    uint32(len(a.Rules)),
			R:        convert(a.Rules, macipRule),
		}
	}),
	dump(func(m *model.Model, r *acl.MacipACLInterfaceListDump) ([]model.AppliedMACIP, error) {
		return m.MACIPs.Applied(uint32(r.SwIfIndex)), nil
	}, func(_ *acl.MacipACLInterfaceListDump, a model.AppliedMACIP) acl.MacipACLInterfaceListDetails {
		return acl.MacipACLInterfaceListDetails{SwIfIndex: swIfIndex(a.Interface), Count: 1, Acls: []uint32{a.ACL}}
	}),
	call(appliedMACIPs),
	call(func(m *model.Model, r *acl.ACLAddReplace) (*acl.ACLAddReplaceReply, error) {
		index, err := setACL(m, r)
		return &acl.ACLAddReplaceReply{ACLIndex: index}, err
	}).withList(68, aclRuleLen),
	set[acl.ACLDelReply](func(m *model.Model, r *acl.ACLDel) error { return m.ACLs.Delete(r.ACLIndex) }),
	set[acl.ACLInterfaceSetACLListReply](func(m *model.Model, r *acl.ACLInterfaceSetACLList) error {
		if int(r.NInput) > len(r.Acls) {
			return model.InvalidValue
		}
		lists := model.ACLLists{Input: r.Acls[:r.NInput], Output: r.Acls[r.NInput:]}
		return m.ACLs.SetInterface(uint32(r.SwIfIndex), lists)
	}),
	dump(func(m *model.Model, r *acl.ACLDump) ([]model.IPACLDetails, error) {
		return m.ACLs.List(r.ACLIndex), nil
	},
		func(_ *acl.ACLDump, a model.IPACLDetails) acl.ACLDetails {
			return acl.ACLDetails{
				ACLIndex: a.Index,
				Tag:      a.Tag,
				Count:    uint32(len(a.Rules)),
				R:        convert(a.Rules, aclRule),
			}
		}),
	// As in VPP the dump includes interfaces without ACLs.
	dump(func(m *model.Model, r *acl.ACLInterfaceListDump) ([]model.InterfaceACLs, error) {
		return m.ACLs.Interfaces(uint32(r.SwIfIndex)), nil
	}, func(_ *acl.ACLInterfaceListDump, i model.InterfaceACLs) acl.ACLInterfaceListDetails {
		n := uint8(len(i.Input) + len(i.Output))
		inputs := uint8(len(i.Input))
		return acl.ACLInterfaceListDetails{
			SwIfIndex: swIfIndex(i.Interface),
			Count:     n,
			NInput:    inputs,
			Acls:      slices.Concat(i.Input, i.Output),
		}
	}),
	set[acl.ACLStatsIntfCountersEnableReply](func(m *model.Model, r *acl.ACLStatsIntfCountersEnable) error {
		m.ACLs.Count(r.Enable)
		return nil
	}),
}

// setACL creates an ACL, or replaces the one of the given index.
func setACL(m *model.Model, r *acl.ACLAddReplace) (uint32, error) {
	a := model.IPACL{Tag: r.Tag, Rules: make([]forward.ACLRule, 0, len(r.R))}
	for _, rule := range r.R {
		if rule.IsPermit > acl_types.ACL_ACTION_API_PERMIT_REFLECT {
			return r.ACLIndex, model.InvalidValue
		}
		source, err := fromPrefix(rule.SrcPrefix)
		if err != nil {
			return r.ACLIndex, model.InvalidSrcAddress
		}
		destination, err := fromPrefix(rule.DstPrefix)
		if err != nil {
			return r.ACLIndex, model.InvalidDstAddress
		}
		a.Rules = append(a.Rules, forward.ACLRule{
			Permit:  rule.IsPermit != acl_types.ACL_ACTION_API_DENY,
			Reflect: rule.IsPermit == acl_types.ACL_ACTION_API_PERMIT_REFLECT,
			Source:  source, Destination: destination, Protocol: uint8(rule.Proto),
			Sources:      forward.PortRange{First: rule.SrcportOrIcmptypeFirst, Last: rule.SrcportOrIcmptypeLast},
			Destinations: forward.PortRange{First: rule.DstportOrIcmpcodeFirst, Last: rule.DstportOrIcmpcodeLast},
			TCPMask:      rule.TCPFlagsMask, TCPFlags: rule.TCPFlagsValue,
		})
	}
	if r.ACLIndex == model.NoIndex {
		return m.ACLs.Add(a)
	}
	return r.ACLIndex, m.ACLs.Replace(r.ACLIndex, a)
}

func aclRule(r forward.ACLRule) acl_types.ACLRule {
	action := aclAction(r.Permit)
	if r.Reflect {
		action = acl_types.ACL_ACTION_API_PERMIT_REFLECT
	}
	return acl_types.ACLRule{IsPermit: action, SrcPrefix: toPrefix(r.Source), DstPrefix: toPrefix(r.Destination),
		Proto:                  ip_types.IPProto(r.Protocol),
		SrcportOrIcmptypeFirst: r.Sources.First,
		SrcportOrIcmptypeLast:  r.Sources.Last,
		DstportOrIcmpcodeFirst: r.Destinations.First,
		DstportOrIcmpcodeLast:  r.Destinations.Last,
		TCPFlagsMask:           r.TCPMask,
		TCPFlagsValue:          r.TCPFlags}
}

func aclAction(permit bool) acl_types.ACLAction {
	return choose(permit, acl_types.ACL_ACTION_API_PERMIT, acl_types.ACL_ACTION_API_DENY)
}

// setMACIP creates a MACIP ACL, or replaces the one of the given index.
func setMACIP(m *model.Model, index uint32, tag string, rules []acl_types.MacipACLRule) (uint32, error) {
	a := model.MACIPACL{Tag: tag}
	for _, r := range rules {
		prefix, err := fromPrefix(r.SrcPrefix)
		if err != nil || !prefix.IsValid() {
			return index, model.InvalidValue
		}
		a.Rules = append(a.Rules, forward.MACIPRule{Permit: r.IsPermit != acl_types.ACL_ACTION_API_DENY,
			MAC: frame.MAC(r.SrcMac), Mask: frame.MAC(r.SrcMacMask), Prefix: prefix})
	}
	if index == model.NoIndex {
		return m.MACIPs.Add(a)
	}
	return index, m.MACIPs.Replace(index, a)
}

func macipRule(r forward.MACIPRule) acl_types.MacipACLRule {
	return acl_types.MacipACLRule{IsPermit: aclAction(r.Permit), SrcMac: ethernet_types.MacAddress(r.MAC),
		SrcMacMask: ethernet_types.MacAddress(r.Mask), SrcPrefix: toPrefix(r.Prefix)}
}

// appliedMACIPs replies with the MACIP ACL of each interface index, up to the last interface that has one.
func appliedMACIPs(m *model.Model, _ *acl.MacipACLInterfaceGet) (*acl.MacipACLInterfaceGetReply, error) {
	var acls []uint32
	for _, a := range m.MACIPs.Applied(model.NoIndex) {
		gap := int(a.Interface) - len(acls)
		acls = append(append(acls, slices.Repeat([]uint32{model.NoIndex}, gap)...), a.ACL)
	}
	return &acl.MacipACLInterfaceGetReply{Count: uint32(len(acls)), Acls: acls}, nil
}
