package pod

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
)

// IPAMClaim is an object of the Network Plumbing Working Group that holds the addresses of a pod's interface while the
// pod is away: the next pod that refers to it has the same addresses and the same MAC.
type IPAMClaim struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	UID       string       `json:"uid"`
	Network   string       `json:"network"`             // default, or a custom network's name
	Interface string       `json:"interface,omitempty"` // in the pod; "": any
	Addresses []netip.Addr `json:"addresses,omitempty"` // none: the first pod gets some

	// Of a claim that weft-controller made for a replica of a StatefulSet:
	Owner string `json:"owner,omitempty"` // UID of the StatefulSet with which it is deleted; "": none
	Seed  string `json:"seed,omitempty"`  // of the MAC; "": UID is
}

// MACSeed returns the text from which the MAC of the interface is derived. The seed of a claim is also that of the next
// one with its name, if a user deleted the first one.
func (c IPAMClaim) MACSeed() string { return c.String() + " " + cmp.Or(c.Seed, c.UID) }

// IPAMClaimKind begins the names of claims as holders of addresses.
const IPAMClaimKind = "IPAMClaim "

// String names the claim, as the holder of its addresses.
func (c IPAMClaim) String() string { return IPAMClaimKind + c.Namespace + "/" + c.Name }

// Suits rejects an interface that the claim is not for.
func (c IPAMClaim) Suits(name, network string, ips []netip.Prefix) error {
	switch {
	case c.Network != network:
		return fmt.Errorf("%s is for network %s, not for %s", c, c.Network, network)
	case c.Interface != "" && c.Interface != name:
		return fmt.Errorf("%s is for interface %s", c, c.Interface)
	}
	for _, p := range ips {
		if len(c.Addresses) > 0 && !slices.Contains(c.Addresses, p.Addr()) {
			return fmt.Errorf("%s holds %v, not %s; remove ips, or the claim", c, c.Addresses, p.Addr())
		}
	}
	return nil
}

// setIPAMClaim sets the name of an IPAMClaim in the namespace of the pod.
func (a *AddressRequest) setIPAMClaim(raw json.RawMessage) error {
	if json.Unmarshal(raw, &a.IPAMClaim) != nil || !isSubdomain(a.IPAMClaim) {
		return fmt.Errorf("expected the name of an IPAMClaim in the namespace of the pod, not %.300q", raw)
	}
	return nil
}
