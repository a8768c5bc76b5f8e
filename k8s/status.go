package k8s

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

// Identifiers of VXLAN that are given to networks which ask for none: above those that people like to choose.
const (
	firstVNI = 1 << 20
	lastVNI  = 1<<24 - 1
)

// GiveVNIs gives each network that has no VNI yet one that no network has or asks for, by name. The oldest network
// chooses first. It is for one writer in the cluster.
func GiveVNIs(networks []*v1.CustomNetwork) map[string]int32 {
	taken := make(map[int32]bool)
	for _, n := range networks {
		taken[n.Status.VNI] = true
		if n.Spec.VNI != nil {
			taken[*n.Spec.VNI] = true
		}
	}
	given, next := make(map[string]int32), int32(firstVNI)
	for _, n := range byAge(slices.Clone(networks)) {
		if n.Status.VNI != 0 {
			continue
		}
		if n.Spec.VNI != nil {
			given[n.Name] = *n.Spec.VNI
			continue
		}
		for taken[next] && next < lastVNI {
			next++
		}
		if taken[next] {
			break // sixteen million networks
		}
		given[n.Name], taken[next] = next, true
	}
	return given
}

// NetworkStatus is the status of a network by what the nodes say: it is ready when all of them have it as it is
// specified. Conditions that stay as they were keep their times.
func NetworkStatus(n *v1.CustomNetwork, nodes []*v1.NodeNetwork) v1.CustomNetworkStatus {
	status := *n.Status.DeepCopy()
	status.ObservedGeneration, status.ReadyNodes = n.Generation, 0
	ready := metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonInUse, Message: "all nodes have the network"}
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
	ready.ObservedGeneration = n.Generation
	meta.SetStatusCondition((*[]metav1.Condition)(&status.Conditions), ready)
	return status
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

// PoolStatus is the status of a pool by the blocks that nodes claimed of it, beside the other pools.
func PoolStatus(p *v1.IPPool, pools []*v1.IPPool, claimed []*v1.IPBlock) v1.IPPoolStatus {
	status := *p.Status.DeepCopy()
	status.ObservedGeneration, status.Blocks, status.ClaimedBlocks, status.UsedAddresses = p.Generation, 0, 0, 0
	for _, b := range claimed {
		if b.Spec.Pool == p.Name && b.Spec.Network == "" && b.Spec.Node != "" {
			status.ClaimedBlocks++
			status.UsedAddresses += int64(b.Status.Used)
		}
	}
	ready := metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonInUse, Message: "nodes may claim blocks"}
	prefix, err := netip.ParsePrefix(string(p.Spec.CIDR))
	if err == nil {
		status.Blocks = int64(blocks.Pool{Prefix: prefix, Bits: bitsOf(p, prefix)}.Blocks())
	}
	switch other := overlapped(p, prefix, pools); {
	case err != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1.ReasonInvalid, err.Error()
	case other != "":
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1.ReasonOverlap, "it overlaps the older pool "+other
	case status.ClaimedBlocks >= status.Blocks:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1.ReasonNoBlocks, "all blocks are claimed"
	}
	ready.ObservedGeneration = p.Generation
	meta.SetStatusCondition((*[]metav1.Condition)(&status.Conditions), ready)
	return status
}

// overlapped names an older pool that a pool overlaps; "": none.
func overlapped(p *v1.IPPool, prefix netip.Prefix, pools []*v1.IPPool) string {
	for _, other := range byAge(slices.Clone(pools)) {
		if other.Name == p.Name {
			return ""
		}
		if theirs, err := netip.ParsePrefix(string(other.Spec.CIDR)); err == nil && theirs.Overlaps(prefix) {
			return other.Name
		}
	}
	return ""
}

// bitsOf is the prefix length of a pool's blocks.
func bitsOf(p *v1.IPPool, prefix netip.Prefix) int {
	if p.Spec.BlockSize != nil {
		return int(*p.Spec.BlockSize)
	}
	return BlockSizes{}.of(prefix)
}
