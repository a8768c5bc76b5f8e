package k8s

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weftnet/weft/ipnet/ipam"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// nobody stands in an otherwise empty list of namespaces, because an empty list means all of them. No namespace can
// have the name.
const nobody = "(none)"

// byAge orders objects: the oldest first, and of the same second by name.
func byAge[T metav1.Object](objects []T) []T {
	slices.SortFunc(objects, func(x, y T) int {
		return cmp.Or(x.GetCreationTimestamp().Compare(y.GetCreationTimestamp().Time), cmp.Compare(x.GetName(), y.GetName()))
	})
	return objects
}

// namespacesOf names the namespaces that a selector selects; nil: all of them, those too that come later.
func (c *Cluster) namespacesOf(s *metav1.LabelSelector) ([]string, error) {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("namespaceSelector: %w", err)
	}
	var names []string
	for _, n := range c.namespaces.all() {
		if selector.Matches(labels.Set(n.Labels)) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return []string{nobody}, nil
	}
	slices.Sort(names)
	return names, nil
}

func (c *Cluster) customNetworks(v *View) {
	taken := make(map[uint32]string)
	for _, o := range byAge(c.networks.all()) {
		n, err := c.network(o)
		v.Generations[o.Name] = o.Generation
		if o.DeletionTimestamp != nil {
			v.Deleting = append(v.Deleting, o.Name)
		}
		if other := taken[n.VNI]; err == nil && n.VNI != 0 && other != "" {
			err = fmt.Errorf("VNI %d is that of the older network %s", n.VNI, other)
		}
		if err != nil {
			v.Faults = append(v.Faults, Fault{"CustomNetwork", o.Name, err.Error()})
			continue
		}
		taken[n.VNI] = n.Name
		v.Networks = append(v.Networks, n)
		v.BlockSizes[n.Name] = BlockSizes{V4: int(o.Spec.BlockSize), V6: int(o.Spec.BlockSizeV6)}
	}
}

// network is a CustomNetwork in the words of the node.
func (c *Cluster) network(o *v1.CustomNetwork) (pod.Network, error) {
	n := pod.Network{Name: o.Name, Type: pod.NetworkType(o.Spec.Type), AntiSpoof: o.Spec.AntiSpoof, VNI: uint32(vniOf(o)), Closed: o.DeletionTimestamp != nil}
	if o.Spec.MTU != nil {
		n.MTU = int(*o.Spec.MTU)
	}
	for _, text := range o.Spec.CIDRs {
		p, err := netip.ParsePrefix(string(text))
		if err != nil {
			return n, fmt.Errorf("cidrs: %w", err)
		}
		n.CIDRs = append(n.CIDRs, p)
	}
	var err error
	if n.Namespaces, err = c.namespacesOf(o.Spec.NamespaceSelector); err != nil {
		return n, err
	}
	return n, n.Validate()
}

func (c *Cluster) externalInterfaces(v *View) {
	for _, o := range byAge(c.externals.all()) {
		for _, n := range o.Spec.Nodes {
			if string(n.Node) != c.config.Node {
				continue
			}
			e, err := externalOf(o, n)
			if err != nil {
				v.Faults = append(v.Faults, Fault{"ExternalInterface", o.Name, err.Error()})
				continue
			}
			v.Externals = append(v.Externals, e)
		}
	}
}

// externalOf is one node's part of an ExternalInterface in the words of the node.
func externalOf(o *v1.ExternalInterface, n v1.ExternalNode) (External, error) {
	e := External{External: pod.External{Name: o.Name, Node: string(n.Node), Network: o.Spec.Network, Interface: n.Interface}, Generation: o.Generation}
	if n.VLAN != nil {
		e.VLAN = int(*n.VLAN)
	}
	for _, text := range n.IPs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return e, fmt.Errorf("ips: %w", err)
		}
		e.Addresses = append(e.Addresses, p)
	}
	return e, nil
}

