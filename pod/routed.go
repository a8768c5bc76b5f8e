package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
)

// maxRouted is the maximum number of routed prefixes of an interface: each is a route on all nodes of the network.
const maxRouted = 16

// parseRouted parses a JSON list of prefixes.
func parseRouted(raw json.RawMessage) (prefixes []netip.Prefix, err error) {
	var texts []string
	if json.Unmarshal(raw, &texts) != nil {
		return nil, fmt.Errorf(`expected a JSON list of prefixes such as ["10.60.0.0/24"], not %.300q`, raw)
	}
	for _, text := range texts {
		p, err := ParseAddress(text)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

// validateRouted rejects prefixes that no interface can have on any network.
func validateRouted(prefixes []netip.Prefix) error {
	if len(prefixes) > maxRouted {
		return fmt.Errorf("routedPrefixes: %d prefixes, at most %d are possible", len(prefixes), maxRouted)
	}
	for at, p := range prefixes {
		if why := notRoutable(p); why != nil {
			return why
		}
		if slices.ContainsFunc(prefixes[:at], p.Overlaps) {
			return fmt.Errorf("routedPrefixes: %s overlaps another one", p)
		}
	}
	return nil
}

// notRoutable says why no network routes a prefix to a pod; nil if one can.
func notRoutable(p netip.Prefix) error {
	switch {
	case !p.IsValid() || p.Addr().Is4In6():
		return fmt.Errorf("routedPrefixes: %s is not an IPv4 or IPv6 prefix", p)
	case p != p.Masked():
		return fmt.Errorf("routedPrefixes: %s has host bits set, did you mean %s?", p, p.Masked())
	case !isUnicast(netaddr.RangeOf(p)):
		return fmt.Errorf("routedPrefixes: %s are not unicast addresses that are routed", p)
	}
	return nil
}

// checkRouted rejects prefixes that the network cannot route to a pod.
func (n *Network) checkRouted() error {
	if len(n.RoutedPrefixes) > 0 && n.Type != L3 {
		return errors.New("routedPrefixes: only for a network of type L3; " +
			"on a network of type L2 pods reach a subnet by routes via the address of the router")
	}
	for _, p := range n.RoutedPrefixes {
		if err := notRoutable(p); err != nil {
			return err
		}
		if !n.cidrOf(p.Addr().Is4()).IsValid() {
			return fmt.Errorf("routedPrefixes: %s needs a CIDR of its family: the next hop is the address of a pod", p)
		}
		for _, cidr := range n.CIDRs {
			if p.Overlaps(cidr) {
				return fmt.Errorf("routedPrefixes: %s overlaps the CIDR %s, whose addresses are those of pods", p, cidr)
			}
		}
	}
	return nil
}

// PermitsRouted reports whether the network routes a prefix to a pod that requests it.
func (n *Network) PermitsRouted(p netip.Prefix) bool {
	return slices.ContainsFunc(n.RoutedPrefixes, func(o netip.Prefix) bool {
		return o.Bits() <= p.Bits() && o.Contains(p.Addr())
	})
}

// permitsAllRouted rejects prefixes that an interface requests and the network does not permit.
func (n *Network) permitsAllRouted(prefixes []netip.Prefix) error {
	if len(prefixes) > 0 && n.Type != L3 {
		return fmt.Errorf("routedPrefixes: network %s does not route: use a custom network of type L3", n.Name)
	}
	for _, p := range prefixes {
		if !n.PermitsRouted(p) {
			return fmt.Errorf("routedPrefixes: network %s does not permit %s: add it to routedPrefixes of the network",
				n.Name, p)
		}
	}
	return nil
}
