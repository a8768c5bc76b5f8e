package k8s

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Usage is what keeps a network that is being deleted.
type Usage struct {
	Pods    []string // namespace/name, and the node
	Unheard []string // nodes that may have pods on it, and have not said that they take no more
}

// IsNone reports whether nothing keeps the network.
func (u Usage) IsNone() bool { return len(u.Pods)+len(u.Unheard) == 0 }

// String says what keeps the network, in one line of bounded length.
func (u Usage) String() string {
	var parts []string
	if len(u.Pods) > 0 {
		parts = append(parts, "pods use it: "+some(u.Pods))
	}
	if len(u.Unheard) > 0 {
		parts = append(parts, "nodes have not said yet whether pods use it: "+some(u.Unheard))
	}
	return strings.Join(parts, "; ")
}

// some are the first few of many names.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// UsageOf is what keeps a network that is being deleted. Once a node has closed it, the node gives it no more pods. Older
// agents close none: with them a network stays.
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

// mayHave reports whether a node that does not list a network may have pods on it: it has refused to change it, has just joined, or
// serves pods and is about to list it.
func mayHave(n *v1.CustomNetwork, node *v1.NodeNetwork) bool {
	return slices.ContainsFunc(node.Status.Refused, func(r v1.Refusal) bool { return r.Name == n.Name }) ||
		node.Status.Version == "" || meta.IsStatusConditionTrue(node.Status.Conditions, v1.ConditionReady)
}
