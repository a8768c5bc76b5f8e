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
	binapi "go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

// addInterfaces registers the messages for all kinds of interfaces.
func (s *Server) addInterfaces() {
	s.table.add(&interfaces.SwInterfaceEvent{})
	handleDump(s, s.dumpInterfaces)
	handle(s, func(c *client, r *interfaces.WantInterfaceEvents) (*interfaces.WantInterfaceEventsReply, error) {
		return nil, s.events.set(c, r.PID, r.EnableDisable != 0)
	})
	handle(s, func(_ *client, r *interfaces.SwInterfaceSetFlags) (*interfaces.SwInterfaceSetFlagsReply, error) {
		return nil, s.model.SetAdminUp(uint32(r.SwIfIndex), r.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0)
	})
	handle(s, s.setTag)
	s.addInterfaceMTU()
	s.addInterfaceMAC()
	s.addInterfaceTable()
	handle(s, func(_ *client, r *gso.FeatureGsoEnableDisable) (*gso.FeatureGsoEnableDisableReply, error) {
		return nil, s.model.SetGSO(uint32(r.SwIfIndex))
	})
}

func (s *Server) addInterfaceMTU() {
	handle(s, func(_ *client, r *interfaces.SwInterfaceSetMtu) (*interfaces.SwInterfaceSetMtuReply, error) {
		return nil, s.model.SetMTU(uint32(r.SwIfIndex), [4]uint32(r.Mtu))
	})
	handle(s, func(_ *client, r *interfaces.HwInterfaceSetMtu) (*interfaces.HwInterfaceSetMtuReply, error) {
		return nil, s.model.SetLinkMTU(uint32(r.SwIfIndex), int(r.Mtu))
	})
}

func (s *Server) addInterfaceMAC() {
	handle(s, func(_ *client, r *interfaces.SwInterfaceSetMacAddress) (*interfaces.SwInterfaceSetMacAddressReply, error) {
		return nil, s.model.SetMAC(uint32(r.SwIfIndex), frame.MAC(r.MacAddress))
	})
	handle(s, func(_ *client, r *interfaces.SwInterfaceGetMacAddress) (*interfaces.SwInterfaceGetMacAddressReply, error) {
		mac, err := s.model.MAC(uint32(r.SwIfIndex))
		return &interfaces.SwInterfaceGetMacAddressReply{MacAddress: ethernet_types.MacAddress(mac)}, err
	})
}

func (s *Server) addInterfaceTable() {
	handle(s, func(_ *client, r *interfaces.SwInterfaceSetTable) (*interfaces.SwInterfaceSetTableReply, error) {
		return nil, s.model.SetTable(uint32(r.SwIfIndex), forward.TableKey{Family: familyOf(r.IsIPv6), ID: r.VrfID})
	})
	handle(s, func(_ *client, r *interfaces.SwInterfaceGetTable) (*interfaces.SwInterfaceGetTableReply, error) {
		id, err := s.model.TableOf(uint32(r.SwIfIndex), familyOf(r.IsIPv6))
		return &interfaces.SwInterfaceGetTableReply{VrfID: id}, err
	})
}

func (s *Server) setTag(_ *client, r *interfaces.SwInterfaceTagAddDel) (*interfaces.SwInterfaceTagAddDelReply, error) {
	if r.IsAdd {
		return nil, s.model.SetTag(uint32(r.SwIfIndex), r.Tag)
	}
	return nil, s.model.ClearTag(uint32(r.SwIfIndex))
}

func (s *Server) dumpInterfaces(r *interfaces.SwInterfaceDump) ([]interfaces.SwInterfaceDetails, error) {
	var list []interfaces.SwInterfaceDetails
	filter := model.InterfaceFilter{Index: uint32(r.SwIfIndex), ByName: r.NameFilterValid, Name: r.NameFilter}
	for _, i := range s.model.Interfaces(filter) {
		list = append(list, interfaces.SwInterfaceDetails{
			SwIfIndex: interface_types.InterfaceIndex(i.Index), SupSwIfIndex: i.Index,
			InterfaceName: i.Name, InterfaceDevType: i.DevType, Tag: i.Tag,
			L2Address: ethernet_types.MacAddress(i.MAC), Flags: statusFlags(i.AdminUp, i.LinkUp),
			LinkMtu: uint16(i.LinkMTU), Mtu: i.MTU[:],
		})
	}
	return list, nil
}

func (s *Server) addTaps() {
	handle(s, s.addTap)
	handle(s, func(_ *client, r *tapv2.TapDeleteV2) (*tapv2.TapDeleteV2Reply, error) {
		return nil, s.model.DeleteTap(uint32(r.SwIfIndex))
	})
	handleDump(s, s.dumpTaps)
}

func (s *Server) addTap(_ *client, r *tapv2.TapCreateV3) (*tapv2.TapCreateV3Reply, error) {
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
	index, err := s.model.AddTap(t)
	return &tapv2.TapCreateV3Reply{SwIfIndex: interface_types.InterfaceIndex(index)}, err
}

