package podmanager

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// keyOf returns the key of a request. Its parts become parts of names, so it has the plugin's rules.
func keyOf(a *weftv1.Attachment) (pod.Key, error) {
	key := pod.Key{Network: a.GetNetwork(), ContainerID: a.GetContainerId(), IfName: a.GetIfName()}
	if err := key.Validate(); err != nil {
		return pod.Key{}, err
	}
	if len(key.IfName) > 15 || len(key.Network) > 256 || len(key.ContainerID) > 256 ||
		strings.ContainsFunc(key.Network+key.ContainerID+key.IfName, illegal) {
		return pod.Key{}, pod.Errorf(pod.CodeInvalidEnvironment, "attachment %.300q %w", key.String(), errIllegalName)
	}
	return key, nil
}

// errIllegalName means that no attachment can have the key.
var errIllegalName = errors.New("has an illegal name")

// newKeyOf returns the key of an ADD. It rejects more names than keyOf: older attachments may have them.
func newKeyOf(a *weftv1.Attachment) (pod.Key, error) {
	key, err := keyOf(a)
	if err == nil && (pod.IsReservedLinkName(key.IfName) || strings.Contains(key.IfName, "%")) {
		return pod.Key{}, pod.Errorf(pod.CodeInvalidEnvironment,
			"CNI_IFNAME %q cannot be the name of a pod's interface", key.IfName)
	}
	return key, err
}

func illegal(r rune) bool { return r <= ' ' || r == '/' || r == ':' || r > '~' }

func idOf(p *weftv1.Pod) pod.ID {
	return pod.ID{Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUid()}
}

// requested parses the request of the runtime, and of a foreign IPAM plugin, for the main interface.
func requested(req *weftv1.AddRequest) (pod.Requested, error) {
	r := pod.Requested{
		DeviceID:        req.GetDeviceId(),
		Pools:           req.GetPools(),
		AwaitsAddresses: req.GetAwaitsAddresses(),
	}
	families := make(map[bool]bool)
	for _, text := range req.GetIps() {
		addr, err := parseAddress(text)
		if err != nil {
			return r, pod.Errorf(pod.CodeInvalidConfig, "requested address %q: %w", text, err)
		}
		if families[addr.Addr().Is4()] {
			return r, pod.Errorf(pod.CodeInvalidConfig, "requested address %q: one of this family is requested already",
				text)
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
	if err := limits(&r, req); err != nil {
		return r, err
	}
	if err := delegate(&r, req); err != nil || req.GetMac() == "" {
		return r, err
	}
	mac, err := netaddr.ParseMAC(req.GetMac())
	if err != nil || !mac.IsUnicast() {
		return r, pod.Errorf(pod.CodeInvalidConfig, "requested MAC %q: not a unicast Ethernet address", req.GetMac())
	}
	r.MAC = mac
	return r, nil
}

// chosen parses the network, type and options of a delegate's interface.
func chosen(r *pod.Requested, req *weftv1.AddRequest) (err error) {
	r.Network = req.GetInterfaceNetwork()
	r.Type = req.GetInterfaceType()
	switch {
	case r.Network == "" && r.Type == "" && req.GetInterfaceOptions() == "":
		return nil
	case req.GetMode() != pod.ModeDelegate:
		return pod.Errorf(pod.CodeInvalidConfig,
			"network, interfaceType and options are for mode delegate, and this is mode %q", req.GetMode())
	case r.Network != "" && !pod.IsLabel(r.Network):
		return pod.Errorf(pod.CodeInvalidConfig,
			"network %.80q: expected default, stub or the name of a custom network", r.Network)
	case r.Type != "" && !pod.IsInterfaceType(r.Type):
		return pod.Errorf(pod.CodeInvalidConfig, "interfaceType %.80q: expected tap, veth or memif", r.Type)
	case len(req.GetDelegatedIps()) > 0 &&
		(r.Type == pod.TypeMemif || r.Network != "" && r.Network != pod.DefaultNetwork):
		return pod.Errorf(pod.CodeInvalidConfig,
			"ipam: another IPAM plugin is possible only for taps and veths on the network default; remove it to use the addresses of the network")
	}
	if r.Options, err = pod.ParseOptions(req.GetInterfaceOptions()); err != nil {
		return pod.Errorf(pod.CodeInvalidConfig, "options: %w", err)
	}
	if err := r.Options.ValidateFor(r.Type); err != nil {
		return pod.Errorf(pod.CodeInvalidConfig, "options: %w", err)
	}
	return nil
}

// limits parses the capability bandwidth.
func limits(r *pod.Requested, req *weftv1.AddRequest) (err error) {
	if req.GetBandwidth() == "" {
		return nil
	}
	if r.Limits, err = pod.ParseBandwidth([]byte(req.GetBandwidth())); err != nil {
		return pod.Errorf(pod.CodeInvalidConfig, "capability bandwidth: %w", err)
	}
	if req.GetMode() == pod.ModeChained && !r.Limits.IsZero() {
		return pod.Errorf(pod.CodeInvalidConfig,
			"capability bandwidth: another plugin made the interface, which Weft cannot limit: put the plugin bandwidth behind that one, and remove bandwidth from the capabilities of weft-cni")
	}
	return nil
}

// parseAddress parses an address with or without a prefix length. The interface always gets the full length.
func parseAddress(text string) (netip.Prefix, error) {
	prefix, err := pod.ParseAddress(text)
	if err == nil {
		return prefix, nil
	}
	mapped, _ := netip.ParsePrefix(text)
	if !mapped.IsValid() {
		address, _ := netip.ParseAddr(text)
		mapped = netaddr.Single(address)
	}
	if a := mapped.Addr(); a.Is4In6() && a.Zone() == "" && mapped.Bits() >= 96 {
		return netip.PrefixFrom(a.Unmap(), mapped.Bits()-96), nil
	}
	return prefix, err
}

// delegate parses the result of a foreign IPAM plugin.
func delegate(r *pod.Requested, req *weftv1.AddRequest) error {
	families := make(map[bool]bool)
	for _, ip := range req.GetDelegatedIps() {
		prefix, err := netip.ParsePrefix(ip.GetAddress())
		if err != nil {
			return pod.Errorf(pod.CodeInvalidConfig, "address of the IPAM plugin: %w", err)
		}
		if families[prefix.Addr().Is4()] {
			return pod.Errorf(pod.CodeInvalidConfig,
				"address %s of the IPAM plugin is the second one of its family, one each is possible", prefix)
		}
		families[prefix.Addr().Is4()] = true
		gateway, err := gatewayOf(ip.GetGateway())
		if err != nil {
			return pod.Errorf(pod.CodeInvalidConfig, "gateway of the IPAM plugin: %w", err)
		}
		r.Delegated = append(r.Delegated, prefix)
		r.DelegatedGateways = append(r.DelegatedGateways, gateway)
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
		r.Delegation.Routes = append(r.Delegation.Routes, pod.Route{
			Destination: destination.Masked(),
			Gateway:     gateway,
		})
	}
	d := req.GetDelegatedDns()
	r.Delegation.DNS = pod.DNS{
		Nameservers: d.GetNameservers(), Domain: d.GetDomain(), Search: d.GetSearch(), Options: d.GetOptions(),
	}
	return r.Validate()
}

func gatewayOf(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	return netip.ParseAddr(text)
}
