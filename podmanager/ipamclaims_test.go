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
	refuses  error
	assigned []string
}

func (s *claimStore) IPAMClaim(context.Context, string, string) (pod.IPAMClaim, error) {
	return s.claim, nil
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

func TestAPodWhoseClaimIsNotWrittenIsDeletedAgain(t *testing.T) {
	n := newNode(t)
	store := &claimStore{
		claim:   pod.IPAMClaim{Namespace: "shop", Name: "cart-0", Network: "default"},
		refuses: errors.New("no answer"),
	}
	n.config.Claims = store
	n.bare = true
	n.onConnect = func(_ context.Context, ev *pod.AddPod) error {
		ev.Attachment.Interfaces = append(ev.Attachment.Interfaces, pod.Interface{
			Name: "eth0", Type: "tap", IPAMClaim: "cart-0",
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.1.5/32")},
		})
		return nil
	}
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
	if got := strings.Join(store.assigned, "; "); got != "cart-0 [10.1.1.5/32]" {
		t.Errorf("assigned %q", got)
	}
}
