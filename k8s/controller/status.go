package controller

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// networkStatus is the status of a network, among all of them, by what the nodes say: it is ready when all of them have it
// as it is specified. Conditions that stay as they were keep their times.
func networkStatus(n *v1.CustomNetwork, networks []*v1.CustomNetwork, nodes []*v1.NodeNetwork) v1.CustomNetworkStatus {
	status := *n.Status.DeepCopy()
	status.VNI, status.ObservedGeneration, status.ReadyNodes = n.VNI(), n.Generation, 0
	ready := metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonInUse, Message: "all nodes have the network"}
	if len(nodes) == 0 {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionUnknown, v1.ReasonPending, "no node has said anything yet"
	}
	for _, node := range slices.SortedFunc(slices.Values(nodes), func(x, y *v1.NodeNetwork) int { return cmp.Compare(x.Name, y.Name) }) {
		reason, why := stands(n, node)
		if reason == "" {
			status.ReadyNodes++
			continue
		}
		if ready.Status == metav1.ConditionTrue || ready.Reason == v1.ReasonPending && reason == v1.ReasonRefused {
			ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reason, "node "+node.Name+": "+why
		}
	}
	if n.DeletionTimestamp != nil {
		ready.Status, ready.Reason = metav1.ConditionFalse, v1.ReasonDeleting
		ready.Message = "the network is being deleted; no pod can be added to it"
		if usage := usageOf(n, nodes); !usage.IsNone() {
			ready.Message += "; " + usage.String()
		}
	}
	conflict := noConflict("no older network has its VNI")
	if other := sameVNI(n, networks); other != "" {
		why := fmt.Sprintf("VNI %d is that of the older network %s", n.VNI(), other)
		conflict.Status, conflict.Reason, conflict.Message = metav1.ConditionTrue, v1.ReasonOverlap, why
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1.ReasonOverlap, why
	}
	setConditions(&status.Conditions, n.Generation, ready, conflict)
	return status
}

func noConflict(text string) metav1.Condition {
	return metav1.Condition{Type: v1.ConditionConflict, Status: metav1.ConditionFalse, Reason: v1.ReasonNoConflict, Message: text}
}

func setConditions(list *v1.Conditions, generation int64, conditions ...metav1.Condition) {
	for _, c := range conditions {
		c.ObservedGeneration = generation
		meta.SetStatusCondition((*[]metav1.Condition)(list), c)
	}
}

// sameVNI names an older network that has a network's VNI, by which nodes do without the younger one; "": none.
func sameVNI(n *v1.CustomNetwork, networks []*v1.CustomNetwork) string {
	for _, other := range v1.ByAge(slices.Clone(networks)) {
		if other.Name == n.Name || n.VNI() == 0 {
			return ""
		}
		if other.VNI() == n.VNI() {
			return other.Name
		}
	}
	return ""
}

// stands says why a node does not have a network as it is specified; no reason: it has.
func stands(n *v1.CustomNetwork, node *v1.NodeNetwork) (reason, why string) {
	for _, r := range node.Status.Refused {
		if r.Name == n.Name {
			return v1.ReasonRefused, r.Reason
		}
	}
	for _, o := range node.Status.Networks {
		if o.Name == n.Name && o.Generation == n.Generation {
			return "", ""
		}
	}
	return v1.ReasonPending, fmt.Sprintf("it has not generation %d yet", n.Generation)
}

// externalStatus is the status of an interface to the outside by what the nodes of its list say: it is ready when all of
// them have it as it is specified.
func externalStatus(e *v1.ExternalInterface, nodes []*v1.NodeNetwork) v1.ExternalInterfaceStatus {
	status := *e.Status.DeepCopy()
	status.ObservedGeneration = e.Generation
	var names []string
	for _, n := range e.Spec.Nodes {
		names = append(names, string(n.Node))
	}
	status.Nodes = some(names)
	said := make(map[string]v1.ObservedExternal)
	for _, n := range nodes {
		for _, o := range n.Status.Externals {
			if o.Name == e.Name && o.Generation == e.Generation {
				said[n.Name] = o
			}
		}
	}
	ready := metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonInUse, Message: "all nodes of the list have the interface"}
	for _, n := range e.Spec.Nodes {
		o, there := said[string(n.Node)]
		switch {
		case there && o.Reason != "":
			ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1.ReasonRefused, fmt.Sprintf("node %s: %s", n.Node, o.Reason)
		case !there && ready.Status == metav1.ConditionTrue:
			ready.Status, ready.Reason = metav1.ConditionFalse, v1.ReasonPending
			ready.Message = fmt.Sprintf("node %s: it has said nothing of generation %d yet", n.Node, e.Generation)
		}
		if ready.Reason == v1.ReasonRefused {
			break
		}
	}
	setConditions(&status.Conditions, e.Generation, ready)
	return status
}

// poolStatus is the status of a pool by the blocks that nodes claimed of it, beside the other pools.
func poolStatus(p *v1.IPPool, pools []*v1.IPPool, claimed []*v1.IPBlock) v1.IPPoolStatus {
	status := *p.Status.DeepCopy()
	status.ObservedGeneration, status.Blocks, status.ClaimedBlocks, status.UsedAddresses = p.Generation, 0, 0, 0
	for _, b := range claimed {
		if b.Spec.Pool == p.Name && b.Spec.Network == "" && b.Spec.Node != "" {
			status.ClaimedBlocks++
			status.UsedAddresses += int64(b.Status.Used)
		}
	}
	ready := metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonInUse, Message: "nodes may claim blocks"}
	conflict := noConflict("no older pool overlaps it")
	prefix, err := netip.ParsePrefix(string(p.Spec.CIDR))
	if err == nil {
		status.Blocks = int64(blocks.Pool{Prefix: prefix, Bits: blocks.BitsOf(p, prefix)}.Blocks())
	}
	switch other := overlapped(p, prefix, pools); {
	case err != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1.ReasonInvalid, err.Error()
	case other != "":
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1.ReasonOverlap, "it overlaps the older pool "+other
		conflict.Status, conflict.Reason, conflict.Message = metav1.ConditionTrue, v1.ReasonOverlap, ready.Message
	case p.Spec.Disabled:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1.ReasonDisabled, "it is disabled: no block is claimed any more"
	case status.ClaimedBlocks >= status.Blocks:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1.ReasonNoBlocks, "all blocks are claimed"
	}
	setConditions(&status.Conditions, p.Generation, ready, conflict)
	return status
}

// overlapped names an older pool that a pool overlaps; "": none.
func overlapped(p *v1.IPPool, prefix netip.Prefix, pools []*v1.IPPool) string {
	for _, other := range v1.ByAge(slices.Clone(pools)) {
		if other.Name == p.Name {
			return ""
		}
		if theirs, err := netip.ParsePrefix(string(other.Spec.CIDR)); err == nil && theirs.Overlaps(prefix) {
			return other.Name
		}
	}
	return ""
}
