package nodeview

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
)

// customNetworks are the CustomNetworks of the cluster.
type customNetworks struct {
	watched     *informer.Informer[*v1.CustomNetwork]
	namespaces  *namespaces
	permissions *permissions
}

func (c *customNetworks) addTo(v *View) {
	taken := make(map[uint32]string)
	for _, o := range v1.ByAge(c.watched.All()) {
		n, err := guarded(func() (pod.Network, error) { return c.convert(o) })
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
		v.BlockSizes[n.Name] = blocks.SizesOf(o)
	}
}

// convert converts a CustomNetwork with its namespaces.
func (c *customNetworks) convert(o *v1.CustomNetwork) (pod.Network, error) {
	n, err := NetworkOf(o)
	if err != nil {
		return n, err
	}
	if n.Namespaces, err = c.namespaces.selectedBy(o.Spec.NamespaceSelector); err != nil {
		return n, err
	}
	return n, c.permissions.selectPods(&n, o.Spec.Permissions)
}

// concerns reports whether the labels of a pod of this node, which is nil if it is gone, may change a permission.
func (c *customNetworks) concerns(id pod.ID, p *corev1.Pod) bool {
	return c.permissions.relabelled(id, p) && c.hasPermissions()
}

// hasPermissions reports whether a network has permissions.
func (c *customNetworks) hasPermissions() bool {
	return slices.ContainsFunc(c.watched.All(), func(o *v1.CustomNetwork) bool { return len(o.Spec.Permissions) > 0 })
}

// NetworkOf converts and validates a CustomNetwork without its namespaceSelector, and without the pods of its
// permissions.
func NetworkOf(o *v1.CustomNetwork) (pod.Network, error) {
	n := pod.Network{
		Name:   o.Name,
		Type:   pod.NetworkType(o.Spec.Type),
		Direct: o.Spec.Direct,
		VNI:    uint32(o.VNI()),
		MTU:    int(ptr.Deref(o.Spec.MTU, 0)),
		Closed: o.DeletionTimestamp != nil,
	}
	var err error
	if n.CIDRs, err = parsePrefixes(o.Spec.CIDRs); err != nil {
		return n, fmt.Errorf("cidrs: %w", err)
	}
	n.AntiSpoof = ptr.Deref(o.Spec.AntiSpoof, pod.IsAntiSpoofByDefault(n.CIDRs))
	if err := siteOf(&n, &o.Spec); err != nil {
		return n, err
	}
	if err := n.Validate(); err != nil {
		return n, err
	}
	for _, p := range n.CIDRs {
		if err := (blocks.PoolCIDR{Network: n.Name, Prefix: p, Bits: blocks.SizesOf(o).Of(p)}).Validate(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// siteOf sets the gateway, the ranges, the permissions, the routes and the DNS of a network.
func siteOf(n *pod.Network, spec *v1.CustomNetworkSpec) error {
	var err error
	if n.Gateway, err = pod.ParseGateway(spec.Gateway); err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	if n.Reserved, err = parseRanges(spec.Reserved); err != nil {
		return fmt.Errorf("reserved: %w", err)
	}
	if n.Excluded, err = parseRanges(spec.Excluded); err != nil {
		return fmt.Errorf("excluded: %w", err)
	}
	if n.AllowedAddresses, err = parseRanges(spec.AllowedAddresses); err != nil {
		return fmt.Errorf("allowedAddresses: %w", err)
	}
	for _, id := range spec.VirtualRouters {
		n.VirtualRouters = append(n.VirtualRouters, int(id))
	}
	if n.Permissions, err = permissionsOf(spec.Permissions); err != nil {
		return fmt.Errorf("permissions: %w", err)
	}
	if n.RoutedPrefixes, err = parsePrefixes(spec.RoutedPrefixes); err != nil {
		return fmt.Errorf("routedPrefixes: %w", err)
	}
	if n.VLANs, err = parseVLANs(spec.VLANs); err != nil {
		return fmt.Errorf("vlans: %w", err)
	}
	if spec.DNS != nil {
		n.DNS = dnsOf(spec.DNS)
	}
	for _, r := range spec.Routes {
		route := pod.RouteRequest{Interface: r.Interface, Metric: int(r.Metric)}
		if route.To, err = netip.ParsePrefix(string(r.To)); err != nil {
			return fmt.Errorf("routes: to: %w", notPrefix(string(r.To)))
		}
		if r.Via != "" {
			if route.Via, err = netip.ParseAddr(r.Via); err != nil {
				return fmt.Errorf("routes: via: %.80q is not an address", r.Via)
			}
		}
		n.Routes = append(n.Routes, route)
	}
	return nil
}

func dnsOf(d *v1.DNS) pod.DNS {
	return pod.DNS{
		Nameservers: texts(d.Nameservers),
		Domain:      string(d.Domain),
		Search:      texts(d.Search),
		Options:     texts(d.Options),
	}
}

func texts[T ~string](list []T) (plain []string) {
	for _, text := range list {
		plain = append(plain, string(text))
	}
	return plain
}

func parseRanges(list []v1.AddressRange) (ranges netaddr.Ranges, err error) {
	for _, text := range list {
		r, err := netaddr.ParseRange(string(text))
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

func parseVLANs(list []v1.VLANRange) (netaddr.VLANs, error) {
	var texts []string
	for _, text := range list {
		texts = append(texts, string(text))
	}
	return netaddr.ParseVLANs(texts)
}

func parsePrefixes[T ~string](list []T) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(string(text))
		if err != nil {
			return prefixes, notPrefix(string(text))
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

// notPrefix is the error of a text that is no prefix.
func notPrefix(text string) error {
	return fmt.Errorf("%.80q is not an address with a prefix length, such as 10.1.0.0/16 or fd00:1::/48", text)
}

// externals are the external interfaces of this node.
type externals struct {
	node    string
	watched *informer.Informer[*v1.ExternalInterface]
}

func (es *externals) addTo(v *View) {
	for _, o := range v1.ByAge(es.watched.All()) {
		for _, n := range o.Spec.Nodes {
			if string(n.Node) != es.node {
				continue
			}
			e, err := guarded(func() (External, error) { return ExternalOf(o, n) })
			if err != nil {
				v.Faults = append(v.Faults, Fault{"ExternalInterface", o.Name, err.Error()})
				continue
			}
			v.Externals = append(v.Externals, e)
		}
	}
}

// ExternalOf converts one node's part of an ExternalInterface.
func ExternalOf(o *v1.ExternalInterface, n v1.ExternalNode) (External, error) {
	e := External{
		External:   pod.External{Name: o.Name, Node: string(n.Node), Network: o.Spec.Network, Interface: n.Interface},
		Generation: o.Generation,
	}
	var err error
	e.VLAN = int(ptr.Deref(n.VLAN, 0))
	e.Outer = int(ptr.Deref(n.OuterVLAN, 0))
	if n.NativeVLAN != nil {
		e.Native = ptr.To(int(*n.NativeVLAN))
	}
	if e.VLANs, err = parseVLANs(n.VLANs); err != nil {
		return e, fmt.Errorf("vlans: %w", err)
	}
	if e.Addresses, err = parsePrefixes(n.IPs); err != nil {
		return e, fmt.Errorf("ips: %w", err)
	}
	return e, nil
}
