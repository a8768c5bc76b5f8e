package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/weftnet/weft/pod"
)

// claimShelf has one claim.
type claimShelf struct {
	claim    pod.IPAMClaim
	refuses  error
	assigned []string
}

func (s *claimShelf) FreeClaim(namespace, name string) (pod.IPAMClaim, bool) {
	return s.claim, namespace == s.claim.Namespace && name == s.claim.Name && len(s.claim.Addresses) == 0
}

func (s *claimShelf) Assign(_ context.Context, c pod.IPAMClaim, podName string, addresses []netip.Prefix) error {
	s.assigned = append(s.assigned, fmt.Sprint(c.UID, " ", podName, " ", addresses))
	if s.refuses == nil {
		s.claim.Addresses = []netip.Addr{addresses[0].Addr()}
	}
	return s.refuses
}

func TestAClaimThatWasMadeAgainGetsTheAddressesOfItsPod(t *testing.T) {
	running := pod.Attachment{
		Key: pod.Key{Network: "weft", ContainerID: "c1", IfName: "eth0"},
		Pod: pod.ID{Namespace: "shop", Name: "db-0"},
		Interfaces: []pod.Interface{
			{Name: "eth0"},
			{
				Name: "t1", Network: "blue", IPAMClaim: "db-0.t1",
				Addresses: []netip.Prefix{netip.MustParsePrefix("10.5.0.7/24")},
			},
		},
	}
	shelf := &claimShelf{claim: pod.IPAMClaim{Namespace: "shop", Name: "db-0.t1", UID: "u", Network: "blue"}}
	isGone := false
	k := &claimKeeper{
		attachments: func() []pod.Attachment { return []pod.Attachment{running} },
		exists:      func(pod.ID) bool { return !isGone },
		claims:      shelf,
		log:         slog.New(slog.DiscardHandler),
	}
	rounds := func(n int, want string) {
		t.Helper()
		shelf.assigned = nil
		for range n {
			k.round(t.Context())
		}
		if got := fmt.Sprint(shelf.assigned); got != want {
			t.Errorf("assigned %s, want %s", got, want)
		}
	}
	const written = "u db-0 [10.5.0.7/24]"
	rounds(1, "[]") // an ADD may be about to write it
	rounds(1, "["+written+"]")
	rounds(2, "[]")
	shelf.claim = pod.IPAMClaim{Namespace: "shop", Name: "db-0.t1", UID: "v", Network: "blue"}
	rounds(1, "[]")
	rounds(1, "[v db-0 [10.5.0.7/24]]")
	// the API server has forgotten the pod, which its kubelet has not: the claim is that of the next pod
	shelf.claim = pod.IPAMClaim{Namespace: "shop", Name: "db-0.t1", UID: "w", Network: "blue"}
	isGone = true
	rounds(3, "[]")
	isGone = false
	shelf.claim = pod.IPAMClaim{Namespace: "shop", Name: "db-0.t1", UID: "u", Network: "red"}
	rounds(3, "[]")
	shelf.claim.Network = "blue"
	shelf.refuses = errors.New("no answer")
	rounds(3, "["+written+" "+written+"]")
}
