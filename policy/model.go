package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// ID names a pod.
type ID struct{ Namespace, Name string }

// String returns "namespace/name".
func (id ID) String() string { return id.Namespace + "/" + id.Name }

// Pod is a pod of the cluster. Pods that have ended, and those in the node's network namespace, are not pods here: they
// are neither subjects nor peers of selectors.
type Pod struct {
	ID
	Labels     map[string]string
	Interfaces []Interface
	Ports      []NamedPort
	Local      bool // its interfaces get rules
}

// Interface is an interface of a pod.
type Interface struct {
	Name string
	Main bool // subject of NetworkPolicies; the others are subjects of MultiNetworkPolicies
	// Networks are the names of the interface's network in MultiNetworkPolicies: "namespace/name" of its
	// NetworkAttachmentDefinition, and the name of the network in Weft.
	Networks  []string
	Addresses []netip.Addr
	// Claimed are addresses that the pod's owner chose. They are peers for policies of the pod's own namespace only.
	Claimed []netip.Addr
}

// isOnDefault reports whether the node, and so the clients of Services, reach the interface.
func (i *Interface) isOnDefault() bool { return i.Main || slices.Contains(i.Networks, DefaultNetwork) }

// DefaultNetwork is the network of main interfaces, which the node reaches. Other interfaces may be on it.
const DefaultNetwork = "default"

// NamedPort is a port of a container with a name.
type NamedPort struct {
	Name     string
	Protocol uint8
	Port     uint16
}

// Kind is the kind of a policy.
type Kind uint8

// The kinds of policy in the order of their evaluation. Policies of the first kind come by priority; the others have
// no priority.
const (
	Admin    Kind = iota // AdminNetworkPolicy
	Network              // NetworkPolicy
	Multi                // MultiNetworkPolicy
	Baseline             // BaselineAdminNetworkPolicy
)

var kindNames = [...]string{"AdminNetworkPolicy", "NetworkPolicy", "MultiNetworkPolicy", "BaselineAdminNetworkPolicy"}

// String returns the kind as Kubernetes spells it.
func (k Kind) String() string { return kindNames[k] }

// Ref names a policy.
type Ref struct {
	Kind
	Namespace, Name string // Namespace is empty for kinds of the cluster
}

// String returns kind and name.
func (id Ref) String() string {
	if id.Namespace == "" {
		return id.Kind.String() + " " + id.Name
	}
	return fmt.Sprintf("%s %s/%s", id.Kind, id.Namespace, id.Name)
}

func comparePolicies(a, b *policyState) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Direction is the direction of a connection, seen from the pod.
type Direction uint8

// The directions.
const (
	Ingress Direction = iota // to the pod
	Egress                   // from the pod
)

// String returns the direction as in the fields of policies.
func (d Direction) String() string { return [...]string{"ingress", "egress"}[d] }

// Policy is a policy of any kind, converted.
type Policy struct {
	Ref
	Priority int      // of kind Admin: a lower one comes first
	Networks []string // of kind Multi, see [Interface.Networks]
	// AllNetworks: of kind Multi, about all further interfaces.
	AllNetworks bool
	Subject     Selector
	// Isolates reports by direction whether only connections that a rule allows are permitted. Kinds Network and Multi
	// only.
	Isolates [2]bool
	Rules    [2][]Clause // by direction
	// Oversize is why the policy has not the rules that its author wrote.
	Oversize Oversize
}

// Action is the action of a rule.
type Action uint8

// The actions of a rule. Pass continues with the policies after those of kind Admin; only rules of that kind have it,
// and compiled lists do not.
const (
	Allow Action = iota
	Deny
	Pass
)

// String returns "allow", "deny" or "pass".
func (a Action) String() string { return [...]string{"allow", "deny", "pass"}[a] }

// Clause is a rule of a policy before its peers and ports are resolved to addresses and numbers ([Rule]). It matches
// packets of one of its peers to one of its ports.
type Clause struct {
	Name   string // in explanations, such as "ingress[0]"
	Action Action
	Any    bool   // any address is a peer
	Peers  []Peer // if Any, only peers with named ports
	Ports  []Port
	// AnyPort: any protocol and port. Without it and without ports the rule matches no packet.
	AnyPort bool
}

