package netaddr

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Pool is a prefix of one address family for pods. Its first address (the network's), the node's own, which is the next
// one if Gateway does not name another, and in IPv4 the last one (broadcast) are not for pods.
type Pool struct {
	Name   string       `json:"name"` // unique, no slash
	Prefix netip.Prefix `json:"prefix"`

	// Blocks: nodes share the prefix, and each node allocates addresses of its own blocks.
	Blocks bool `json:"blocks,omitempty"`

	Disabled   bool     `json:"disabled,omitempty"`   // no new addresses; pods keep theirs
	Namespaces []string `json:"namespaces,omitempty"` // namespaces whose pods may use the pool; empty: all

	Gateway   netip.Addr `json:"gateway,omitzero"`    // the node's own address; invalid: the lowest one
	NoGateway bool       `json:"noGateway,omitempty"` // the node has no address of the pool
	Reserved  Ranges     `json:"reserved,omitempty"`  // no pod gets them
	Excluded  Ranges     `json:"excluded,omitempty"`  // pods get them on request only
}

// Admits reports whether pods of a namespace may have addresses of the pool.
func (p Pool) Admits(namespace string) bool {
	return len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, namespace)
}

// Node returns the node's own address; in a pool that nodes share, an address that no pod has. It is invalid if the
// node has none.
func (p Pool) Node() netip.Addr {
	switch {
	case p.NoGateway:
		return netip.Addr{}
	case p.Gateway.IsValid():
		return p.Gateway
	}
	return p.Prefix.Masked().Addr().Next()
}

// Kept are the addresses that no pod gets.
func (p Pool) Kept() Ranges {
	if own := p.Node(); own.IsValid() {
		return append(slices.Clip(p.Reserved), Range{First: own, Last: own})
	}
	return p.Reserved
}

// Unchosen are the addresses that no pod gets unless it requests them.
func (p Pool) Unchosen() Ranges { return append(p.Kept(), p.Excluded...) }

// First returns the lowest address for pods, apart from those that the pool keeps.
func (p Pool) First() netip.Addr {
	first := p.Prefix.Addr().Next()
	if first == p.Node() {
		return first.Next()
	}
	return first
}

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
	if own := p.Node(); own.IsValid() && (own == p.Prefix.Addr() || !p.Prefix.Contains(own) || p.Last().Less(own)) {
		return fmt.Errorf("pool %s: gateway %s is not an address for hosts of %s", p.Name, own, p.Prefix)
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
