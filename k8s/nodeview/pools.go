package nodeview

import (
	"errors"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// ipPools adds the IPPools. A pool that overlaps an older one is not used; all nodes see the same order.
func (c *Cluster) ipPools(v *View) {
	for _, o := range v1.ByAge(c.pools.All()) {
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

// outside refuses a pool that is not within the clusterCIDRs, or only reports it, as the WeftConfig demands.
func (c *Cluster) outside(v *View, p PoolView) error {
	config, exists := c.configs.One(v1.WeftConfigName)
	if !exists {
		return nil
	}
	spec := config.Spec.Addresses
	applies := false
	for _, text := range spec.ClusterCIDRs {
		r := text.Prefix()
		if r.Bits() <= p.Prefix.Bits() && r.Contains(p.Prefix.Addr()) {
			return nil
		}
		applies = applies || r.IsValid() && r.Addr().Is4() == p.Prefix.Addr().Is4()
	}
	if !applies {
		return nil
	}
	err := fmt.Errorf("%s is not within the cluster's ranges %v", p.Prefix, spec.ClusterCIDRs)
	if spec.OutsideClusterCIDRs == v1.OutsideRefuse {
		return err
	}
	v.Faults = append(v.Faults, Fault{"IPPool", p.Name, err.Error() + "; it is used all the same"})
	return nil
}

// pool converts an IPPool with its selectors.
func (c *Cluster) pool(o *v1.IPPool, node Node) (PoolView, error) {
	p, err := PoolOf(o)
	if !p.Prefix.IsValid() {
		return p, err
	}
	var namespaces, nodes error
	p.Namespaces, namespaces = c.namespacesOf(o.Spec.NamespaceSelector)
	p.Foreign, nodes = isForeign(o.Spec.NodeSelector, node)
	return p, errors.Join(err, namespaces, nodes)
}

// PoolOf converts and validates an IPPool without its selectors.
func PoolOf(o *v1.IPPool) (PoolView, error) {
	prefix, err := netip.ParsePrefix(string(o.Spec.CIDR))
	if err != nil {
		return PoolView{}, fmt.Errorf("cidr: %w", notPrefix(string(o.Spec.CIDR)))
	}
	p := PoolView{
		Pool: netaddr.Pool{Name: o.Name, Prefix: prefix, Disabled: o.Spec.Disabled},
		Bits: blocks.BitsOf(o, prefix),
	}
	p.Strict = ptr.Deref(o.Spec.StrictAffinity, true)
	return p, errors.Join(p.Validate(), blocks.PoolCIDR{Name: p.Name, Prefix: prefix, Bits: p.Bits}.Validate())
}

// isForeign reports whether a pool's selector excludes the node.
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

// namespacePools adds the pools that annotations of namespaces name.
func (c *Cluster) namespacePools(v *View) {
	for _, n := range c.namespaces.All() {
		text := n.Annotations[pod.AnnotationPools]
		names := poolNames(text)
		if text != "" && names == nil {
			v.Faults = append(v.Faults, Fault{
				"Namespace", n.Name,
				fmt.Sprintf("annotation %s: expected a JSON list of names of pools, not %q", pod.AnnotationPools, text),
			})
		}
		if names != nil && v.NamespacePools == nil {
			v.NamespacePools = make(map[string][]string)
		}
		if names != nil {
			v.NamespacePools[n.Name] = names
		}
	}
}