// Peer is a set of addresses: the addresses of pods, or prefixes.
type Peer struct {
	Pods     *Selector
	Prefixes []netip.Prefix // if Pods is nil; masked
	Nodes    labels.Selector
}

// Port is a range of ports of one protocol, or the port of a name: in ingress of the subject, in egress of the peer.
type Port struct {
	Protocol uint8 // of a named port 0 is any
	Ports    Range
	Name     string
}

// Selector selects pods by the labels of pods and namespaces.
type Selector struct {
	Namespace  string          // of the pods; "": Namespaces selects
	Namespaces labels.Selector // if Namespace is empty
	Pods       labels.Selector
	unknown    unknownNamespaces
	key        string
}

// unknownNamespaces says whether a selector of namespaces selects namespaces with unknown labels, because no watch has
// shown them yet.
type unknownNamespaces string

// The values are part of the selector's key.
const (
	// they are not selected, unless the selector selects all namespaces: for rules that allow
	notUnknown  unknownNamespaces = ""
	alsoUnknown unknownNamespaces = "or unknown|" // they are selected, too: for rules that deny
	onlyUnknown unknownNamespaces = "unknown|"    // no others are selected
)

// with returns the selector with another reading of unknown namespaces.
func (s Selector) with(u unknownNamespaces) Selector {
	if s.Namespace != "" || s.Namespaces.Empty() {
		return s // labels do not matter
	}
	s.key = string(u) + s.key
	s.unknown = u
	return s
}

func newSelector(namespace string, namespaces, pods labels.Selector) Selector {
	s := Selector{Namespace: namespace, Namespaces: quick(namespaces), Pods: quick(pods)}
	s.key = namespace + "|" + text(namespaces) + "|" + text(pods)
	return s
}

// text returns a selector as text. The empty selector, which matches everything, has the same text as none, which never
// occurs with it.
func text(s labels.Selector) string {
	if s == nil {
		return ""
	}
	if _, selectable := s.Requirements(); !selectable {
		return "!"
	}
	return s.String()
}

// Range is an inclusive range of ports.
type Range struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// allPorts is the range of all ports.
var allPorts = Range{Last: 65535}

// Contains reports whether the range has a port.
func (r Range) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// Protocols with ports.
const (
	AnyProtocol = 0
	TCP         = 6
	UDP         = 17
	SCTP        = 132
)

var protocols = map[string]uint8{"TCP": TCP, "UDP": UDP, "SCTP": SCTP}

// ParseProtocol returns the number of a protocol of Kubernetes; "" is TCP.
func ParseProtocol(name string) (uint8, error) {
	n, known := protocols[strings.ToUpper(cmp.Or(name, "TCP"))]
	if !known {
		return 0, fmt.Errorf("protocol %q is neither TCP, UDP nor SCTP", name)
	}
	return n, nil
}

// ProtocolName is the inverse of ParseProtocol; "any" for AnyProtocol.
func ProtocolName(n uint8) string {
	for name, number := range protocols {
		if number == n {
			return name
		}
	}
	if n == AnyProtocol {
		return "any"
	}
	return fmt.Sprintf("protocol %d", n)
}

// PortRange is a range of ports of one protocol.
type PortRange struct {
	Protocol uint8 `json:"protocol"`
	Range
}

// List is an immutable list of rules for the connections of one direction: the first rule that matches decides, and the
// last ones match everything. Packets of a permitted connection are permitted in both directions. Interfaces with the
// same rules share a list.
type List struct {
	Name  string // of the content
	Rules []Rule

	users     int
	namespace string // of the pods
	own       int    // number of rules of the dataplane for the policies of the namespace
}

// Decide returns the rule that decides about a connection.
func (l *List) Decide(remote netip.Addr, protocol uint8, port uint16) Rule {
	for n := range l.Rules {
		if r := &l.Rules[n]; r.Matches(remote, protocol, port) {
			return *r
		}
	}
	return noRule
}

// noRule decides where no rule of a list matches.
var noRule = Rule{Action: Deny, Origin: "no rule matches"}

// Lists are the lists of an interface by direction. Both are nil, which permits everything, or none is.
type Lists [2]*List
