package policies

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/policy"
)

// nodeFeed gives the engine the nodes, and the rules that no policy overrides: this node contacts its pods, and pods do
// not contact protected destinations.
type nodeFeed struct {
	watch     *informer.Informer[*corev1.Node]
	engine    *policy.Engine
	evidence  *evidence
	own       string // this node
	protected Protected

	link      []netip.Prefix // the addresses of the node's link to the dataplane
	addresses []netip.Prefix // by which the node reaches its pods
	denied    []policy.Denied
}

func newNodeFeed(s *shared, e *evidence) *nodeFeed {
	f := &nodeFeed{engine: s.engine, evidence: e, own: s.config.Node, protected: s.config.Protected}
	f.watch = informer.Add(s.watches, "nodes", s.config.Client.Nodes(), informer.Options[*corev1.Node]{
		Lighten: lightenNode, Same: sameNode, Changed: s.on(f.refresh),
	})
	return f
}

func (f *nodeFeed) refresh(name string) {
	if o, known := f.watch.One(name); known {
		f.engine.SetNode(name, o.Labels, f.evidence.addressesOf(o))
	} else {
		f.engine.DeleteNode(name)
	}
}

// refreshOwned gives the engine the Nodes with addresses that count now, and did not before, or the other way round.
func (f *nodeFeed) refreshOwned(d *difference) {
	for _, n := range f.watch.All() {
		if d.owners.differ(d.before, n.Name, nodeAddresses(n)) {
			f.refresh(n.Name)
		}
	}
}

// setLink sets the addresses by which the node reaches its pods: the addresses of its link to the dataplane, and its
// own. It reports whether rules may have changed.
func (f *nodeFeed) setLink(link []netip.Prefix) bool {
	f.link = link
	list := slices.Clone(link)
	if n, known := f.watch.One(f.own); known {
		list = append(list, f.evidence.addressesOf(n)...)
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	list = slices.Compact(list)
	denied := f.forbidden(list)
	if slices.Equal(list, f.addresses) && slices.Equal(denied, f.denied) {
		return false
	}
	f.addresses = list
	f.denied = denied
	f.engine.SetConfig(policy.Config{Nodes: list, Denied: denied})
	return true
}

// forbidden lists the protected destinations. link are the addresses of this node.
func (f *nodeFeed) forbidden(link []netip.Prefix) []policy.Denied {
	var list []policy.Denied
	if f.protected.Metadata {
		for _, prefix := range metadataServices {
			list = append(list, policy.Denied{Name: "kubernetes.protectNodes: metadata service", Prefix: prefix})
		}
	}
	if len(f.protected.Ports) == 0 {
		return list
	}
	nodes := slices.Clone(link)
	for _, n := range f.watch.All() {
		nodes = append(nodes, f.evidence.addressesOf(n)...)
	}
	slices.SortFunc(nodes, netip.Prefix.Compare)
	for _, prefix := range slices.Compact(nodes) {
		for _, port := range f.protected.Ports {
			list = append(list, policy.Denied{
				Name:     "kubernetes.protectNodes: port of an agent",
				Prefix:   prefix,
				Protocol: policy.TCP,
				Ports:    policy.Range{First: port, Last: port},
			})
		}
	}
	return list
}
