package controller

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// usage is what keeps a deleted network.
type usage struct {
	Pods    []string // namespace/name and node
	Unheard []string // nodes that may have pods on it and have not closed it
}

// IsNone reports whether the network can be removed.
func (u usage) IsNone() bool { return len(u.Pods)+len(u.Unheard) == 0 }

// String describes the usage in one line of bounded length.
func (u usage) String() string {
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

// usageOf returns the usage of a network that is being deleted. A node that reports the network as closed adds no more pods to it. Older
// agents do not report that; the network then stays until they are upgraded.
func usageOf(n *v1.CustomNetwork, nodes []*v1.NodeNetwork) (u usage) {
	for _, node := range v1.ByName(slices.Clone(nodes)) {
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
