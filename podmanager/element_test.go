package podmanager

import (
	"context"
	"testing"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// selecting has a claim and a limit, which Multus does not pass.
const selecting = `[{"name": "other"},
	{"name": "blue", "ipam-claim-reference": "cart-0", "bandwidth": {"ingressRate": 2000000}}]`

// delegated is an ADD of Multus for net2. Multus' request has annotations only if a definition has them.
func delegated() *weftv1.AddRequest {
	req := addOf("c1", "/run/netns/a")
	req.Mode = pod.ModeDelegate
	req.Attachment.Network = "blue"
	req.Attachment.IfName = "net2"
	req.HasAnnotations = false
	req.Annotations = nil
	return req
}

func TestSelectionCompletesWhatMultusPasses(t *testing.T) {
	for name, change := range map[string]func(*weftv1.AddRequest){
		"no annotations": func(*weftv1.AddRequest) {},
		"annotations of the definition": func(req *weftv1.AddRequest) {
			req.HasAnnotations = true
			req.Annotations = map[string]string{"a": "b"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, store := newClaimNode(t)
			n.cluster.annotations = func(context.Context, pod.ID) (map[string]string, string, error) {
				return map[string]string{pod.AnnotationNetworks: selecting}, "API server", nil
			}
			var got pod.Request
			n.onConnect = func(_ context.Context, ev *pod.AddPod) error { got = ev.Request; return nil }
			req := delegated()
			change(req)
			if reply, err := n.Add(t.Context(), req); err != nil || reply.GetError() != nil {
				t.Fatalf("%v, %v", reply, err)
			}
			if got.Requested.Options.IPAMClaim != "cart-0" || got.IPAMClaims["cart-0"].Name != store.claim.Name {
				t.Errorf("claim %q of %v", got.Requested.Options.IPAMClaim, got.IPAMClaims)
			}
			if limits, err := got.MainLimits(); err != nil || limits.Ingress.Kilobits != 2000 {
				t.Errorf("limits %+v, %v", limits, err)
			}
		})
	}
}

func TestAmbiguousSelectionFailsTheADDOfMultus(t *testing.T) {
	n := newNode(t)
	n.cluster.annotations = func(context.Context, pod.ID) (map[string]string, string, error) {
		return map[string]string{pod.AnnotationNetworks: `[{"name": "blue", "interface": "net2"}, ` +
			`{"name": "blue", "interface": "net2", "bandwidth": {"ingressRate": 2000000}}]`}, "API server", nil
	}
	refused := n.refusedAdd(t, delegated())
	wantError(t, refused, pod.CodeInvalidAnnotation, "2 elements are for interface net2 of network blue")
}

// The agent itself creates the interfaces of selections in mode primary.
func TestSelectionDoesNotLimitAnInterfaceThatMultusDoesNotAdd(t *testing.T) {
	n := newNode(t)
	n.cluster.annotations = func(context.Context, pod.ID) (map[string]string, string, error) {
		return map[string]string{pod.AnnotationNetworks: selecting}, "API server", nil
	}
	var got pod.Request
	n.onConnect = func(_ context.Context, ev *pod.AddPod) error { got = ev.Request; return nil }
	req := delegated()
	req.Mode = pod.ModePrimary
	if reply, err := n.Add(t.Context(), req); err != nil || reply.GetError() != nil {
		t.Fatalf("%v, %v", reply, err)
	}
	if !got.Requested.Limits.IsZero() || got.Requested.Options.IPAMClaim != "" {
		t.Errorf("%+v", got.Requested)
	}
}
