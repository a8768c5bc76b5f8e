package operations

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/policy"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// explainer has no policies.
type explainer struct{}

func (explainer) Explain(_, _ policy.End, _ uint8, _ uint16) (v policy.Verdict, _ error) {
	return v, nil
}

// ExcessOf reports one policy for each pod.
func (explainer) ExcessOf(id policy.ID) []policy.Excess {
	return []policy.Excess{
		{
			Of:     "NetworkPolicy " + id.Namespace + "/big",
			Effect: "it isolates pods",
			Size:   90_000,
			Limit:  26_000,
			Unit:   "rules",
		},
	}
}

func TestRulesAreListedWithoutCounters(t *testing.T) {
	pods := podmanager.New(podmanager.Config{})
	pods.Restore([]*pod.Attachment{
		{Key: pod.Key{Network: "weft", ContainerID: "c", IfName: "eth0"}, Pod: pod.ID{Namespace: "shop", Name: "db"}},
	})
	connected, err := attach.New(attach.Config{}, attach.Node{})
	if err != nil {
		t.Fatal(err)
	}
	o := New(Config{
		Pods:      pods,
		Network:   &ipnet.Network{Pods: connected},
		Scheduler: kvscheduler.New(kvscheduler.Config{}),
		Policies:  explainer{},
		Dataplane: Dataplane{Client: vpp.New(filepath.Join(t.TempDir(), "none.sock"), vpp.Options{})},
	})
	reply, err := o.Policy(t.Context(), &operatorv1.PolicyRequest{Pod: "shop/db"})
	if err != nil || !strings.Contains(reply.GetCountsError(), "none") {
		t.Errorf("reply %v, error %v, want why the counters cannot be read", reply, err)
	}
	if over := reply.GetOverLimits(); len(over) != 1 ||
		!strings.Contains(over[0], "NetworkPolicy shop/big: it isolates pods, because it needs 90000 rules") {
		t.Errorf("over limits: %q", over)
	}
}
