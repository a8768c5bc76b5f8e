package v1

import "net/netip"

// CIDR is a range of IPv4 or IPv6 addresses in its canonical text form, without host bits.
//
// +kubebuilder:validation:MinLength=4
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="expected a CIDR, for example 10.1.0.0/16 or fd00:1::/48"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || string(cidr(self).masked()) == self",message="expected the canonical text of the CIDR, without host bits"
type CIDR string

// IP is an IPv4 or IPv6 address in its canonical text form.
//
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="expected the canonical text of an IP address"
type IP string

// NodeName is the name of a Kubernetes node.
//
// +kubebuilder:validation:MaxLength=253
type NodeName string

// NetworkName is the name of a CustomNetwork; empty for the network of pods' main interfaces.
//
// +kubebuilder:validation:MaxLength=63
type NetworkName string

// Prefix returns the parsed CIDR, or an invalid prefix.
func (c CIDR) Prefix() netip.Prefix {
	p, _ := netip.ParsePrefix(string(c)) // with an error p is invalid
	return p
}

// Addresses parses addresses that the API server has validated; invalid ones are skipped.
func Addresses(list []IP) []netip.Addr {
	var parsed []netip.Addr
	for _, text := range list {
		if a, err := netip.ParseAddr(string(text)); err == nil {
			parsed = append(parsed, a)
		}
	}
	return parsed
}
