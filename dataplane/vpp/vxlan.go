package vpp

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

const (
	// maxVNI is what 24 bits hold.
	maxVNI = 1<<24 - 1
	// decapToBridge leaves the way of what is in an envelope to the dataplane, which is the bridge domain. 0 drops it.
	decapToBridge = ^uint32(0)
)

// newVXLAN makes the request for a tunnel and takes its number, which is one that a loopback of ours could have: one that
// got no tag is recognised by it.
func newVXLAN(name string, v wire.Interface, taken map[uint32]bool) *request {
	instance := instanceOf(name, taken)
	taken[instance] = true
	m := tunnelMessage(v.VXLAN)
	m.IsAdd, m.Instance = true, instance
	return ask("vxlan_add_del_tunnel_v3 "+tunnelWords(name, v), m, &vxlan.VxlanAddDelTunnelV3Reply{})
}

func deleteVXLAN(name string, v wire.Interface) *request {
	return ask("vxlan_add_del_tunnel_v3: delete "+tunnelWords(name, v), tunnelMessage(v.VXLAN), &vxlan.VxlanAddDelTunnelV3Reply{}).
		fineIf(api.NO_SUCH_ENTRY)
}

// tunnelWords name a tunnel in an error.
func tunnelWords(name string, v wire.Interface) string {
	return fmt.Sprintf("%s (%s to %s, VNI %d)", name, v.VXLAN.Source, v.VXLAN.Destination, v.VXLAN.VNI)
}

// tableOf is the dependency on the VRF that routes a tunnel's envelopes.
func tableOf(v wire.VXLAN) []kvscheduler.Dep {
	if v.Table == 0 {
		return nil // the dataplane's own table is always there
	}
	vrf := tableBucket(wire.VRF{ID: v.Table, Family: wire.FamilyOf(v.Source)})
	return []kvscheduler.Dep{{Label: "VRF of the tunnel", Any: &kvscheduler.Select{Kind: wire.KindVRF, Bucket: vrf}}}
}

// tunnelMessage names a tunnel to the dataplane.
func tunnelMessage(v wire.VXLAN) *vxlan.VxlanAddDelTunnelV3 {
	return &vxlan.VxlanAddDelTunnelV3{
		SrcAddress: addressMessage(v.Source), DstAddress: addressMessage(v.Destination), SrcPort: portOf(v), DstPort: portOf(v),
		McastSwIfIndex: noIndex.api(), EncapVrfID: v.Table, DecapNextIndex: decapToBridge, Vni: v.VNI, Instance: ^uint32(0),
	}
}

func addressMessage(a netip.Addr) ip_types.Address {
	if a.Is4() {
		return ip_types.Address{Af: ip_types.ADDRESS_IP4, Un: ip_types.AddressUnionIP4(a.As4())}
	}
	return ip_types.Address{Af: ip_types.ADDRESS_IP6, Un: ip_types.AddressUnionIP6(a.As16())}
}

func addressIn(a ip_types.Address) netip.Addr {
	if a.Af == ip_types.ADDRESS_IP4 {
		return netip.AddrFrom4(a.Un.GetIP4())
	}
	return netip.AddrFrom16(a.Un.GetIP6())
}

// portOf is the port that a tunnel has.
func portOf(v wire.VXLAN) uint16 {
	if v.Port == 0 {
		return wire.VXLANPort
	}
	return v.Port
}

func dumpVXLANs() *request {
	return askAll(&vxlan.VxlanTunnelV2Dump{SwIfIndex: noIndex.api()}, &vxlan.VxlanTunnelV2Details{})
}

func vxlansIn(r *request) map[Index]wire.VXLAN {
	found := map[Index]wire.VXLAN{}
	for _, d := range listOf[*vxlan.VxlanTunnelV2Details](r) {
		found[Index(d.SwIfIndex)] = wire.VXLAN{
			Source: addressIn(d.SrcAddress), Destination: addressIn(d.DstAddress), VNI: d.Vni, Port: d.SrcPort, Table: d.EncapVrfID,
		}
	}
	return found
}

// equalVXLANs takes the port that is not said for the one that it means.
func equalVXLANs(want, have wire.VXLAN) bool {
	want.Port, have.Port = portOf(want), portOf(have)
	return want == have
}

// vxlanInstance is the number of a tunnel; false for another interface.
func vxlanInstance(d *interfaces.SwInterfaceDetails) (uint32, bool) {
	digits, ok := strings.CutPrefix(d.InterfaceName, "vxlan_tunnel")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil
}

// tunnels tells whether the wanted tunnel is there without a tag, but with a number of ours, and notes its number: it is
// what a creation left that was not finished.
func (p *ports) tunnels(it *interfaceItem) bool {
	for _, d := range p.list {
		v, is := p.vxlans[Index(d.SwIfIndex)]
		n, numbered := vxlanInstance(d)
		if is && it.Want.Type == wire.TypeVXLAN && d.Tag == "" && numbered && n >= firstInstance && equalVXLANs(it.Want.VXLAN, v) {
			it.NewMeta = Index(d.SwIfIndex)
			return true
		}
	}
	return false
}

func validateVXLAN(v wire.VXLAN) error {
	for _, a := range []netip.Addr{v.Source, v.Destination} {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || a.Zone() != "" {
			return fmt.Errorf("end %s of the tunnel is not the address of one node", a)
		}
	}
	switch {
	case v.Source.Is4() != v.Destination.Is4():
		return fmt.Errorf("ends %s and %s of the tunnel are of two families", v.Source, v.Destination)
	case v.Source == v.Destination:
		return fmt.Errorf("both ends of the tunnel are %s", v.Source)
	case v.VNI == 0 || v.VNI > maxVNI:
		return fmt.Errorf("VNI %d is not within 1 and %d", v.VNI, maxVNI)
	}
	return nil
}

// errOnlyVXLAN says that another type has what only tunnels have.
var errOnlyVXLAN = errors.New("only an interface of type vxlan is a tunnel")
