package leftovers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/policer"
)

// addAFPackets records the dataplane's af_packet interfaces with their links.
func (s *Snapshot) addAFPackets(ctx context.Context, d *dataplane) error {
	stream, err := af_packet.NewServiceClient(d).AfPacketDump(ctx, &af_packet.AfPacketDump{})
	err = each(stream, err, func(p *af_packet.AfPacketDetails) {
		s.add("af-packet", "dataplane", "%s on %s", d.names[p.SwIfIndex], strings.TrimRight(p.HostIfName, "\x00"))
	})
	if err != nil {
		return fmt.Errorf("list af_packet interfaces: %w", err)
	}
	return nil
}

// addBridges records bridge domains, their members and static MACs. Learned MACs expire, so they are recorded only if
// their interface is gone.
func (s *Snapshot) addBridges(ctx context.Context, d *dataplane) error {
	var ids []uint32
	stream, err := l2.NewServiceClient(d).BridgeDomainDump(ctx, &l2.BridgeDomainDump{BdID: ^uint32(0), SwIfIndex: all})
	err = each(stream, err, func(b *l2.BridgeDomainDetails) {
		ids = append(ids, b.BdID)
		s.add("bridge-domain", "dataplane", "%d %s learn %t flood %t %t age %d bvi %s",
			b.BdID, strings.TrimRight(b.BdTag, "\x00"), b.Learn, b.Flood, b.UuFlood, b.MacAge, d.names[b.BviSwIfIndex])
		for _, m := range b.SwIfDetails {
			s.add("bridge-member", "dataplane", "%s of %d split horizon %d", d.names[m.SwIfIndex], b.BdID, m.Shg)
		}
	})
	if err != nil {
		return fmt.Errorf("list bridge domains: %w", err)
	}
	for _, id := range ids {
		stream, err := l2.NewServiceClient(d).L2FibTableDump(ctx, &l2.L2FibTableDump{BdID: id})
		if err := each(stream, err, func(e *l2.L2FibTableDetails) { s.addMAC(d, e) }); err != nil {
			return fmt.Errorf("list MACs of bridge domain %d: %w", id, err)
		}
	}
	return nil
}

func (s *Snapshot) addMAC(d *dataplane, e *l2.L2FibTableDetails) {
	name, there := d.names[e.SwIfIndex]
	if there && !e.StaticMac && !e.FilterMac && !e.BviMac {
		return
	}
	s.add("l2fib", "dataplane", "%s of %d at %s static %t filter %t bvi %t", e.Mac, e.BdID, name, e.StaticMac,
		e.FilterMac, e.BviMac)
}

// addFilters records MACIP ACLs and the interfaces that use them.
func (s *Snapshot) addFilters(ctx context.Context, d *dataplane) error {
	rpc := acl.NewServiceClient(d)
	tags := map[uint32]string{}
	stream, err := rpc.MacipACLDump(ctx, &acl.MacipACLDump{ACLIndex: ^uint32(0)})
	err = each(stream, err, func(a *acl.MacipACLDetails) {
		tags[a.ACLIndex] = strings.TrimRight(a.Tag, "\x00")
		var rules []string
		for _, r := range a.R {
			rules = append(rules, fmt.Sprintf("%s/%s %s %d", r.SrcMac, r.SrcMacMask, r.SrcPrefix, r.IsPermit))
		}
		s.add("macip-acl", "dataplane", "%s %s", tags[a.ACLIndex], strings.Join(rules, ", "))
	})
	if err != nil {
		return fmt.Errorf("list MACIP ACLs: %w", err)
	}
	applied, err := rpc.MacipACLInterfaceListDump(ctx, &acl.MacipACLInterfaceListDump{SwIfIndex: all})
	err = each(applied, err, func(i *acl.MacipACLInterfaceListDetails) {
		for _, index := range i.Acls {
			s.add("macip-interface", "dataplane", "%s by %s", d.names[i.SwIfIndex], tags[index])
		}
	})
	if err != nil {
		return fmt.Errorf("list interfaces with MACIP ACLs: %w", err)
	}
	return s.addACLs(ctx, d)
}

// addPolicers records policers. The dataplane does not list where it applies them.
func (s *Snapshot) addPolicers(ctx context.Context, d *dataplane) error {
	stream, err := policer.NewServiceClient(d).PolicerDump(ctx, &policer.PolicerDump{})
	err = each(stream, err, func(p *policer.PolicerDetails) {
		name := strings.TrimRight(p.Name, "\x00")
		s.add("policer", "dataplane", "%s %d kbit/s burst %d conform %v", name, p.Cir, p.Cb, p.ConformAction)
	})
	if unknown := new(adapter.UnknownMsgError); errors.As(err, &unknown) {
		return nil // an old weft-vswitch, for comparisons in test/attack
	}
	if err != nil {
		return fmt.Errorf("list policers: %w", err)
	}
	return nil
}

// addACLs records IP ACLs and the interfaces that use them.
func (s *Snapshot) addACLs(ctx context.Context, d *dataplane) error {
	rpc := acl.NewServiceClient(d)
	tags := map[uint32]string{}
	stream, err := rpc.ACLDump(ctx, &acl.ACLDump{ACLIndex: ^uint32(0)})
	err = each(stream, err, func(a *acl.ACLDetails) {
		tags[a.ACLIndex] = strings.TrimRight(a.Tag, "\x00")
		var rules []string
		for _, r := range a.R {
			rules = append(rules,
				fmt.Sprintf("%s > %s %d %d-%d %d-%d %d", r.SrcPrefix, r.DstPrefix, r.Proto, r.SrcportOrIcmptypeFirst,
					r.SrcportOrIcmptypeLast, r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast, r.IsPermit))
		}
		s.add("acl", "dataplane", "%s %s", tags[a.ACLIndex], strings.Join(rules, ", "))
	})
	if unknown := new(adapter.UnknownMsgError); errors.As(err, &unknown) {
		return nil // an old weft-vswitch without ACLs, for comparisons in test/attack
	}
	if err != nil {
		return fmt.Errorf("list ACLs: %w", err)
	}
	lists, err := rpc.ACLInterfaceListDump(ctx, &acl.ACLInterfaceListDump{SwIfIndex: all})
	err = each(lists, err, func(i *acl.ACLInterfaceListDetails) {
		for _, index := range i.Acls {
			s.add("acl-interface", "dataplane", "%s by %s, %d for input", d.names[i.SwIfIndex], tags[index], i.NInput)
		}
	})
	if err != nil {
		return fmt.Errorf("list interfaces with ACLs: %w", err)
	}
	return nil
}

// addProxies records the ranges and interfaces of proxy ARP.
func (s *Snapshot) addProxies(ctx context.Context, d *dataplane) error {
	rpc := arp.NewServiceClient(d)
	stream, err := rpc.ProxyArpDump(ctx, &arp.ProxyArpDump{})
	err = each(stream, err, func(p *arp.ProxyArpDetails) {
		s.add("proxy-arp", "dataplane", "table %d %s to %s", p.Proxy.TableID, p.Proxy.Low, p.Proxy.Hi)
	})
	if err != nil {
		return fmt.Errorf("list proxied ARP: %w", err)
	}
	interfaces, err := rpc.ProxyArpIntfcDump(ctx, &arp.ProxyArpIntfcDump{})
	err = each(interfaces, err, func(i *arp.ProxyArpIntfcDetails) {
		s.add("proxy-arp", "dataplane", "on %s", d.names[interface_types.InterfaceIndex(i.SwIfIndex)])
	})
	if err != nil {
		return fmt.Errorf("list interfaces with proxied ARP: %w", err)
	}
	return nil
}
