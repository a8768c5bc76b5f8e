package api

import (
	"maps"
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

// aclRuleLen is the length of an acl_rule: action, two prefixes of 18 bytes, protocol, four ports, two bytes of TCP flags.
const aclRuleLen = 48

// addACLs registers the messages of IP ACLs.
func (s *Server) addACLs() {
	handle(s, func(_ *client, r *acl.ACLAddReplace) (*acl.ACLAddReplaceReply, error) {
		index, err := s.setACL(r)
		return &acl.ACLAddReplaceReply{ACLIndex: index}, err
	})
	s.table.addList(&acl.ACLAddReplace{}, list{count: 68, item: aclRuleLen})
	handle(s, func(_ *client, r *acl.ACLDel) (*acl.ACLDelReply, error) {
		return nil, s.model.DeleteACL(r.ACLIndex)
	})
	handle(s, func(_ *client, r *acl.ACLInterfaceSetACLList) (*acl.ACLInterfaceSetACLListReply, error) {
		if int(r.NInput) < len(r.Acls) { // the others are output ACLs
			return nil, model.Unimplemented
		}
		return nil, s.model.SetACLs(uint32(r.SwIfIndex), r.Acls)
	})
	handleDump(s, s.dumpACLs)
	handleDump(s, s.dumpInterfaceACLs)
}

// setACL creates an ACL, or replaces the one of the given index.
func (s *Server) setACL(r *acl.ACLAddReplace) (uint32, error) {
	a := model.ACL{Tag: r.Tag}
	for _, rule := range r.R {
		if rule.IsPermit > acl_types.ACL_ACTION_API_PERMIT { // permit+reflect needs sessions
			return r.ACLIndex, model.Unimplemented
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
			Permit: rule.IsPermit == acl_types.ACL_ACTION_API_PERMIT, Source: source, Destination: destination, Protocol: uint8(rule.Proto),
			Sources:      forward.PortRange{First: rule.SrcportOrIcmptypeFirst, Last: rule.SrcportOrIcmptypeLast},
			Destinations: forward.PortRange{First: rule.DstportOrIcmpcodeFirst, Last: rule.DstportOrIcmpcodeLast},
			TCPMask:      rule.TCPFlagsMask, TCPFlags: rule.TCPFlagsValue,
		})
	}
	if r.ACLIndex == model.NoIndex {
		return s.model.AddACL(a)
	}
	return r.ACLIndex, s.model.ReplaceACL(r.ACLIndex, a)
}

func (s *Server) dumpACLs(r *acl.ACLDump) ([]acl.ACLDetails, error) {
	var list []acl.ACLDetails
	for _, a := range s.model.ACLs(r.ACLIndex) {
		d := acl.ACLDetails{ACLIndex: a.Index, Tag: a.Tag, Count: uint32(len(a.Rules))}
		for _, r := range a.Rules {
			d.R = append(d.R, aclRule(r))
		}
		list = append(list, d)
	}
	return list, nil
}

func aclRule(r forward.ACLRule) acl_types.ACLRule {
	rule := acl_types.ACLRule{
		SrcPrefix: toPrefix(r.Source), DstPrefix: toPrefix(r.Destination),
		Proto: ip_types.IPProto(r.Protocol), SrcportOrIcmptypeFirst: r.Sources.First, SrcportOrIcmptypeLast: r.Sources.Last,
		DstportOrIcmpcodeFirst: r.Destinations.First, DstportOrIcmpcodeLast: r.Destinations.Last, TCPFlagsMask: r.TCPMask, TCPFlagsValue: r.TCPFlags,
	}
	if r.Permit {
		rule.IsPermit = acl_types.ACL_ACTION_API_PERMIT
	}
	return rule
}

// dumpInterfaceACLs lists all interfaces, as VPP does, including those without ACLs.
func (s *Server) dumpInterfaceACLs(r *acl.ACLInterfaceListDump) ([]acl.ACLInterfaceListDetails, error) {
	var list []acl.ACLInterfaceListDetails
	for _, i := range s.model.InterfaceACLs(uint32(r.SwIfIndex)) {
		n := uint8(len(i.Input))
		list = append(list, acl.ACLInterfaceListDetails{SwIfIndex: interface_types.InterfaceIndex(i.Interface), Count: n, NInput: n, Acls: i.Input})
	}
	return list, nil
}

