package api

import (
	"net/netip"

	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip6_nd"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/vswitch/forward"
)

func (s *Server) addProxies() {
	handle(s, s.changeProxyARP)
	handle(s, func(_ *client, r *arp.ProxyArpIntfcEnableDisable) (*arp.ProxyArpIntfcEnableDisableReply, error) {
		return nil, s.model.SetProxyARP(uint32(r.SwIfIndex), r.Enable)
	})
	handleDump(s, s.dumpProxyARPs)
	handleDump(s, func(*arp.ProxyArpIntfcDump) ([]arp.ProxyArpIntfcDetails, error) {
		var list []arp.ProxyArpIntfcDetails
		for _, index := range s.model.ProxyARPInterfaces() {
			list = append(list, arp.ProxyArpIntfcDetails{SwIfIndex: index})
		}
		return list, nil
	})
	handle(s, func(_ *client, r *ip6_nd.IP6ndProxyAddDel) (*ip6_nd.IP6ndProxyAddDelReply, error) {
		host := netip.AddrFrom16(r.IP)
		if r.IsAdd {
			return nil, s.model.AddProxyND(uint32(r.SwIfIndex), host)
		}
		return nil, s.model.DeleteProxyND(uint32(r.SwIfIndex), host)
	})
	handle(s, func(_ *client, r *ip6_nd.IP6ndProxyEnableDisable) (*ip6_nd.IP6ndProxyEnableDisableReply, error) {
		return nil, s.model.SetProxyND(uint32(r.SwIfIndex), r.IsEnable)
	})
	handleDump(s, s.dumpProxyNDs)
}

func (s *Server) changeProxyARP(_ *client, r *arp.ProxyArpAddDel) (*arp.ProxyArpAddDelReply, error) {
	p := forward.ProxyRange{Table: r.Proxy.TableID, Low: netip.AddrFrom4(r.Proxy.Low), High: netip.AddrFrom4(r.Proxy.Hi)}
	if r.IsAdd {
		return nil, s.model.AddProxyARP(p)
	}
	return nil, s.model.DeleteProxyARP(p)
}

func (s *Server) dumpProxyARPs(*arp.ProxyArpDump) ([]arp.ProxyArpDetails, error) {
	var list []arp.ProxyArpDetails
	for _, p := range s.model.ProxyARPs() {
		list = append(list, arp.ProxyArpDetails{Proxy: arp.ProxyArp{TableID: p.Table, Low: p.Low.As4(), Hi: p.High.As4()}})
	}
	return list, nil
}

func (s *Server) dumpProxyNDs(*ip6_nd.IP6ndProxyDump) ([]ip6_nd.IP6ndProxyDetails, error) {
	var list []ip6_nd.IP6ndProxyDetails
	for _, p := range s.model.ProxyNDs() {
		list = append(list, ip6_nd.IP6ndProxyDetails{SwIfIndex: interface_types.InterfaceIndex(p.Interface), IP: ip_types.IP6Address(p.Addr.As16())})
	}
	return list, nil
}