func (c *Cluster) attachmentDefinitions(v *View) {
	for _, d := range c.definitions.all() {
		if v.Definitions == nil {
			v.Definitions = make(map[string]Definition)
		}
		v.Definitions[d.Namespace+"/"+d.Name] = Definition{Config: d.Spec.Config}
	}
}

// Identifiers of VXLAN that are given to networks which ask for none: above those that people like to choose.
const (
	firstVNI = 1 << 20
	lastVNI  = 1<<24 - 1
)

// VNIs is who has which identifier of VXLAN, by the UID of the network.
type VNIs map[int32]string

// GiveVNIs gives each network that has none yet, and asks for none, an identifier that no network has or asks for; the
// oldest network chooses first. Given is who has which so far; what is returned is who has which from now on, without
// networks that are no more. Networks must have been read after given. An identifier that a network has stays its own.
func GiveVNIs(given VNIs, networks []*v1.CustomNetwork) VNIs {
	known, taken := make(map[string]int32), make(map[int32]bool)
	for vni, uid := range given {
		known[uid], taken[vni] = vni, true
	}
	for _, n := range networks {
		taken[n.Status.VNI] = true
		if n.Spec.VNI != nil {
			taken[*n.Spec.VNI] = true
		}
	}
	now, next := make(VNIs), int32(firstVNI)
	for _, n := range byAge(slices.Clone(networks)) {
		uid := string(n.UID)
		switch {
		case known[uid] != 0:
			now[known[uid]] = uid
			continue
		case n.Spec.VNI != nil:
			continue
		case n.Status.VNI != 0 && now[n.Status.VNI] == "" && given[n.Status.VNI] == "":
			now[n.Status.VNI] = uid // it was given, and the record of it is lost
			continue
		}
		for taken[next] && next < lastVNI {
			next++
		}
		if !taken[next] { // else there are sixteen million networks
			now[next], taken[next] = uid, true
		}
	}
	return now
}

// Usage says why a deleted network cannot go yet.
type Usage struct {
	Pods    []string // that use it: namespace/name and node
	Unheard []string // nodes that may have pods on it and have not closed it
}

// IsNone reports whether the network can go.
func (u Usage) IsNone() bool { return len(u.Pods)+len(u.Unheard) == 0 }

// String describes the usage in one line of bounded length.
func (u Usage) String() string {
	var parts []string
	if len(u.Pods) > 0 {
		parts = append(parts, "it is used by "+some(u.Pods))
	}
	if len(u.Unheard) > 0 {
		parts = append(parts, "waiting for nodes to report their pods: "+some(u.Unheard))
	}
	return strings.Join(parts, "; ")
}

// some joins at most five names, and counts the others.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// UsageOf returns the usage of a network that is being deleted. A node that reports the network as closed adds no more pods to it. Older
// agents do not report that; the network then stays until they are upgraded.
func UsageOf(n *v1.CustomNetwork, nodes []*v1.NodeNetwork) (u Usage) {
	for _, node := range slices.SortedFunc(slices.Values(nodes), func(x, y *v1.NodeNetwork) int { return cmp.Compare(x.Name, y.Name) }) {
		i := slices.IndexFunc(node.Status.Networks, func(o v1.Observed) bool { return o.Name == n.Name })
		switch {
		case i >= 0 && node.Status.Networks[i].Generation >= n.Generation && node.Status.Networks[i].Closed:
			for _, pod := range node.Status.Networks[i].Pods {
				u.Pods = append(u.Pods, pod+" on "+node.Name)
			}
		case i >= 0 || mayHave(n, node):
			u.Unheard = append(u.Unheard, node.Name)
		}
	}
	return u
}

// mayHave reports whether a node that does not list the network may have pods on it: the node could not apply the network, has just
// joined, or is ready and will list the network soon.
func mayHave(n *v1.CustomNetwork, node *v1.NodeNetwork) bool {
	return slices.ContainsFunc(node.Status.Refused, func(r v1.Refusal) bool { return r.Name == n.Name }) ||
		node.Status.Version == "" || meta.IsStatusConditionTrue(node.Status.Conditions, v1.ConditionReady)
}