// macipRuleLen is the length of a macip_acl_rule: action, MAC, mask, a prefix of 18 bytes.
const macipRuleLen = 31

// addMACIPs registers the messages of MACIP ACLs.
func (s *Server) addMACIPs() {
	handle(s, func(_ *client, r *acl.MacipACLAdd) (*acl.MacipACLAddReply, error) {
		index, err := s.setMACIP(model.NoIndex, r.Tag, r.R)
		return &acl.MacipACLAddReply{ACLIndex: index}, err
	})
	handle(s, func(_ *client, r *acl.MacipACLAddReplace) (*acl.MacipACLAddReplaceReply, error) {
		index, err := s.setMACIP(r.ACLIndex, r.Tag, r.R)
		return &acl.MacipACLAddReplaceReply{ACLIndex: index}, err
	})
	s.table.addList(&acl.MacipACLAdd{}, list{count: 64, item: macipRuleLen})
	s.table.addList(&acl.MacipACLAddReplace{}, list{count: 68, item: macipRuleLen})
	handle(s, func(_ *client, r *acl.MacipACLDel) (*acl.MacipACLDelReply, error) {
		return nil, s.model.DeleteMACIP(r.ACLIndex)
	})
	handle(s, func(_ *client, r *acl.MacipACLInterfaceAddDel) (*acl.MacipACLInterfaceAddDelReply, error) {
		if r.IsAdd {
			return nil, s.model.ApplyMACIP(uint32(r.SwIfIndex), r.ACLIndex)
		}
		return nil, s.model.UnapplyMACIP(uint32(r.SwIfIndex))
	})
	handleDump(s, s.dumpMACIPs)
	handleDump(s, s.dumpAppliedMACIPs)
	handle(s, s.appliedMACIPs)
}

// setMACIP creates a MACIP ACL, or replaces the one of the given index.
func (s *Server) setMACIP(index uint32, tag string, rules []acl_types.MacipACLRule) (uint32, error) {
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
		return s.model.AddMACIP(a)
	}
	return index, s.model.ReplaceMACIP(index, a)
}

func (s *Server) dumpMACIPs(r *acl.MacipACLDump) ([]acl.MacipACLDetails, error) {
	var list []acl.MacipACLDetails
	for _, a := range s.model.MACIPs(r.ACLIndex) {
		d := acl.MacipACLDetails{ACLIndex: a.Index, Tag: a.Tag, Count: uint32(len(a.Rules))}
		for _, r := range a.Rules {
			d.R = append(d.R, macipRule(r))
		}
		list = append(list, d)
	}
	return list, nil
}

func macipRule(r forward.MACIPRule) acl_types.MacipACLRule {
	rule := acl_types.MacipACLRule{SrcMac: ethernet_types.MacAddress(r.MAC), SrcMacMask: ethernet_types.MacAddress(r.Mask),
		SrcPrefix: toPrefix(netip.PrefixFrom(r.Prefix.Addr(), r.Prefix.Bits()))}
	if r.Permit {
		rule.IsPermit = acl_types.ACL_ACTION_API_PERMIT
	}
	return rule
}

func (s *Server) dumpAppliedMACIPs(r *acl.MacipACLInterfaceListDump) ([]acl.MacipACLInterfaceListDetails, error) {
	applied := s.model.AppliedMACIPs(uint32(r.SwIfIndex))
	var list []acl.MacipACLInterfaceListDetails
	for _, index := range slices.Sorted(maps.Keys(applied)) {
		list = append(list, acl.MacipACLInterfaceListDetails{SwIfIndex: interface_types.InterfaceIndex(index), Count: 1, Acls: []uint32{applied[index]}})
	}
	return list, nil
}

// appliedMACIPs replies with the MACIP ACL of each interface index, up to the last interface that has one.
func (s *Server) appliedMACIPs(*client, *acl.MacipACLInterfaceGet) (*acl.MacipACLInterfaceGetReply, error) {
	applied := s.model.AppliedMACIPs(model.NoIndex)
	reply := &acl.MacipACLInterfaceGetReply{}
	for index := uint32(0); len(applied) > 0; index++ {
		list, ok := applied[index]
		if !ok {
			list = model.NoIndex
		}
		reply.Acls = append(reply.Acls, list)
		delete(applied, index)
	}
	reply.Count = uint32(len(reply.Acls))
	return reply, nil
}
