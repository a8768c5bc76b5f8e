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
	"github.com/weftnet/weft/k8s/informer"
)

// ipPools are the IPPools of the cluster.
type ipPools struct {
	watched    *informer.Informer[*v1.IPPool]
	namespaces *namespaces
	settings   *settings
}

// addTo adds the IPPools. A pool that overlaps an older one is not used; all nodes see the same order.
func (i *ipPools) addTo(v *View) {
	for _, o := range v1.ByAge(i.watched.All()) {
		p, err := guarded(func() (PoolView, error) { return i.convert(o, v.Node) })
		for _, older := range v.Pools {
			if err == nil && older.Prefix.Overlaps(p.Prefix) {
				err = fmt.Errorf("%s overlaps %s of the older pool %s", p.Prefix, older.Prefix, older.Name)
			}
		}
		if err == nil {
			err = i.settings.outside(v, p)
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

// convert converts an IPPool with its selectors.
func (i *ipPools) convert(o *v1.IPPool, node Node) (PoolView, error) {
	p, err := PoolOf(o)
	if !p.Prefix.IsValid() {
		return p, err
	}
	var namespaces, nodes error
	p.Namespaces, namespaces = i.namespaces.selectedBy(o.Spec.NamespaceSelector)
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