// ipPools are the pools of the cluster. One that overlaps an older one is not used: all nodes see the same order.
func (c *Cluster) ipPools(v *View) {
	for _, o := range byAge(c.pools.all()) {
		p, err := c.pool(o, v.Node)
		for _, older := range v.Pools {
			if err == nil && older.Prefix.Overlaps(p.Prefix) {
				err = fmt.Errorf("%s overlaps %s of the older pool %s", p.Prefix, older.Prefix, older.Name)
			}
		}
		if err == nil {
			err = c.outside(v, p)
		}
		if err != nil {
			p.Why = err.Error()
			v.Faults = append(v.Faults, Fault{"IPPool", o.Name, p.Why})
		}
		if p.Prefix.IsValid() {
			v.Pools = append(v.Pools, p)
		}
	}
}

// outside refuses a pool that is not within the cluster's ranges, or only says so, as the WeftConfig demands.
func (c *Cluster) outside(v *View, p Pool) error {
	config, exists := c.configs.one(v1.WeftConfigName)
	if !exists {
		return nil
	}
	spec, judged := config.Spec.Addresses, false
	for _, r := range prefixes(spec.ClusterCIDRs) {
		if r.Bits() <= p.Prefix.Bits() && r.Contains(p.Prefix.Addr()) {
			return nil
		}
		judged = judged || r.Addr().Is4() == p.Prefix.Addr().Is4()
	}
	if !judged {
		return nil
	}
	err := fmt.Errorf("%s is not within the cluster's ranges %v", p.Prefix, spec.ClusterCIDRs)
	if spec.OutsideClusterCIDRs == v1.OutsideRefuse {
		return err
	}
	v.Faults = append(v.Faults, Fault{"IPPool", p.Name, err.Error() + "; it is used all the same"})
	return nil
}

// pool is an IPPool in the words of the node.
func (c *Cluster) pool(o *v1.IPPool, node Node) (Pool, error) {
	prefix, err := netip.ParsePrefix(string(o.Spec.CIDR))
	if err != nil {
		return Pool{}, fmt.Errorf("cidr: %w", err)
	}
	p := Pool{Pool: ipam.Pool{Name: o.Name, Prefix: prefix, Disabled: o.Spec.Disabled}, Bits: bitsOf(o, prefix), Strict: true}
	if o.Spec.StrictAffinity != nil {
		p.Strict = *o.Spec.StrictAffinity
	}
	var namespaces, nodes error
	p.Namespaces, namespaces = c.namespacesOf(o.Spec.NamespaceSelector)
	p.Foreign, nodes = isForeign(o.Spec.NodeSelector, node)
	return p, errors.Join(p.Validate(), blocks.Pool{Name: p.Name, Prefix: prefix, Bits: p.Bits}.Validate(), namespaces, nodes)
}

// isForeign reports whether a pool's selector leaves the node out.
func isForeign(s *metav1.LabelSelector, node Node) (bool, error) {
	if s == nil {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return true, fmt.Errorf("nodeSelector: %w", err)
	}
	return !selector.Matches(labels.Set(node.Labels)), nil
}

// namespacePools are the pools that namespaces' annotations name.
func (c *Cluster) namespacePools(v *View) {
	for _, n := range c.namespaces.all() {
		text := n.Annotations[pod.AnnotationPools]
		names := poolNames(text)
		if text != "" && names == nil {
			v.Faults = append(v.Faults, Fault{"Namespace", n.Name, fmt.Sprintf("annotation %s: expected a JSON list of names of pools, not %q", pod.AnnotationPools, text)})
			continue
		}
		if names == nil {
			continue
		}
		if v.NamespacePools == nil {
			v.NamespacePools = make(map[string][]string)
		}
		v.NamespacePools[n.Name] = names
	}
}
