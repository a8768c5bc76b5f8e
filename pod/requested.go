package pod

import (
	"cmp"
	"net/netip"

	"github.com/weftnet/weft/internal/netaddr"
)

// Requested is the request of the runtime for the main interface, in addition to annotations.
type Requested struct {
	Addresses []netip.Prefix // at most one of each family; single addresses unless the runtime gave a prefix length
	MAC       netaddr.MAC    // zero: any
	Pools     []string       // to allocate from; none: the pools of the pod
	Limits    Limits         // of the capability bandwidth
	DeviceID  string         // of the device plugin, if another component chose the device

	// Network, Type and Options are set in mode delegate only: the configuration of another plugin specifies the
	// interface.
	Network string // "default", "stub", or a custom network's name; "" is default
	Type    string // tap, veth or memif; "": the type of main interfaces
	Options InterfaceOptions

	// Delegated are the addresses of a foreign IPAM plugin, at most one of each family. The main interface has no
	// others. DelegatedGateways has their gateways, invalid if absent, in the same order. Weft replaces them by its own
	// gateways.
	Delegated         []netip.Prefix
	DelegatedGateways []netip.Addr
	Delegation        Delegation // the rest of the result

	// AwaitsAddresses requests a main interface without addresses, which a foreign IPAM plugin uses to get them (dhcp).
	// An AddressPod adds them.
	AwaitsAddresses bool
}

// Limits of a request. A tenant may have written it: the configuration of an IPAM plugin is that of a
// NetworkAttachmentDefinition, and a DHCP server may be a pod. Each route is an object of the pod's transaction, for
// which the pods of the node wait.
const (
	MaxRoutes = 64 // of an IPAM plugin
	// name servers, search domains and options each; as many search domains as Kubernetes permits for a pod
	MaxDNS     = 32
	MaxDNSText = 255 // bytes of each and of the domain, as of a domain name
	MaxPools   = 64  // by their names
)

// Validate rejects a request that exceeds a limit. Its errors have code 7.
func (r *Requested) Validate() error {
	if len(r.Pools) > MaxPools {
		return Errorf(CodeInvalidConfig, "the IPAM configuration names %d pools, at most %d are possible", len(r.Pools),
			MaxPools)
	}
	if err := validateRoutes(r.Options.Routes); err != nil {
		return Errorf(CodeInvalidConfig, "options: routes: %w", err)
	}
	if err := cmp.Or(r.Options.Moving.Validate(), checkCount(r.Options.VLANs)); err != nil {
		return Errorf(CodeInvalidConfig, "options: %w", err)
	}
	if err := validateRouted(r.Options.RoutedPrefixes); err != nil {
		return Errorf(CodeInvalidConfig, "options: %w", err)
	}
	return r.Delegation.Validate()
}

// Validate rejects a result that exceeds a limit. Its errors have code 7.
func (d Delegation) Validate() error {
	why := d.DNS.exceeded()
	if len(d.Routes) > MaxRoutes {
		why = tooMany("routes", len(d.Routes), MaxRoutes)
	}
	if why != "" {
		return Errorf(CodeInvalidConfig, "the IPAM plugin returned %s", why)
	}
	return nil
}
