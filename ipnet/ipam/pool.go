package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Pool is a block of addresses of one family. Not for pods are its first address (the network's), the next one (the
// node's own) and in IPv4 the last one (broadcast).
type Pool struct {
	Name   string       `json:"name"` // unique, no slash
	Prefix netip.Prefix `json:"prefix"`

	Disabled   bool     `json:"disabled,omitempty"`   // no address is granted any more, but those that are stay
	Namespaces []string `json:"namespaces,omitempty"` // for pods of these only; empty: for all

	// Blocks: the prefix is that of several nodes, and this one gives out addresses of its own blocks only.
	Blocks bool `json:"blocks,omitempty"`
}

// Admits reports whether pods of a namespace may have addresses of the pool.
func (p Pool) Admits(namespace string) bool {
	return len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, namespace)
}

// Node is the address that the node keeps for itself; of a pool of several nodes, one that no pod has.
func (p Pool) Node() netip.Addr { return p.Prefix.Masked().Addr().Next() }

// Validate refuses a pool that has no address for a pod, or whose addresses cannot be a pod's.
func (p Pool) Validate() error {
	if p.Name == "" || strings.ContainsAny(p.Name, "/ \t\n") {
		return fmt.Errorf("pool %q: a name without slashes and blanks is needed", p.Name)
	}
	if err := validPrefix(p.Prefix); err != nil {
		return fmt.Errorf("pool %s: prefix %s: %w", p.Name, p.Prefix, err)
	}
	return nil
}

func validPrefix(p netip.Prefix) error {
	a := p.Addr()
	switch {
	case !p.IsValid() || a.Is4In6() || a.Zone() != "":
		return errors.New("not a prefix of IPv4 or IPv6")
	case p != p.Masked():
		return fmt.Errorf("has bits set behind its length: did you mean %s?", p.Masked())
	case hostBits(p) < 2:
		return errors.New("too small: two bits at least are needed for the network, the node and a pod")
	case a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified():
		return errors.New("not of unicast addresses that can be routed")
	}
	return nil
}

func hostBits(p netip.Prefix) int { return p.Addr().BitLen() - p.Bits() }

// first is the lowest address for pods.
func (p Pool) first() netip.Addr { return p.Node().Next() }

// last is the highest address for pods.
func (p Pool) last() netip.Addr {
	highest := lastOf(p.Prefix)
	if highest.Is4() {
		return highest.Prev()
	}
	return highest
}

// lastOf is the highest address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := range bytes {
		if free := 8*(i+1) - p.Bits(); free > 0 {
			bytes[i] |= byte(1<<min(free, 8) - 1)
		}
	}
	highest, _ := netip.AddrFromSlice(bytes)
	return highest
}

func validPools(pools []Pool) error {
	for i, p := range pools {
		if err := p.Validate(); err != nil {
			return err
		}
		for _, other := range pools[:i] {
			if p.Name == other.Name {
				return fmt.Errorf("two pools have the name %s", p.Name)
			}
			if p.Prefix.Overlaps(other.Prefix) {
				return fmt.Errorf("pools %s (%s) and %s (%s) overlap", other.Name, other.Prefix, p.Name, p.Prefix)
			}
		}
	}
	return nil
}
