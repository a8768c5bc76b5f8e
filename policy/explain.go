package policy

import (
	"fmt"
	"net/netip"
)

// End is an end of a connection: a pod, by its main interface unless another one is named, or an address.
type End struct {
	Pod       ID // the zero ID: the end is Address
	Interface string
	Address   netip.Addr
}

// Verdict is the decision of the policies at both ends of a connection.
type Verdict struct {
	From, To netip.Addr // the addresses of the connection
	// Egress is the decision of the policies that select the source, Ingress of those that select the destination.
	// Decisions of ends that are no pods permit.
	Egress, Ingress Decision
}

// Decision is the decision of the policies of one end.
type Decision struct {
	Allowed bool
	Origin  string // the policy and its rule, or the reason without one
}

// Explain returns the decision of the policies about a connection to a port, as far as the engine knows the cluster.
// Its answer comes from the rules that the dataplane gets; for pods of other nodes they are compiled as if the pods
// were local. Protocol is a number; a protocol without ports has port 0.
func (e *Engine) Explain(from, to End, protocol uint8, port uint16) (Verdict, error) {
	a, err := e.cluster.endOf(from)
	if err != nil {
		return Verdict{}, err
	}
	b, err := e.cluster.endOf(to)
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{}
	if v.From, v.To, err = pair(a.addresses(), b.addresses()); err != nil {
		return Verdict{}, fmt.Errorf("from %s to %s: %w", a, b, err)
	}
	v.Egress = e.decide(a, Egress, connection{v.To, protocol, port})
	v.Ingress = e.decide(b, Ingress, connection{v.From, protocol, port})
	return v, nil
}

// end is an End that was looked up.
type end struct {
	pod     *podState // nil: only an address
	nic     *Interface
	address netip.Addr // if it was asked for
}

// String returns the name of the pod, or the address.
func (x end) String() string {
	if x.pod == nil {
		return x.address.String()
	}
	return "pod " + x.pod.String() + " (" + x.nic.Name + ")"
}

func (x end) addresses() []netip.Addr {
	if x.address.IsValid() {
		return []netip.Addr{x.address}
	}
	return x.nic.Addresses
}

// pair returns two addresses of one family, the first if possible.
func pair(from, to []netip.Addr) (netip.Addr, netip.Addr, error) {
	for _, a := range from {
		for _, b := range to {
			if a.Is4() == b.Is4() {
				return a, b, nil
			}
		}
	}
	return netip.Addr{}, netip.Addr{}, fmt.Errorf("no addresses of one family (%v, %v)", from, to)
}

// connection is a connection as one of its ends sees it.
type connection struct {
	remote   netip.Addr
	protocol uint8
	port     uint16
}

// decide returns the decision of the policies that select an end.
func (e *Engine) decide(x end, d Direction, c connection) Decision {
	if x.pod == nil {
		return Decision{true, "not a pod of the cluster: no policy selects it"}
	}
	e.policies.settle(x.pod.Namespace)
	all := e.compile(x.pod, x.nic, x.pod.starved[x.nic.Name] != nil)
	if all == nil {
		return Decision{true, "no policy selects the pod"}
	}
	list := List{Rules: all.rules[d]}
	r := list.Decide(c.remote, c.protocol, c.port)
	return Decision{r.Action == Allow, r.Origin}
}
