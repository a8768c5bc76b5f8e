package podmanager

import (
	"net"
	"net/netip"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// requested reads what the runtime, and a foreign IPAM plugin, ask for the main interface.
func requested(req *weftv1.AddRequest) (pod.Requested, error) {
	r := pod.Requested{MAC: req.GetMac(), DeviceID: req.GetDeviceId(), Pools: req.GetPools(), AwaitsAddresses: req.GetAwaitsAddresses()}
	families := make(map[bool]bool)
	for _, text := range req.GetIps() {
		addr, err := parseAddress(text)
		if err != nil {
			return r, pod.Errorf(pod.CodeInvalidConfig, "requested address %q: %w", text, err)
		}
		if families[addr.Addr().Is4()] {
			return r, pod.Errorf(pod.CodeInvalidConfig, "requested address %q: one of this family is requested already", text)
		}
		families[addr.Addr().Is4()] = true
		r.Addresses = append(r.Addresses, addr)
	}
	if len(r.Pools) > 0 && req.GetMode() != pod.ModeIPAM {
		return r, pod.Errorf(pod.CodeInvalidConfig, "pools are for mode ipam, and this is mode %q", req.GetMode())
	}
	if err := chosen(&r, req); err != nil {
		return r, err
	}
	if err := delegate(&r, req); err != nil || r.MAC == "" {
		return r, err
	}
	mac, err := net.ParseMAC(r.MAC)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return r, pod.Errorf(pod.CodeInvalidConfig, "requested MAC %q: not a unicast Ethernet address", r.MAC)
	}
	r.MAC = mac.String()
	return r, nil
}

// chosen reads what a delegate's interface is to be.
func chosen(r *pod.Requested, req *weftv1.AddRequest) (err error) {
	r.Network, r.Type = req.GetInterfaceNetwork(), req.GetInterfaceType()
	switch {
	case r.Network == "" && r.Type == "" && req.GetInterfaceOptions() == "":
		return nil
	case req.GetMode() != pod.ModeDelegate:
		return pod.Errorf(pod.CodeInvalidConfig, "network, interfaceType and options are for mode delegate, and this is mode %q", req.GetMode())
	case r.Network != "" && !pod.IsLabel(r.Network):
		return pod.Errorf(pod.CodeInvalidConfig, "network %.80q: expected default, stub or the name of a custom network", r.Network)
	case r.Type != "" && !pod.IsInterfaceType(r.Type):
		return pod.Errorf(pod.CodeInvalidConfig, "interfaceType %.80q: expected tap, veth or memif", r.Type)
	case len(req.GetDelegatedIps()) > 0 && (r.Type == pod.TypeMemif || r.Network != "" && r.Network != pod.DefaultNetwork):
		return pod.Errorf(pod.CodeInvalidConfig, "ipam: another plugin gives addresses for taps and veths on the network default only; leave it out, and the network gives them")
	}
	if r.Options, err = pod.ParseOptions(req.GetInterfaceOptions()); err != nil {
		return pod.Errorf(pod.CodeInvalidConfig, "options: %w", err)
	}
	if err := r.Options.Suit(r.Type); err != nil {
		return pod.Errorf(pod.CodeInvalidConfig, "options: %w", err)
	}
	return nil
}

// parseAddress takes an address with or without a prefix length: the interface has the whole length in any case.
func parseAddress(text string) (netip.Prefix, error) {
	prefix, err := pod.ParseAddress(text)
	if err == nil {
		return prefix, nil
	}
	mapped, _ := netip.ParsePrefix(text)
	if !mapped.IsValid() {
		address, _ := netip.ParseAddr(text)
		mapped = netip.PrefixFrom(address, address.BitLen())
	}
	if a := mapped.Addr(); a.Is4In6() && a.Zone() == "" && mapped.Bits() >= 96 {
		return netip.PrefixFrom(a.Unmap(), mapped.Bits()-96), nil
	}
	return prefix, err
}

// delegate reads what a foreign IPAM plugin gave.
func delegate(r *pod.Requested, req *weftv1.AddRequest) error {
	families := make(map[bool]bool)
	for _, ip := range req.GetDelegatedIps() {
		prefix, err := netip.ParsePrefix(ip.GetAddress())
		if err != nil {
			return pod.Errorf(pod.CodeInvalidConfig, "address of the IPAM plugin: %w", err)
		}
		if families[prefix.Addr().Is4()] {
			return pod.Errorf(pod.CodeInvalidConfig, "address %s of the IPAM plugin is the second one of its family, one each is possible", prefix)
		}
		families[prefix.Addr().Is4()] = true
		gateway, err := gatewayOf(ip.GetGateway())
		if err != nil {
			return pod.Errorf(pod.CodeInvalidConfig, "gateway of the IPAM plugin: %w", err)
		}
		r.Delegated, r.DelegatedGateways = append(r.Delegated, prefix), append(r.DelegatedGateways, gateway)
	}
	for _, route := range req.GetDelegatedRoutes() {
		destination, err := netip.ParsePrefix(route.GetDestination())
		if err != nil {
			return pod.Errorf(pod.CodeInvalidConfig, "route of the IPAM plugin: %w", err)
		}
		gateway, err := gatewayOf(route.GetGateway())
		if err != nil {
			return pod.Errorf(pod.CodeInvalidConfig, "route %s of the IPAM plugin: %w", destination, err)
		}
		r.Delegation.Routes = append(r.Delegation.Routes, pod.Route{Destination: destination.Masked(), Gateway: gateway})
	}
	d := req.GetDelegatedDns()
	r.Delegation.DNS = pod.DNS{
		Nameservers: d.GetNameservers(), Domain: d.GetDomain(), Search: d.GetSearch(), Options: d.GetOptions(),
	}
	return nil
}

func gatewayOf(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	return netip.ParseAddr(text)
}
