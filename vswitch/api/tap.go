package api

import (
	"net/netip"

	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

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

// noInterface is the index in a reply that has none to tell.
const noInterface = interface_types.InterfaceIndex(model.NoIndex)

// hostEnd reads the fields about the kernel's side: each counts if it is marked as set.
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
