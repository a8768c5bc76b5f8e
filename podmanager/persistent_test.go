package podmanager

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weftnet/weft/pod"
)

// persistent are annotations with the option persistentIPs of the interface t1.
var persistent = map[string]string{
	pod.AnnotationCustom:  "t1/tap/blue",
	pod.AnnotationOptions: `{"t1": {"persistentIPs": true}}`,
}

func TestAnInterfaceWithPersistentIPsHasTheClaimOfItsReplica(t *testing.T) {
	n, store := newClaimNode(t)
	var claims map[string]pod.IPAMClaim
	n.onConnect = func(_ context.Context, ev *pod.AddPod) error {
		claims = ev.IPAMClaims
		requests, err := ev.Extra()
		if err != nil || len(requests) != 1 || requests[0].Options.IPAMClaim != "cart-0.t1" {
			t.Errorf("requests %+v, %v", requests, err)
		}
		return nil
	}
	req := addOf("c1", "/run/netns/a")
	req.HasAnnotations = true
	req.Annotations = persistent
	if reply, err := n.Add(t.Context(), req); err != nil || reply.GetError() != nil {
		t.Fatalf("not added: %v, %v", reply, err)
	}
	if got := fmt.Sprint(store.asked); !strings.HasSuffix(got, "/cart-0: cart-0.t1]") {
		t.Errorf("asked for %s", got)
	}
	if _, has := claims["cart-0.t1"]; !has || len(claims) != 1 {
		t.Errorf("claims %v", claims)
	}
}

func TestAPodWithoutTheClaimOfItsReplicaIsRefused(t *testing.T) {
	n, store := newClaimNode(t)
	store.gone = pod.Errorf(pod.CodeTryAgain, "there is no IPAMClaim yet")
	req := addOf("c1", "/run/netns/a")
	req.HasAnnotations = true
	req.Annotations = persistent
	if refused := n.refusedAdd(t, req); refused.GetCode() != uint32(pod.CodeTryAgain) ||
		!strings.Contains(refused.GetMsg(), "there is no IPAMClaim yet") {
		t.Errorf("refused with %v", refused)
	}
}

// A plan makes no claim and waits for none.
func TestAPlanWithPersistentIPsNeedsNoClaim(t *testing.T) {
	n, store := newClaimNode(t)
	store.claim = pod.IPAMClaim{}
	var planned pod.IPAMClaim
	n.onConnect = func(_ context.Context, ev *pod.AddPod) error {
		planned = ev.IPAMClaims["cart-0.t1"]
		ev.Attachment = &pod.Attachment{Key: ev.Key}
		return nil
	}
	id := pod.ID{Namespace: "shop", Name: "cart-0", UID: "u"}
	result, err := n.Plan(t.Context(), id, persistent, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Notes) != 1 || !strings.HasPrefix(result.Notes[0], "IPAMClaim shop/cart-0.t1 does not exist yet") {
		t.Errorf("notes %q", result.Notes)
	}
	if planned.Network != "blue" || len(store.asked) > 0 {
		t.Errorf("planned with %+v, asked for %v", planned, store.asked)
	}
	store.claim = pod.IPAMClaim{Namespace: "shop", Name: "cart-0.t1", Network: "blue", UID: "made"}
	if result, err = n.Plan(t.Context(), id, persistent, nil); err != nil {
		t.Fatal(err)
	}
	if len(result.Notes) != 0 || planned.UID != "made" {
		t.Errorf("notes %q, planned with %+v", result.Notes, planned)
	}
}
