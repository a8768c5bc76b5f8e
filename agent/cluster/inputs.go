package cluster

import (
	"context"
	"net/netip"

	"github.com/weftnet/weft/pod"
)

// Inputs are the parts of the cluster that an ADD needs: podmanager.Cluster, podmanager.Watch, podmanager.IPAMClaims
// and podmanager.Refiller.
type Inputs struct{ member *Member }

// Inputs may be called before Join, and used afterwards.
func (m *Member) Inputs() Inputs { return Inputs{m} }

// Annotations fetches the annotations of a pod, and names their source.
func (i Inputs) Annotations(ctx context.Context, id pod.ID) (annotations map[string]string, from string, err error) {
	return i.member.View.Annotations(ctx, id)
}

// Shown returns the annotations of a pod that the API server has shown already.
func (i Inputs) Shown(id pod.ID) (annotations map[string]string, isShown bool) {
	p := i.member.View.Pod(id)
	if p == nil {
		return nil, false
	}
	return p.Annotations, true
}

// Selected resolves the NetworkAttachmentDefinitions that a pod selects to interface requests. With Multus on the node,
// Multus does.
func (i Inputs) Selected(ctx context.Context, request *pod.Request) ([]pod.InterfaceRequest, error) {
	if i.member.Config.Kubernetes.Multus {
		return nil, nil
	}
	return i.member.selected(ctx, request)
}

// Group returns the group of a container, or pod.UnknownGroup.
func (i Inputs) Group(id pod.ID, container string) int { return i.member.View.Group(id, container) }

// Learn reads what network policies need to know of a new pod, if they are enforced.
func (i Inputs) Learn(ctx context.Context, id pod.ID) {
	if enforced := i.member.Enforced; enforced != nil {
		enforced.Learn(ctx, id)
	}
}

// Forget forgets what Learn read.
func (i Inputs) Forget(id pod.ID) {
	if enforced := i.member.Enforced; enforced != nil {
		enforced.Forget(id)
	}
}

// IPAMClaim returns the claim of an interface.
func (i Inputs) IPAMClaim(ctx context.Context, namespace, name string) (pod.IPAMClaim, error) {
	return i.member.View.IPAMClaim(ctx, namespace, name)
}

// FindIPAMClaim returns a claim that may not exist.
func (i Inputs) FindIPAMClaim(ctx context.Context, namespace, name string) (pod.IPAMClaim, bool, error) {
	return i.member.View.FindIPAMClaim(ctx, namespace, name)
}

// ReplicaClaim returns the claim that is made for an interface of a pod of a StatefulSet.
func (i Inputs) ReplicaClaim(ctx context.Context, id pod.ID, name string) (pod.IPAMClaim, error) {
	return i.member.View.ReplicaClaim(ctx, id, name)
}

// Assign writes the addresses of an interface to its claim.
func (i Inputs) Assign(ctx context.Context, claim pod.IPAMClaim, podName string, addresses []netip.Prefix) error {
	return i.member.View.Assign(ctx, claim, podName, addresses)
}

// Refillable reports whether an ADD was refused because the node lacks addresses that come from the cluster.
func (i Inputs) Refillable(refused error) bool { return i.member.Blocks.Refillable(refused) }

// Refill requests more addresses for the node after an ADD was refused, and waits for them.
func (i Inputs) Refill(ctx context.Context, request *pod.Request, refused error) error {
	return i.member.Blocks.Refill(ctx, request, refused)
}
