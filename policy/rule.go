package policy

import (
	"encoding/json"
	"net/netip"
	"slices"
)

// Rule is a rule of a compiled list. It matches packets of connections between the pod and one of the remote addresses
// to one of the ports. Its size is the sum of both sets. Rules share the sets and never change them.
type Rule struct {
	Action  Action         `json:"action,omitempty"` // Allow or Deny
	Remotes []netip.Prefix `json:"remotes"`          // as aggregate returns them: masked, sorted, apart
	// of the destination, as mergePorts returns them; none: any protocol and port
	Ports  []PortRange `json:"ranges,omitempty"`
	Origin string      `json:"origin,omitempty"` // the policy and its rule
}

// Matches reports whether the rule matches a connection.
func (r *Rule) Matches(remote netip.Addr, protocol uint8, port uint16) bool {
	return portsContain(r.Ports, protocol, port) && contain(r.Remotes, remote)
}

// isForAll reports whether the rule matches all connections of a family.
func (r *Rule) isForAll(family netip.Prefix) bool {
	return len(r.Ports) == 0 && slices.Contains(r.Remotes, family)
}

// Size returns the number of rules of the dataplane for a rule, before its remotes and ranges are multiplied out.
// isGuarded says that it may be for packets from pods to a network with pods that may be neither routers nor DHCP
// servers.
func (r *Rule) Size(isGuarded bool) int {
	isGuarded = isGuarded && r.Action == Allow
	four := 0
	six := 0
	for _, of := range ByFamily(r.Remotes) {
		if of[0].Addr().Is4() {
			four = len(of)
		} else {
			six = len(of)
		}
	}
	switch {
	case len(r.Ports) == 0 && isGuarded:
		return four*GuardedAny4 + six*GuardedAny6
	case len(r.Ports) == 0:
		return four + six
	case isGuarded:
		return (four + six) * len(r.Ports) * GuardedPorts
	}
	return (four + six) * len(r.Ports)
}

// intersect returns l for the connections that r matches, too.
func (r Rule) intersect(l Rule) (Rule, bool) {
	both := l
	both.Remotes = intersectAll(r.Remotes, l.Remotes)
	var some bool
	both.Ports, some = intersectPorts(r.Ports, l.Ports)
	return both, some && len(both.Remotes) > 0
}

// UnmarshalJSON reads a rule of the state file. Earlier versions wrote rules of one prefix and one range of ports.
func (r *Rule) UnmarshalJSON(raw []byte) error {
	type plain Rule
	both := struct {
		*plain
		Remote   netip.Prefix `json:"remote"`
		Protocol uint8        `json:"protocol"`
		Single   Range        `json:"ports"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(raw, &both); err != nil {
		return err
	}
	if both.Remote.IsValid() {
		r.Remotes = []netip.Prefix{both.Remote}
		r.Ports = rangesOf(both.Protocol, both.Single)
	}
	return nil
}
