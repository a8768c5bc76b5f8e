package attach

import (
	"net/netip"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/wire"
)

// trunk lists the objects of an interface's VLANs, each of which has a bridge domain of its own on the network. All
// other tagged frames of the interface are dropped, also without a VLAN: as a member of the bridge domain of untagged
// frames it would send them into VLANs of other machines.
func trunk(p port) desired.Values {
	vlans := p.network.vlans()
	if len(vlans) == 0 {
		return nil
	}
	var v desired.Values
	rest := desired.RestOf(p.Object)
	v.Add(wire.InterfaceKey(rest), wire.Interface{Type: wire.TypeSub, Sub: wire.Sub{Parent: p.Object}})
	for id := range p.record.VLANs.All() {
		if vlans.Contains(id) {
			v = append(v, podInVLAN(p, id)...)
		}
	}
	return v
}

// podInVLAN makes a part of an interface a member of a VLAN of its network. Weft does not know the pod's addresses
// there: anti-spoofing limits its MACs only, and routers and DHCP servers are permitted. The policies of the interface
// apply.
func podInVLAN(p port, id int) desired.Values {
	var v desired.Values
	of := p.Object
	part := p
	part.Object = desired.VLANOf(of, id)
	part.Guarded = false
	label := p.network.custom.VLANLabel(id)
	v.Add(wire.InterfaceKey(part.Object), wire.Interface{
		Type: wire.TypeSub, Up: true, Sub: wire.Sub{Parent: of, VLAN: id},
	})
	part.Filter(&v)
	member := wire.BridgeMember{
		BridgeDomain: label,
		Interface:    part.Object,
		AntiSpoofed:  part.AntiSpoofed,
		Filtered:     part.IsFiltered(),
		LinuxEnd:     p.LinuxEnd(),
		Untag:        1,
	}
	v.Add(wire.BridgeMemberKey(part.Object), member)
	if p.HasMACs() && p.PeerMAC.IsUnicast() {
		v.Add(wire.L2FIBKey(label, p.PeerMAC), wire.L2FIB{BridgeDomain: label, MAC: p.PeerMAC, Interface: part.Object})
	}
	if part.AntiSpoofed {
		all := []netip.Prefix{desired.DefaultOf(netaddr.IP4), desired.DefaultOf(netaddr.IP6)}
		part.OnlyFrom(&v, all, virtualMACsOf(p))
	}
	return v
}

// vlans returns the VLANs of the network.
func (n network) vlans() netaddr.VLANs {
	if n.custom == nil {
		return nil
	}
	return n.custom.Network.VLANs
}
