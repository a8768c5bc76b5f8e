package api

import (
	"net/netip"
	"strings"

	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/gso"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"
	binapi "go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

type swIfIndex = interface_types.InterfaceIndex

// noInterface is the interface index of a reply without an interface.
const noInterface = swIfIndex(model.NoIndex)

// interfaceHandlers serve all kinds of interfaces.
var interfaceHandlers = []handler{
	dump(func(m *model.Model, r *interfaces.SwInterfaceDump) ([]model.Interface, error) {
		return m.Interfaces.List(model.InterfaceFilter{
			Index:  uint32(r.SwIfIndex),
			ByName: r.NameFilterValid,
			Name:   r.NameFilter,
		}), nil
	}, interfaceDetails),
	handle(func(c *client, r *interfaces.WantInterfaceEvents) (*interfaces.WantInterfaceEventsReply, error) {
		return nil, c.server.events.set(c, r.PID, r.EnableDisable != 0)
	}),
	set[interfaces.SwInterfaceSetFlagsReply](func(m *model.Model, r *interfaces.SwInterfaceSetFlags) error {
		return m.SetAdminUp(uint32(r.SwIfIndex), r.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0)
	}),
	set[interfaces.SwInterfaceTagAddDelReply](func(m *model.Model, r *interfaces.SwInterfaceTagAddDel) error {
		if r.IsAdd {
			return m.Interfaces.SetTag(uint32(r.SwIfIndex), r.Tag)
		}
		return m.Interfaces.ClearTag(uint32(r.SwIfIndex))
	}),
	set[interfaces.SwInterfaceSetMtuReply](func(m *model.Model, r *interfaces.SwInterfaceSetMtu) error {
		return m.Interfaces.SetMTU(uint32(r.SwIfIndex), [4]uint32(r.Mtu))
	}),
	set[interfaces.HwInterfaceSetMtuReply](func(m *model.Model, r *interfaces.HwInterfaceSetMtu) error {
		return m.Interfaces.SetLinkMTU(uint32(r.SwIfIndex), int(r.Mtu))
	}),
	set[interfaces.SwInterfaceSetMacAddressReply](func(m *model.Model, r *interfaces.SwInterfaceSetMacAddress) error {
		return m.SetMAC(uint32(r.SwIfIndex), frame.MAC(r.MacAddress))
	}),
	call(func(
		m *model.Model, r *interfaces.SwInterfaceGetMacAddress,
	) (*interfaces.SwInterfaceGetMacAddressReply, error) {
		mac, err := m.Interfaces.MAC(uint32(r.SwIfIndex))
		return &interfaces.SwInterfaceGetMacAddressReply{MacAddress: ethernet_types.MacAddress(mac)}, err
	}),
	set[interfaces.SwInterfaceSetTableReply](func(m *model.Model, r *interfaces.SwInterfaceSetTable) error {
		return m.Tables.Set(uint32(r.SwIfIndex), forward.TableKey{Family: familyOf(r.IsIPv6), ID: r.VrfID})
	}),
	call(func(m *model.Model, r *interfaces.SwInterfaceGetTable) (*interfaces.SwInterfaceGetTableReply, error) {
		id, err := m.Tables.Of(uint32(r.SwIfIndex), familyOf(r.IsIPv6))
		return &interfaces.SwInterfaceGetTableReply{VrfID: id}, err
	}),
	set[gso.FeatureGsoEnableDisableReply](func(m *model.Model, r *gso.FeatureGsoEnableDisable) error {
		return m.Interfaces.SetGSO(uint32(r.SwIfIndex))
	}),
	call(func(m *model.Model, r *interfaces.CreateLoopback) (*interfaces.CreateLoopbackReply, error) {
		index, err := m.Loopbacks.Add(model.Loopback{MAC: frame.MAC(r.MacAddress)})
		return &interfaces.CreateLoopbackReply{SwIfIndex: swIfIndex(index)}, err
	}),
	call(func(m *model.Model, r *interfaces.CreateLoopbackInstance) (*interfaces.CreateLoopbackInstanceReply, error) {
		index, err := m.Loopbacks.Add(model.Loopback{
			MAC:       frame.MAC(r.MacAddress),
			Specified: r.IsSpecified,
			Instance:  r.UserInstance,
		})
		return &interfaces.CreateLoopbackInstanceReply{SwIfIndex: swIfIndex(index)}, err
	}),
	call(func(m *model.Model, r *interfaces.CreateSubif) (*interfaces.CreateSubifReply, error) {
		index, err := m.SubInterfaces.Add(model.Sub{
			Parent: uint32(r.SwIfIndex),
			ID:     r.SubID,
			Flags:  model.SubFlags(r.SubIfFlags),
			Outer:  r.OuterVlanID,
			Inner:  r.InnerVlanID,
		})
		return &interfaces.CreateSubifReply{SwIfIndex: swIfIndex(index)}, err
	}),
	call(func(m *model.Model, r *interfaces.CreateVlanSubif) (*interfaces.CreateVlanSubifReply, error) {
		index, err := m.SubInterfaces.AddVLAN(uint32(r.SwIfIndex), r.VlanID)
		return &interfaces.CreateVlanSubifReply{SwIfIndex: swIfIndex(index)}, err
	}),
	set[interfaces.DeleteSubifReply](func(m *model.Model, r *interfaces.DeleteSubif) error {
		return m.SubInterfaces.Delete(uint32(r.SwIfIndex))
	}),
	set[l2.L2InterfaceVlanTagRewriteReply](func(m *model.Model, r *l2.L2InterfaceVlanTagRewrite) error {
		return m.SubInterfaces.SetTagRewrite(uint32(r.SwIfIndex), model.TagRewrite(r.VtrOp))
	}),
	set[interfaces.DeleteLoopbackReply](func(m *model.Model, r *interfaces.DeleteLoopback) error {
		return m.Loopbacks.Delete(uint32(r.SwIfIndex))
	}),
}

func interfaceDetails(_ *interfaces.SwInterfaceDump, i model.Interface) interfaces.SwInterfaceDetails {
	d := interfaces.SwInterfaceDetails{
		SwIfIndex:        swIfIndex(i.Index),
		SupSwIfIndex:     i.Index,
		InterfaceName:    i.Name,
		InterfaceDevType: i.DevType,
		Tag:              i.Tag,
		L2Address:        ethernet_types.MacAddress(i.MAC),
		Flags:            statusFlags(i.AdminUp, i.LinkUp),
		LinkMtu:          uint16(i.LinkMTU),
		Mtu:              i.MTU[:],
		VtrOp:            uint32(i.TagRewrite),
	}
	if s := i.Sub; s != nil {
		d.SupSwIfIndex = s.Parent
		d.Type = interface_types.IF_API_TYPE_SUB
		d.SubID = s.ID
		d.SubNumberOfTags = uint8(s.Tags())
		d.SubOuterVlanID = s.Outer
		d.SubInnerVlanID = s.Inner
		d.SubIfFlags = interface_types.SubIfFlags(s.Flags)
	}
	return d
}

func statusFlags(adminUp, linkUp bool) interface_types.IfStatusFlags {
	return choose(adminUp, interface_types.IF_STATUS_API_FLAG_ADMIN_UP, 0) |
		choose(linkUp, interface_types.IF_STATUS_API_FLAG_LINK_UP, 0)
}

var tapHandlers = []handler{
	call(addTap),
	set[tapv2.TapDeleteV2Reply](func(m *model.Model, r *tapv2.TapDeleteV2) error {
		return m.Taps.Delete(uint32(r.SwIfIndex))
	}),
	dump(func(m *model.Model, r *tapv2.SwInterfaceTapV2Dump) ([]model.TapDetails, error) {
		return m.Taps.List(uint32(r.SwIfIndex)), nil
	}, tapDetails),
}

func addTap(m *model.Model, r *tapv2.TapCreateV3) (*tapv2.TapCreateV3Reply, error) {
	t := model.Tap{ID: r.ID, Queues: int(max(r.NumRxQueues, r.NumTxQueues)), RxRing: r.RxRingSz, TxRing: r.TxRingSz,
		Flags: model.TapFlags(r.TapFlags), Tag: r.Tag, Unsupported: r.HostBridgeSet || r.HostIP4GwSet || r.HostIP6GwSet}
	if !r.UseRandomMac {
		mac := frame.MAC(r.MacAddress)
		t.MAC = &mac
	}
	host, err := hostEnd(r)
	if err != nil {
		return &tapv2.TapCreateV3Reply{SwIfIndex: noInterface}, err
	}
	t.Host = host
	index, err := m.Taps.Add(t)
	return &tapv2.TapCreateV3Reply{SwIfIndex: swIfIndex(index)}, err
}

// hostEnd reads the fields of the kernel's side. A field is valid if its ...Set field is true.
func hostEnd(r *tapv2.TapCreateV3) (model.HostEnd, error) {
	h := model.HostEnd{
		Name:      choose(r.HostIfNameSet, r.HostIfName, ""),
		Namespace: choose(r.HostNamespaceSet, r.HostNamespace, ""),
		MAC:       frame.MAC(choose(r.HostMacAddrSet, r.HostMacAddr, ethernet_types.MacAddress{})),
		MTU:       choose(r.HostMtuSet, r.HostMtuSize, 0),
	}
	if r.HostIP4PrefixSet {
		h.IP4 = netip.PrefixFrom(netip.AddrFrom4(r.HostIP4Prefix.Address), int(r.HostIP4Prefix.Len))
	}
	if r.HostIP6PrefixSet {
		h.IP6 = netip.PrefixFrom(netip.AddrFrom16(r.HostIP6Prefix.Address), int(r.HostIP6Prefix.Len))
	}
	if r.HostIP4PrefixSet && !h.IP4.IsValid() || r.HostIP6PrefixSet && !h.IP6.IsValid() {
		return h, model.NetlinkError
	}
	return h, nil
}

func tapDetails(_ *tapv2.SwInterfaceTapV2Dump, t model.TapDetails) tapv2.SwInterfaceTapV2Details {
	d := tapv2.SwInterfaceTapV2Details{SwIfIndex: t.Index, ID: t.ID, DevName: t.DevName,
		RxRingSz: t.RxRing, TxRingSz: t.TxRing, TapFlags: tapv2.TapFlags(t.Flags),
		HostIfName:    t.Host.Name,
		HostNamespace: t.Host.Namespace,
		HostMtuSize:   t.Host.MTU,
		HostMacAddr:   ethernet_types.MacAddress(t.Host.MAC)}
	if p := t.Host.IP4; p.IsValid() {
		d.HostIP4Prefix = ip_types.IP4AddressWithPrefix{Address: p.Addr().As4(), Len: uint8(p.Bits())}
	}
	if p := t.Host.IP6; p.IsValid() {
		d.HostIP6Prefix = ip_types.IP6AddressWithPrefix{Address: p.Addr().As16(), Len: uint8(p.Bits())}
	}
	return d
}

var afPacketHandlers = []handler{
	call(addAFPacket),
	set[af_packet.AfPacketDeleteReply](func(m *model.Model, r *af_packet.AfPacketDelete) error {
		return m.AFPackets.Delete(r.HostIfName)
	}),
	dump(func(m *model.Model, _ *af_packet.AfPacketDump) ([]model.AFPacketDetails, error) {
		return m.AFPackets.List(), nil
	}, func(_ *af_packet.AfPacketDump, p model.AFPacketDetails) af_packet.AfPacketDetails {
		return af_packet.AfPacketDetails{SwIfIndex: swIfIndex(p.Index), HostIfName: p.HostName}
	}),
}

// addAFPacket ignores ring sizes: a socket has no rings here.
func addAFPacket(m *model.Model, r *af_packet.AfPacketCreateV3) (*af_packet.AfPacketCreateV3Reply, error) {
	p := model.AFPacket{HostName: r.HostIfName, Mode: uint32(r.Mode), Flags: model.AFPacketFlags(r.Flags),
		Queues: int(max(r.NumRxQueues, r.NumTxQueues))}
	if !r.UseRandomHwAddr {
		mac := frame.MAC(r.HwAddr)
		p.MAC = &mac
	}
	index, err := m.AFPackets.Add(p)
	return &af_packet.AfPacketCreateV3Reply{SwIfIndex: swIfIndex(index)}, err
}

// maxMemifSecret is the length to which VPP truncates secrets: the last byte of the field is a NUL.
const maxMemifSecret = 23

var memifHandlers = []handler{
	// As VPP does, a failed request replies with the requested socket id.
	call(func(m *model.Model, r *binapi.MemifSocketFilenameAddDelV2) (*binapi.MemifSocketFilenameAddDelV2Reply, error) {
		if !r.IsAdd {
			return &binapi.MemifSocketFilenameAddDelV2Reply{SocketID: r.SocketID}, m.MemifSockets.Delete(r.SocketID)
		}
		id, err := m.MemifSockets.Add(r.SocketID, r.SocketFilename)
		return &binapi.MemifSocketFilenameAddDelV2Reply{SocketID: id}, err
	}).withList(5, 1),
	dump(func(m *model.Model, _ *binapi.MemifSocketFilenameDump) ([]model.MemifSocket, error) {
		return m.MemifSockets.List(), nil
	}, func(_ *binapi.MemifSocketFilenameDump, s model.MemifSocket) binapi.MemifSocketFilenameDetails {
		return binapi.MemifSocketFilenameDetails{SocketID: s.ID, SocketFilename: s.Path}
	}),
	call(addMemif),
	set[binapi.MemifDeleteReply](func(m *model.Model, r *binapi.MemifDelete) error {
		return m.Memifs.Delete(uint32(r.SwIfIndex))
	}),
	dump(func(m *model.Model, _ *binapi.MemifDump) ([]model.MemifDetails, error) { return m.Memifs.List(), nil },
		memifDetails),
}

// addMemif ignores buffer size, zero copy and DMA, as VPP does for a server.
func addMemif(m *model.Model, r *binapi.MemifCreateV2) (*binapi.MemifCreateV2Reply, error) {
	secret, _, _ := strings.Cut(r.Secret, "\x00")
	c := model.Memif{Socket: r.SocketID, ID: r.ID, Client: r.Role != binapi.MEMIF_ROLE_API_MASTER, Mode: uint32(r.Mode),
		Secret: memif.Secret(secret[:min(len(secret), maxMemifSecret)]), RingSize: r.RingSize,
		RxQueues: int(r.RxQueues), TxQueues: int(r.TxQueues)}
	if mac := frame.MAC(r.HwAddr); !mac.IsZero() {
		c.MAC = &mac
	}
	index, err := m.Memifs.Add(c)
	return &binapi.MemifCreateV2Reply{SwIfIndex: swIfIndex(index)}, err
}

// memifDetails has the ring and buffer sizes that VPP returns for a server, connected or not.
func memifDetails(_ *binapi.MemifDump, m model.MemifDetails) binapi.MemifDetails {
	return binapi.MemifDetails{
		SwIfIndex: swIfIndex(m.Index),
		IfName:    m.Name,
		HwAddr:    ethernet_types.MacAddress(m.Interface.MAC),
		ID:        m.ID,
		SocketID:  m.Socket,
		Role:      binapi.MEMIF_ROLE_API_MASTER,
		Mode:      binapi.MemifMode(m.Mode),
		RingSize:  1,
		Flags:     statusFlags(m.AdminUp, m.LinkUp),
	}
}

var vxlanHandlers = []handler{
	call(changeVXLAN),
	dump(func(m *model.Model, r *vxlan.VxlanTunnelV2Dump) ([]model.VXLANDetails, error) {
		return m.VXLANs.List(uint32(r.SwIfIndex)), nil
	}, func(_ *vxlan.VxlanTunnelV2Dump, v model.VXLANDetails) vxlan.VxlanTunnelV2Details {
		return vxlan.VxlanTunnelV2Details{SwIfIndex: swIfIndex(v.Index), Instance: v.Instance,
			SrcAddress:     toAddress(v.Source),
			DstAddress:     toAddress(v.Destination),
			SrcPort:        v.SourcePort,
			DstPort:        v.DestinationPort,
			McastSwIfIndex: swIfIndex(v.MulticastInterface), EncapVrfID: v.VRF, DecapNextIndex: v.DecapNext, Vni: v.VNI}
	}),
}

// changeVXLAN replies with the interface index for add and delete, as VPP does.
func changeVXLAN(m *model.Model, r *vxlan.VxlanAddDelTunnelV3) (*vxlan.VxlanAddDelTunnelV3Reply, error) {
	reply := &vxlan.VxlanAddDelTunnelV3Reply{SwIfIndex: noInterface}
	source, err := fromAddress(r.SrcAddress)
	if err != nil {
		return reply, err
	}
	destination, err := fromAddress(r.DstAddress)
	if err != nil {
		return reply, err
	}
	index, err := choose(r.IsAdd, m.VXLANs.Add, m.VXLANs.Delete)(model.VXLAN{
		Instance:    r.Instance,
		Source:      source,
		Destination: destination,
		SourcePort:  r.SrcPort, DestinationPort: r.DstPort, VRF: r.EncapVrfID, VNI: r.Vni, DecapNext: r.DecapNextIndex,
		MulticastInterface: uint32(r.McastSwIfIndex), L3: r.IsL3,
	})
	reply.SwIfIndex = swIfIndex(index)
	return reply, err
}