// noInterface is the interface index of a reply without an interface.
const noInterface = interface_types.InterfaceIndex(model.NoIndex)

// hostEnd reads the fields of the kernel's side. A field is valid if its ...Set field is true.
func hostEnd(r *tapv2.TapCreateV3) (model.HostEnd, error) {
	var h model.HostEnd
	if r.HostIfNameSet {
		h.Name = r.HostIfName
	}
	if r.HostNamespaceSet {
		h.Namespace = r.HostNamespace
	}
	if r.HostMacAddrSet {
		h.MAC = frame.MAC(r.HostMacAddr)
	}
	if r.HostMtuSet {
		h.MTU = r.HostMtuSize
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

func (s *Server) dumpTaps(r *tapv2.SwInterfaceTapV2Dump) ([]tapv2.SwInterfaceTapV2Details, error) {
	var list []tapv2.SwInterfaceTapV2Details
	for _, t := range s.model.Taps(uint32(r.SwIfIndex)) {
		d := tapv2.SwInterfaceTapV2Details{SwIfIndex: t.Index, ID: t.ID, DevName: t.DevName,
			RxRingSz: t.RxRing, TxRingSz: t.TxRing, TapFlags: tapv2.TapFlags(t.Flags),
			HostIfName: t.Host.Name, HostNamespace: t.Host.Namespace, HostMtuSize: t.Host.MTU,
			HostMacAddr: ethernet_types.MacAddress(t.Host.MAC)}
		if p := t.Host.IP4; p.IsValid() {
			d.HostIP4Prefix = ip_types.IP4AddressWithPrefix{Address: p.Addr().As4(), Len: uint8(p.Bits())}
		}
		if p := t.Host.IP6; p.IsValid() {
			d.HostIP6Prefix = ip_types.IP6AddressWithPrefix{Address: p.Addr().As16(), Len: uint8(p.Bits())}
		}
		list = append(list, d)
	}
	return list, nil
}

func (s *Server) addLoopbacks() {
	handle(s, func(_ *client, r *interfaces.CreateLoopback) (*interfaces.CreateLoopbackReply, error) {
		index, err := s.model.AddLoopback(model.Loopback{MAC: frame.MAC(r.MacAddress)})
		return &interfaces.CreateLoopbackReply{SwIfIndex: interface_types.InterfaceIndex(index)}, err
	})
	handle(s, func(_ *client, r *interfaces.CreateLoopbackInstance) (*interfaces.CreateLoopbackInstanceReply, error) {
		index, err := s.model.AddLoopback(model.Loopback{MAC: frame.MAC(r.MacAddress), Specified: r.IsSpecified, Instance: r.UserInstance})
		return &interfaces.CreateLoopbackInstanceReply{SwIfIndex: interface_types.InterfaceIndex(index)}, err
	})
	handle(s, func(_ *client, r *interfaces.DeleteLoopback) (*interfaces.DeleteLoopbackReply, error) {
		return nil, s.model.DeleteLoopback(uint32(r.SwIfIndex))
	})
}

// maxMemifSecret is the length to which VPP truncates secrets: the last byte of the field is a NUL.
const maxMemifSecret = 23

func (s *Server) addMemifs() {
	handle(s, s.setMemifSocket)
	s.table.addList(&binapi.MemifSocketFilenameAddDelV2{}, list{count: 5, item: 1})
	handleDump(s, func(*binapi.MemifSocketFilenameDump) ([]binapi.MemifSocketFilenameDetails, error) {
		var list []binapi.MemifSocketFilenameDetails
		for _, f := range s.model.MemifSockets() {
			list = append(list, binapi.MemifSocketFilenameDetails{SocketID: f.ID, SocketFilename: f.Path})
		}
		return list, nil
	})
	handle(s, s.addMemif)
	handle(s, func(_ *client, r *binapi.MemifDelete) (*binapi.MemifDeleteReply, error) {
		return nil, s.model.DeleteMemif(uint32(r.SwIfIndex))
	})
	handleDump(s, s.dumpMemifs)
}

// setMemifSocket replies with the requested socket id if it fails, as VPP does.
func (s *Server) setMemifSocket(_ *client, r *binapi.MemifSocketFilenameAddDelV2) (*binapi.MemifSocketFilenameAddDelV2Reply, error) {
	if !r.IsAdd {
		return &binapi.MemifSocketFilenameAddDelV2Reply{SocketID: r.SocketID}, s.model.DeleteMemifSocket(r.SocketID)
	}
	id, err := s.model.AddMemifSocket(r.SocketID, r.SocketFilename)
	return &binapi.MemifSocketFilenameAddDelV2Reply{SocketID: id}, err
}

// addMemif ignores buffer size, zero copy and DMA, as VPP does for a server.
func (s *Server) addMemif(_ *client, r *binapi.MemifCreateV2) (*binapi.MemifCreateV2Reply, error) {
	secret, _, _ := strings.Cut(r.Secret, "\x00")
	c := model.Memif{Socket: r.SocketID, ID: r.ID, Client: r.Role != binapi.MEMIF_ROLE_API_MASTER, Mode: uint32(r.Mode),
		Secret: memif.Secret(secret[:min(len(secret), maxMemifSecret)]), RingSize: r.RingSize,
		RxQueues: int(r.RxQueues), TxQueues: int(r.TxQueues)}
	if mac := frame.MAC(r.HwAddr); !mac.IsZero() {
		c.MAC = &mac
	}
	index, err := s.model.AddMemif(c)
	return &binapi.MemifCreateV2Reply{SwIfIndex: interface_types.InterfaceIndex(index)}, err
}

// dumpMemifs returns the ring and buffer sizes that VPP returns for a server, connected or not.
func (s *Server) dumpMemifs(*binapi.MemifDump) ([]binapi.MemifDetails, error) {
	var list []binapi.MemifDetails
	for _, m := range s.model.Memifs() {
		list = append(list, binapi.MemifDetails{
			SwIfIndex: interface_types.InterfaceIndex(m.Index), IfName: m.Name, HwAddr: ethernet_types.MacAddress(m.Interface.MAC),
			ID: m.ID, SocketID: m.Socket, Role: binapi.MEMIF_ROLE_API_MASTER, Mode: binapi.MemifMode(m.Mode),
			RingSize: 1, Flags: statusFlags(m.AdminUp, m.LinkUp),
		})
	}
	return list, nil
}

func (s *Server) addVXLANs() {
	handle(s, s.changeVXLAN)
	handleDump(s, func(r *vxlan.VxlanTunnelV2Dump) ([]vxlan.VxlanTunnelV2Details, error) {
		var list []vxlan.VxlanTunnelV2Details
		for _, v := range s.model.VXLANs(uint32(r.SwIfIndex)) {
			list = append(list, vxlan.VxlanTunnelV2Details{
				SwIfIndex: interface_types.InterfaceIndex(v.Index), Instance: v.Instance,
				SrcAddress: toAddress(v.Source), DstAddress: toAddress(v.Destination), SrcPort: v.SourcePort, DstPort: v.DestinationPort,
				McastSwIfIndex: interface_types.InterfaceIndex(v.MulticastInterface), EncapVrfID: v.VRF,
				DecapNextIndex: v.DecapNext, Vni: v.VNI,
			})
		}
		return list, nil
	})
}

// changeVXLAN replies with the interface index for add and delete, as VPP does.
func (s *Server) changeVXLAN(_ *client, r *vxlan.VxlanAddDelTunnelV3) (*vxlan.VxlanAddDelTunnelV3Reply, error) {
	reply := &vxlan.VxlanAddDelTunnelV3Reply{SwIfIndex: noInterface}
	source, err := fromAddress(r.SrcAddress)
	if err != nil {
		return reply, err
	}
	destination, err := fromAddress(r.DstAddress)
	if err != nil {
		return reply, err
	}
	v := model.VXLAN{Instance: r.Instance, Source: source, Destination: destination, SourcePort: r.SrcPort, DestinationPort: r.DstPort,
		VRF: r.EncapVrfID, VNI: r.Vni, DecapNext: r.DecapNextIndex, MulticastInterface: uint32(r.McastSwIfIndex), L3: r.IsL3}
	change := s.model.DeleteVXLAN
	if r.IsAdd {
		change = s.model.AddVXLAN
	}
	index, err := change(v)
	reply.SwIfIndex = interface_types.InterfaceIndex(index)
	return reply, err
}

func (s *Server) addAFPackets() {
	handle(s, s.addAFPacket)
	handle(s, func(_ *client, r *af_packet.AfPacketDelete) (*af_packet.AfPacketDeleteReply, error) {
		return nil, s.model.DeleteAFPacket(r.HostIfName)
	})
	handleDump(s, func(*af_packet.AfPacketDump) ([]af_packet.AfPacketDetails, error) {
		var list []af_packet.AfPacketDetails
		for _, p := range s.model.AFPackets() {
			list = append(list, af_packet.AfPacketDetails{SwIfIndex: interface_types.InterfaceIndex(p.Index), HostIfName: p.HostName})
		}
		return list, nil
	})
}

// addAFPacket ignores ring sizes: a socket has no rings here.
func (s *Server) addAFPacket(_ *client, r *af_packet.AfPacketCreateV3) (*af_packet.AfPacketCreateV3Reply, error) {
	p := model.AFPacket{HostName: r.HostIfName, Mode: uint32(r.Mode), Flags: model.AFPacketFlags(r.Flags),
		Queues: int(max(r.NumRxQueues, r.NumTxQueues))}
	if !r.UseRandomHwAddr {
		mac := frame.MAC(r.HwAddr)
		p.MAC = &mac
	}
	index, err := s.model.AddAFPacket(p)
	return &af_packet.AfPacketCreateV3Reply{SwIfIndex: interface_types.InterfaceIndex(index)}, err
}
