package pod

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
)

// maxAllowed is the maximum number of allowed addresses, and of virtual routers, of an interface: each pair of a MAC
// and a prefix is a rule of the dataplane.
const maxAllowed = 16

// maxVirtualRouter is the highest ID of a virtual router (RFC 9568 5.2.3); the lowest is 1. CARP has the same IDs.
const maxVirtualRouter = 255

// Moving are addresses that move between pods, such as the virtual addresses of VRRP and CARP: an interface may send
// from them although other interfaces may too.
//
// The MACs of virtual routers are chosen by ID and not all at once, because a pod with the MACs of all 255 could take
// the frames of any of them.
type Moving struct {
	Addresses      []netip.Prefix `json:"addresses,omitempty"`      // masked
	VirtualRouters []int          `json:"virtualRouters,omitempty"` // IDs of VRRP and CARP, whose MACs it may use too
}

// IsZero reports whether the interface sends from its own addresses and its own MAC only.
func (m Moving) IsZero() bool { return len(m.Addresses) == 0 && len(m.VirtualRouters) == 0 }

// MACsOfVirtualRouter returns the MACs of a virtual router: of VRRP for IPv4, which CARP has for both families, and of
// VRRP for IPv6 (RFC 9568 7.3).
func MACsOfVirtualRouter(id int) []netaddr.MAC {
	return []netaddr.MAC{{0, 0, 0x5e, 0, 1, byte(id)}, {0, 0, 0x5e, 0, 2, byte(id)}}
}

// Validate rejects addresses and virtual routers that are invalid on all networks.
func (m Moving) Validate() error {
	if len(m.Addresses) > maxAllowed {
		return fmt.Errorf("allowedAddresses: %d addresses, at most %d are possible", len(m.Addresses), maxAllowed)
	}
	for _, p := range m.Addresses {
		if !p.IsValid() || p.Addr().Is4In6() {
			return fmt.Errorf("allowedAddresses: %s is not an IPv4 or IPv6 address or prefix", p)
		}
		if p != p.Masked() {
			return fmt.Errorf("allowedAddresses: %s has host bits set, did you mean %s?", p, p.Masked())
		}
		if !isUnicast(netaddr.RangeOf(p)) {
			return fmt.Errorf("allowedAddresses: %s are not unicast addresses that are routed", p)
		}
	}
	if len(m.VirtualRouters) > maxAllowed {
		return fmt.Errorf("virtualRouters: %d IDs, at most %d are possible", len(m.VirtualRouters), maxAllowed)
	}
	return validateVirtualRouters(m.VirtualRouters)
}

// validateVirtualRouters rejects an ID that is out of range, or there twice.
func validateVirtualRouters(ids []int) error {
	for at, id := range ids {
		switch {
		case id < 1 || id > maxVirtualRouter:
			return fmt.Errorf("virtualRouters: %d is not within 1 and %d", id, maxVirtualRouter)
		case slices.Contains(ids[:at], id):
			return fmt.Errorf("virtualRouters: %d occurs twice", id)
		}
	}
	return nil
}

// isUnicast reports whether all addresses of a range can be those of hosts beyond one link. Each pod has a link-local
// address, which no other pod may take.
func isUnicast(r netaddr.Range) bool {
	for _, reserved := range []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127",
		"::ffff:0:0/96", "fe80::/10", "ff00::/8"} {
		if r.Overlaps(netip.MustParsePrefix(reserved)) {
			return false
		}
	}
	return true
}

// parseAllowed parses a JSON list of addresses and prefixes.
func (m *Moving) parseAllowed(raw json.RawMessage) error {
	var texts []string
	if err := json.Unmarshal(raw, &texts); err != nil {
		return fmt.Errorf(`expected a JSON list such as ["10.5.0.100", "10.9.0.0/24"], not %.300q`, raw)
	}
	m.Addresses = nil
	for _, text := range texts {
		p, err := ParseAddress(text)
		if err != nil {
			return err
		}
		m.Addresses = append(m.Addresses, p)
	}
	return nil
}

func (m *Moving) parseVirtualRouters(raw json.RawMessage) error {
	if json.Unmarshal(raw, &m.VirtualRouters) != nil {
		return fmt.Errorf("expected a JSON list of IDs such as [51], not %.300q", raw)
	}
	return nil
}

// checkMoving rejects permissions that do not suit the network: only interfaces on one link can move addresses, and
// never those of the dataplane.
func (n *Network) checkMoving() error {
	isUsed := len(n.AllowedAddresses) > 0 || len(n.VirtualRouters) > 0 || len(n.Permissions) > 0
	if isUsed && (n.Type != L2 || n.Direct) {
		return errors.New("allowedAddresses, virtualRouters and permissions: only for a network of type L2 that is not direct")
	}
	for _, r := range n.AllowedAddresses {
		if err := n.checkMovingRange(r); err != nil {
			return err
		}
	}
	return cmp.Or(validateVirtualRouters(n.VirtualRouters), n.checkPermissions())
}

// checkMovingRange rejects addresses that cannot move between pods of the network.
func (n *Network) checkMovingRange(r netaddr.Range) error {
	cidr := n.cidrOf(r.First.Is4())
	gateway := n.GatewayIn(cidr)
	switch {
	case !isUnicast(r):
		return fmt.Errorf("allowedAddresses: %s are not unicast addresses that are routed", r)
	case cidr.IsValid() && r.Overlaps(cidr) && !r.Within(cidr):
		return fmt.Errorf("allowedAddresses: %s is partly within the cidrs: split it", r)
	case gateway.IsValid() && r.Contains(gateway):
		return fmt.Errorf("allowedAddresses: %s contains the gateway %s", r, gateway)
	}
	return nil
}

// permits rejects addresses and virtual routers that an interface requests and the network does not permit, and the MAC
// of a virtual router as its own.
func (n *Network) permits(o InterfaceOptions) error {
	for _, id := range n.movingRouters() {
		if slices.Contains(MACsOfVirtualRouter(id), o.MAC) {
			return fmt.Errorf("mac: %s moves between pods of network %s: use the option virtualRouters, or another MAC",
				o.MAC, n.Name)
		}
	}
	m := o.Moving
	if m.IsZero() {
		return nil
	}
	if n.Type != L2 || n.Direct {
		return fmt.Errorf("allowedAddresses and virtualRouters: addresses do not move on network %s: "+
			"use a custom network of type L2", n.Name)
	}
	for _, p := range m.Addresses {
		if !n.AllowedAddresses.Cover(p) {
			return fmt.Errorf("allowedAddresses: network %s does not permit %s: "+
				"add it to allowedAddresses of the network", n.Name, p)
		}
	}
	for _, id := range m.VirtualRouters {
		if !slices.Contains(n.VirtualRouters, id) {
			return fmt.Errorf("virtualRouters: network %s does not permit %d: add it to virtualRouters of the network",
				n.Name, id)
		}
	}
	return nil
}
