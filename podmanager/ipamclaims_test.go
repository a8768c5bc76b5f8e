package podmanager

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/pod"
)

// claimStore has one claim.
type claimStore struct {
	claim    pod.IPAMClaim
	gone     error // why there is no claim
	refuses  error
	assigned []string
	asked    []string // for claims of replicas
}

func (s *claimStore) IPAMClaim(context.Context, string, string) (pod.IPAMClaim, error) {
	return s.claim, s.gone
}

func (s *claimStore) FindIPAMClaim(context.Context, string, string) (pod.IPAMClaim, bool, error) {
	return s.claim, s.gone == nil && s.claim.Name != "", nil
}

func (s *claimStore) ReplicaClaim(_ context.Context, id pod.ID, name string) (pod.IPAMClaim, error) {
	s.asked = append(s.asked, id.String()+": "+name)
	return s.claim, s.gone
}

func (s *claimStore) Assign(_ context.Context, _ pod.IPAMClaim, podName string, addresses []netip.Prefix) error {
	if s.refuses != nil {
		return s.refuses
	}
	s.assigned = append(s.assigned, fmt.Sprint(podName, " ", addresses))
	for _, p := range addresses {
		s.claim.Addresses = append(s.claim.Addresses, p.Addr())
	}
	return nil
}

// newClaimNode is a node whose pods have an interface with a claim and an address of each family.
func newClaimNode(t *testing.T) (*node, *claimStore) {
	n := newNode(t)
	store := &claimStore{claim: pod.IPAMClaim{Namespace: "shop", Name: "cart-0", Network: "default"}}
	n.claims.objects = store
	n.bare = true
	n.onConnect = func(_ context.Context, ev *pod.AddPod) error {
		ev.Attachment.Interfaces = append(ev.Attachment.Interfaces, pod.Interface{
			Name: "eth0", Type: "tap", IPAMClaim: "cart-0",
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.1.5/32"), netip.MustParsePrefix("fd00::5/128")},
		})
		return nil
	}
	return n, store
}

func TestAPodWhoseClaimIsNotWrittenIsDeletedAgain(t *testing.T) {
	n, store := newClaimNode(t)
	store.refuses = errors.New("no answer")
	refused := n.refusedAdd(t, addOf("c1", "/run/netns/a"))
	if refused.GetCode() != uint32(pod.CodeTryAgain) || !strings.Contains(refused.GetMsg(), "no answer") {
		t.Errorf("refused with %v", refused)
	}
	if left := n.Attachments(); len(left) != 0 {
		t.Errorf("the pod is connected: %+v", left)
	}
	store.refuses = nil
	n.add(t, "c1", "/run/netns/a")
	n.add(t, "c1", "/run/netns/a") // repeated
	if got := strings.Join(store.assigned, "; "); got != "cart-0 [10.1.1.5/32 fd00::5/128]" {
		t.Errorf("assigned %q", got)
	}
}

// A runtime that ends waiting cancels the request.
func TestAPodWhoseClaimIsNotWrittenIsDeletedAlsoWithoutACaller(t *testing.T) {
	n, store := newClaimNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	store.refuses = errors.New("no answer")
	connect := n.onConnect
	n.onConnect = func(c context.Context, ev *pod.AddPod) error {
		err := connect(c, ev)
		store.gone = context.Canceled
		return err
	}
	n.claims.objects = cancelling{store, cancel}
	if reply, err := n.Add(ctx, addOf("c1", "/run/netns/a")); err != nil || reply.GetError() == nil {
		t.Fatalf("ADD succeeded: %v, %v", reply, err)
	}
	if left := n.Attachments(); len(left) != 0 {
		t.Errorf("the pod is connected: %+v", left)
	}
}

// cancelling cancels the request of an ADD when the claim is read after it was connected.
type cancelling struct {
	*claimStore
	cancel func()
}

func (c cancelling) IPAMClaim(ctx context.Context, namespace, name string) (pod.IPAMClaim, error) {
	if c.gone != nil {
		c.cancel()
	}
	return c.claimStore.IPAMClaim(ctx, namespace, name)
}

// The pod runs: whatever happened to its claim, a repeated ADD leaves it connected.
func TestARepeatedADDDisconnectsNoPodForItsClaim(t *testing.T) {
	n, store := newClaimNode(t)
	n.add(t, "c1", "/run/netns/a")
	store.gone = pod.Errorf(pod.CodeInvalidAnnotation, "there is no IPAMClaim shop/cart-0")
	n.add(t, "c1", "/run/netns/a")
	store.gone = pod.Errorf(pod.CodeTryAgain, "no answer of the API server")
	n.refusedAdd(t, addOf("c1", "/run/netns/a"))
	store.gone = nil
	store.claim.Addresses = []netip.Addr{netip.MustParseAddr("10.1.1.9")}
	store.refuses = pod.Errorf(pod.CodeTryAgain, "IPAMClaim shop/cart-0 holds [10.1.1.9] meanwhile")
	n.refusedAdd(t, addOf("c1", "/run/netns/a"))
	if left := n.Attachments(); len(left) != 1 {
		t.Errorf("the pod is not connected: %+v", left)
	}
}

func TestAClaimMayHoldTheAddressOfOneFamily(t *testing.T) {
	n, store := newClaimNode(t)
	store.claim.Addresses = []netip.Addr{netip.MustParseAddr("10.1.1.5")}
	n.add(t, "c1", "/run/netns/a")
	if len(store.assigned) > 0 {
		t.Errorf("assigned %q", store.assigned)
	}
}
