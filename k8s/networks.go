package k8s

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/pod"
)

// nobody is in a list of namespaces that would be empty otherwise: an empty one would mean all of them. No namespace can
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
