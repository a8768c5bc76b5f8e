package policies

import (
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/k8s/networkstatus"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// Of interfaces of other nodes' pods the agent knows the annotation network-status only. The pod's owner can write it,
// until the agent of its node corrects it, so it is no evidence by itself:
//
//   - It counts if kubelet has reported the addresses of the pod: then the pod has a sandbox on its node.
//   - An address on a network with CIDRs counts if it is in a block that the node of the pod has for the network, and
//     no other pod has it.
//   - A NetworkAttachmentDefinition names a network. The network of one that only Multus can execute is not known, and
//     may be any.
//   - Pods of other networks choose their addresses. These count for policies of the pod's own namespace.
//   - A pod has at most announcedLimit of them.
//
// The agent knows the interfaces of this node's pods, because it made them.

// announcedLimit is the number of addresses in an annotation that are read.
const announcedLimit = 64

// Networks says which addresses pods of nodes can have. Its sources are the nodes' agents, as far as the cluster grants
// it, and the administrator.
type Networks struct {
	Blocks map[string][]pod.NodePart // of nodes, by name
	CIDRs  map[string]bool           // by name of a network, whether it has CIDRs; default is not in it
	// Definitions are the networks of NetworkAttachmentDefinitions, by "namespace/name".
	Definitions map[string]string
}

// evidence says which addresses of pods and Nodes count for policies.
type evidence struct {
	node     string // of this agent
	networks Networks
	owners   *owners // of the blocks in networks; nil: none is known
	claims   claims
}

// setNetworks replaces the known networks. It returns the difference, or nil.
func (e *evidence) setNetworks(n Networks) *difference {
	was := e.networks
	if reflect.DeepEqual(was, n) {
		return nil
	}
	before := e.owners
	e.networks = n
	e.owners = ownersOf(n.Blocks)
	return &difference{
		was:         was.Blocks,
		now:         n.Blocks,
		before:      before,
		owners:      e.owners,
		definitions: changedNames(was.Definitions, n.Definitions),
		isOther:     !maps.Equal(was.CIDRs, n.CIDRs),
	}
}

// difference compares two states of the networks.
type difference struct {
	was, now       map[string][]pod.NodePart // the blocks of nodes
	before, owners *owners
	definitions    map[string]bool // with another network
	isOther        bool            // a network is new or gone, or has CIDRs now and had none, or the other way round
}

// concerns reports whether other addresses of a pod may count.
func (d *difference) concerns(o *corev1.Pod) bool {
	node := o.Spec.NodeName
	text, has := o.Annotations[networkstatus.Annotation]
	isAnnounced := has &&
		(d.isOther || !reflect.DeepEqual(d.was[node], d.now[node]) || isNamedIn(text, d.definitions))
	return isAnnounced || d.owners.differ(d.before, node, podAddresses(o))
}

// changedNames returns the names with different values.
func changedNames(a, b map[string]string) map[string]bool {
	changed := make(map[string]bool)
	for _, pair := range [][2]map[string]string{{a, b}, {b, a}} {
		for name, value := range pair[0] {
			if other, has := pair[1][name]; !has || other != value {
				changed[name] = true
			}
		}
	}
	return changed
}

// isNamedIn reports whether an annotation names one of the networks.
func isNamedIn(text string, names map[string]bool) bool {
	return len(names) > 0 && slices.ContainsFunc(statusesIn(text), func(s status) bool { return names[s.Name] })
}

// named returns the names of the network of an annotation: its own, and if that is of a definition the network in Weft,
// if it is known.
func (n *Networks) named(name string) []string {
	if network, isKnown := n.Definitions[name]; isKnown {
		return []string{name, network}
	}
	return []string{name}
}

// networkOf returns the network in Weft of an interface with these names.
func networkOf(names []string) string {
	if last := names[len(names)-1]; !isDefinition(last) {
		return last
	}
	return unknownNetwork
}

// Networks of claims that are not networks of Weft.
const (
	anyNetwork     = ""  // each claim is also one on any network
	unknownNetwork = "/" // of a definition, and may be any
)

// hasBlock reports whether a node has an address for pods of a network.
func (n *Networks) hasBlock(node, network string, a netip.Addr) bool {
	for _, part := range n.Blocks[node] {
		if part.Network != network && network != unknownNetwork {
			continue
		}
		if slices.ContainsFunc(part.Blocks, func(b netip.Prefix) bool { return b.Contains(a) }) {
			return true
		}
	}
	return false
}

// choosesAddresses reports whether pods of a network may choose their addresses.
func (n *Networks) choosesAddresses(network string) bool {
	has, isKnown := n.CIDRs[network]
	return network == unknownNetwork || isKnown && !has
}

// givesAddresses reports whether Weft gives pods of this node their addresses on a network. Of an unknown network it
// does not.
func (n *Networks) givesAddresses(network string) bool {
	isDefault := network == "" || network == policy.DefaultNetwork
	return isDefault || n.CIDRs[network]
}

// isDefinition reports whether a network is named by a NetworkAttachmentDefinition.
func isDefinition(network string) bool { return strings.Contains(network, "/") }

// podOf converts a pod. Of a pod of this node, Weft knows its own interfaces before the API server does.
func (e *evidence) podOf(o *corev1.Pod, attachments []*pod.Attachment) policy.Pod {
	is := policy.Pod{
		ID:     policy.ID{Namespace: o.Namespace, Name: o.Name},
		Labels: o.Labels,
		Ports:  namedPortsOf(o),
		Local:  len(attachments) > 0,
	}
	interfaces := make(map[string]policy.Interface)
	for _, i := range append(e.announced(o), e.statusOf(o)) {
		interfaces[i.Name] = i
	}
	for _, i := range e.ownInterfaces(attachments) {
		interfaces[i.Name] = i
	}
	for _, name := range slices.Sorted(maps.Keys(interfaces)) {
		is.Interfaces = append(is.Interfaces, interfaces[name])
	}
	return is
}

// claim is an address on a network that a pod has, or that its owner says it has. Each address is also claimed on
// anyNetwork: an address on a network that is not known is compared with those on all networks.
type claim struct {
	network string
	address netip.Addr
}

// claims are the claims of all pods.
type claims struct {
	of      map[policy.ID]map[claim]bool // true: by the owner of the pod
	holders map[claim]map[policy.ID]bool
}

// set replaces the claims of a pod. It returns the other pods of which a claim may count, or may not count any more.
func (c *claims) set(id policy.ID, now map[claim]bool) []policy.ID {
	if c.of == nil {
		c.of = make(map[policy.ID]map[claim]bool)
		c.holders = make(map[claim]map[policy.ID]bool)
	}
	was := c.of[id]
	if maps.Equal(was, now) {
		return nil
	}
	others := make(map[policy.ID]struct{})
	note := func(x claim) {
		for other, byOwner := range c.holders[x] {
			if byOwner && other != id {
				others[other] = struct{}{}
			}
		}
	}
	for x := range was {
		note(x)
		if delete(c.holders[x], id); len(c.holders[x]) == 0 {
			delete(c.holders, x)
		}
	}
	for x, byOwner := range now {
		note(x)
		if c.holders[x] == nil {
			c.holders[x] = make(map[policy.ID]bool)
		}
		c.holders[x][id] = byOwner
	}
	if c.of[id] = now; len(now) == 0 {
		delete(c.of, id)
	}
	return slices.Collect(maps.Keys(others))
}

// isOnly reports whether a pod's owner claims an address that no other pod has, on the network or on one that may be
// it.
func (c *claims) isOnly(id policy.ID, x claim) bool {
	if x.network == unknownNetwork {
		x.network = anyNetwork
	}
	return c.of[id][x] && !c.isOfOther(id, x) && !c.isOfOther(id, claim{unknownNetwork, x.address})
}

// isOfOther reports whether another pod has an address.
func (c *claims) isOfOther(id policy.ID, x claim) bool {
	_, own := c.holders[x][id]
	return len(c.holders[x]) > 1 || len(c.holders[x]) == 1 && !own
}

// claimsOf lists the addresses of a pod: as its kubelet and this agent know them, and as its owner says. The owner's
// count only where the node of the pod has them: otherwise they would be evidence against pods of other nodes.
func (e *evidence) claimsOf(o *corev1.Pod, attachments []*pod.Attachment) map[claim]bool {
	all := make(map[claim]bool)
	for _, i := range e.read(o) {
		network := networkOf(i.Networks)
		for _, a := range i.Addresses {
			if e.networks.hasBlock(o.Spec.NodeName, network, a) {
				all[claim{network, a}] = true
				all[claim{anyNetwork, a}] = true
			}
		}
	}
	for _, i := range append(e.ownInterfaces(attachments), e.statusOf(o)) {
		for _, a := range i.Addresses {
			all[claim{networkOf(i.Networks), a}] = false
			all[claim{anyNetwork, a}] = false
		}
	}
	return all
}

// announced lists the interfaces in a pod's annotation with the addresses that count.
func (e *evidence) announced(o *corev1.Pod) []policy.Interface {
	id := policy.ID{Namespace: o.Namespace, Name: o.Name}
	var list []policy.Interface
	for _, i := range e.read(o) {
		network := networkOf(i.Networks)
		said := i.Addresses
		i.Addresses = nil
		for _, a := range said {
			switch {
			case e.networks.hasBlock(o.Spec.NodeName, network, a):
				if e.claims.isOnly(id, claim{network, a}) {
					i.Addresses = append(i.Addresses, a)
				}
			case e.networks.choosesAddresses(network):
				i.Claimed = append(i.Claimed, a)
			}
		}
		list = append(list, i)
	}
	return list
}

// ownInterfaces lists the interfaces of attachments. Addresses that Weft did not give are claimed: the pod's owner may
// have chosen them.
func (e *evidence) ownInterfaces(attachments []*pod.Attachment) []policy.Interface {
	var list []policy.Interface
	for _, a := range attachments {
		for _, i := range a.Interfaces {
			if i.Type == pod.TypeIPAM {
				continue
			}
			is := interfaceOf(a, i)
			if !e.networks.givesAddresses(i.Network) {
				is.Claimed = is.Addresses
				is.Addresses = nil
			}
			list = append(list, is)
		}
	}
	return list
}

// read reads a pod's annotation.
func (e *evidence) read(o *corev1.Pod) []policy.Interface {
	isOwn := o.Spec.NodeName == e.node
	if isOwn || o.Spec.NodeName == "" || len(o.Status.PodIPs) == 0 {
		return nil
	}
	var list []policy.Interface
	for _, s := range statusesIn(o.Annotations[networkstatus.Annotation]) {
		i := policy.Interface{Name: s.Interface, Networks: e.networks.named(s.Name)}
		for _, text := range s.IPs {
			if a, err := policy.ParseAddress(text); err == nil {
				i.Addresses = append(i.Addresses, a)
			}
		}
		list = append(list, i)
	}
	return list
}

// status has the fields that are read of an interface in the annotation.
type status struct {
	Name      string   `json:"name"` // of the network
	Interface string   `json:"interface"`
	IPs       []string `json:"ips"`
	Default   bool     `json:"default,omitempty"`
}

// Longest names in an annotation that are read: of an interface of Linux, and of a namespace with an object.
const (
	maxInterfaceName = 15
	maxNetworkName   = 63 + 1 + 253
)

// isRead reports whether an interface may count: main interfaces are known from kubelet.
func (s *status) isRead() bool {
	isMain := s.Default || s.Interface == mainInterface
	return !isMain && s.Interface != "" && len(s.Interface) <= maxInterfaceName && s.Name != "" &&
		len(s.Name) <= maxNetworkName
}

// statusesIn lists the interfaces with addresses in an annotation, with announcedLimit addresses together. Of other
// text it returns none.
func statusesIn(text string) []status {
	var said []status
	if json.Unmarshal([]byte(text), &said) != nil {
		return nil
	}
	var list []status
	left := announcedLimit
	for _, s := range said {
		if !s.isRead() {
			continue
		}
		var valid []string
		for _, text := range s.IPs {
			a, err := policy.ParseAddress(text)
			if err != nil || left == 0 {
				continue
			}
			left--
			valid = append(valid, a.String())
		}
		if len(valid) > 0 {
			list = append(list, status{Name: s.Name, Interface: s.Interface, IPs: valid})
		}
	}
	return list
}

// lightenStatus returns the parts of an annotation that are read, as an annotation; "" without such parts.
func lightenStatus(text string) string {
	list := statusesIn(text)
	if len(list) == 0 {
		return ""
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return ""
	}
	return string(raw)
}
