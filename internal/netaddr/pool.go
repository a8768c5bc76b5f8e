package netaddr

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Pool is a prefix of one address family for pods. Its first address (the network's), the next one (the node's own) and
// in IPv4 the last one (broadcast) are not for pods.
type Pool struct {
	Name   string       `json:"name"` // unique, no slash
	Prefix netip.Prefix `json:"prefix"`

	// Blocks: nodes share the prefix, and each node allocates addresses of its own blocks.
	Blocks bool `json:"blocks,omitempty"`

	Disabled   bool     `json:"disabled,omitempty"`   // no new addresses; pods keep theirs
	Namespaces []string `json:"namespaces,omitempty"` // namespaces whose pods may use the pool; empty: all
}

// Admits reports whether pods of a namespace may have addresses of the pool.
func (p Pool) Admits(namespace string) bool {
	return len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, namespace)
}

// Node returns the node's own address; in a pool that nodes share, an address that no pod has.
func (p Pool) Node() netip.Addr { return p.Prefix.Masked().Addr().Next() }

// First returns the lowest address for pods.
func (p Pool) First() netip.Addr { return p.Node().Next() }

// Last returns the highest address for pods.
func (p Pool) Last() netip.Addr {
	highest := Last(p.Prefix)
	if highest.Is4() {
		return highest.Prev()
	}
	return highest
}

// Validate rejects a pool without a usable address for pods.
func (p Pool) Validate() error {
	if p.Name == "" || strings.ContainsAny(p.Name, "/ \t\n") {
		return fmt.Errorf("pool %q: the name is empty or has a slash or blank", p.Name)
	}
	if err := validPoolPrefix(p.Prefix); err != nil {
		return fmt.Errorf("pool %s: prefix %s: %w", p.Name, p.Prefix, err)
	}
	return nil
}

func validPoolPrefix(p netip.Prefix) error {
	a := p.Addr()
	switch {
	case !p.IsValid() || a.Is4In6() || a.Zone() != "":
		return errors.New("not an IPv4 or IPv6 prefix")
	case p != p.Masked():
		return fmt.Errorf("has host bits set: did you mean %s?", p.Masked())
	case a.BitLen()-p.Bits() < 2:
		return errors.New("too small: the network, the node and a pod need at least two host bits")
	case a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified():
		return errors.New("not routable unicast addresses")
	}
	return nil
}
