package controller

import (
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

func isReady(message string) metav1.Condition {
	return metav1.Condition{
		Type:    v1.ConditionReady,
		Status:  metav1.ConditionTrue,
		Reason:  v1.ReasonInUse,
		Message: message,
	}
}

func notReady(reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// conflicts returns the condition Conflict; other is the name of the older object, "" without a conflict.
func conflicts(other, message string) metav1.Condition {
	if other == "" {
		return metav1.Condition{
			Type:    v1.ConditionConflict,
			Status:  metav1.ConditionFalse,
			Reason:  v1.ReasonNoConflict,
			Message: message,
		}
	}
	return metav1.Condition{
		Type:    v1.ConditionConflict,
		Status:  metav1.ConditionTrue,
		Reason:  v1.ReasonOverlap,
		Message: message,
	}
}

// networkStatus returns the status of one of the networks. It is ready when all nodes have its generation.
func networkStatus(n *v1.CustomNetwork, networks []*v1.CustomNetwork, nodes []*v1.NodeNetwork) v1.CustomNetworkStatus {
	status := *n.Status.DeepCopy()
	status.VNI = n.VNI()
	status.ObservedGeneration = n.Generation
	status.ReadyNodes = 0
	ready := isReady("all nodes have the network")
	if len(nodes) == 0 {
		ready = metav1.Condition{
			Type:    v1.ConditionReady,
			Status:  metav1.ConditionUnknown,
			Reason:  v1.ReasonPending,
			Message: "no node has reported yet",
		}
	}
	for _, node := range v1.ByName(slices.Clone(nodes)) {
		reason, message := obstacle(n, node)
		if reason == "" {
			status.ReadyNodes++
		} else if ready.Status == metav1.ConditionTrue ||
			ready.Reason == v1.ReasonPending && reason == v1.ReasonRefused {
			ready = notReady(reason, "node "+node.Name+": "+message)
		}
	}
	if n.DeletionTimestamp != nil {
		ready = notReady(v1.ReasonDeleting, "the network is being deleted; no pod can be added to it")
		if usage := usageOf(n, nodes); usage != "" {
			ready.Message += "; " + usage
		}
	}
	conflict := conflicts("", "no older network has its VNI")
	if other := sameVNI(n, networks); other != "" {
		conflict = conflicts(other, fmt.Sprintf("VNI %d belongs to the older network %s", n.VNI(), other))
		ready = notReady(v1.ReasonOverlap, conflict.Message)
	}
	status.Conditions.Set(n.Generation, ready, conflict)
	return status
}

// sameVNI returns the name of an older network with the same VNI, or "". Nodes use the older network only.
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

// obstacle says why a node does not have the current generation of a network; no reason: it has.
func obstacle(n *v1.CustomNetwork, node *v1.NodeNetwork) (reason, message string) {
	for _, r := range node.Status.Refused {
		if r.Name == n.Name {
			return v1.ReasonRefused, r.Reason
		}
	}
	if slices.ContainsFunc(node.Status.Networks, func(o v1.Observed) bool {
		return o.Name == n.Name && o.Generation == n.Generation
	}) {
		return "", ""
	}
	return v1.ReasonPending, fmt.Sprintf("it does not have generation %d yet", n.Generation)
}

// externalStatus returns the status of an external interface. It is ready when all nodes of its list have its
// generation.
func externalStatus(e *v1.ExternalInterface, nodes []*v1.NodeNetwork) v1.ExternalInterfaceStatus {
	status := *e.Status.DeepCopy()
	status.ObservedGeneration = e.Generation
	var names []string
	for _, n := range e.Spec.Nodes {
		names = append(names, string(n.Node))
	}
	status.Nodes = some(names)
	observed := make(map[string]v1.ObservedExternal)
	for _, n := range nodes {
		for _, o := range n.Status.Externals {
			if o.Name == e.Name && o.Generation == e.Generation {
				observed[n.Name] = o
			}
		}
	}
	ready := isReady("all nodes of the list have the interface")
	for _, name := range names {
		o, known := observed[name]
		if known && o.Reason != "" {
			ready = notReady(v1.ReasonRefused, fmt.Sprintf("node %s: %s", name, o.Reason))
			break
		}
		if !known && ready.Status == metav1.ConditionTrue {
			ready = notReady(v1.ReasonPending,
				fmt.Sprintf("node %s: it has not reported generation %d yet", name, e.Generation))
		}
	}
	status.Conditions.Set(e.Generation, ready)
	return status
}

// poolStatus returns the status of one of the pools, from the blocks that nodes have claimed.
func poolStatus(p *v1.IPPool, pools []*v1.IPPool, claimed []*v1.IPBlock) v1.IPPoolStatus {
	status := *p.Status.DeepCopy()
	status.ObservedGeneration = p.Generation
	status.Blocks = 0
	status.ClaimedBlocks = 0
	status.UsedAddresses = 0
	for _, b := range claimed {
		if b.Spec.Pool == p.Name && b.Spec.Network == "" && b.Spec.Node != "" {
			status.ClaimedBlocks++
			status.UsedAddresses += int64(b.Status.Used)
		}
	}
	ready := isReady("nodes may claim blocks")
	conflict := conflicts("", "no older pool overlaps it")
	prefix, err := netip.ParsePrefix(string(p.Spec.CIDR))
	if err == nil {
		cut := blocks.PoolCIDR{Name: p.Name, Prefix: prefix, Bits: blocks.BitsOf(p, prefix)}
		if err = cut.Validate(); err == nil {
			status.Blocks = int64(cut.Blocks())
		}
	}
	switch other := overlapped(p, prefix, pools); {
	case err != nil:
		ready = notReady(v1.ReasonInvalid, err.Error())
	case other != "":
		conflict = conflicts(other, "it overlaps the older pool "+other)
		ready = notReady(v1.ReasonOverlap, conflict.Message)
	case p.Spec.Disabled:
		ready = notReady(v1.ReasonDisabled, "it is disabled: nodes claim no new blocks")
	case status.ClaimedBlocks >= status.Blocks:
		ready = notReady(v1.ReasonNoBlocks, "all blocks are claimed")
	}
	status.Conditions.Set(p.Generation, ready, conflict)
	return status
}

// overlapped returns the name of an older pool that overlaps a pool, or "".
func overlapped(p *v1.IPPool, prefix netip.Prefix, pools []*v1.IPPool) string {
	for _, other := range v1.ByAge(slices.Clone(pools)) {
		if other.Name == p.Name {
			return ""
		}
		if other.Spec.CIDR.Prefix().Overlaps(prefix) {
			return other.Name
		}
	}
	return ""
}
