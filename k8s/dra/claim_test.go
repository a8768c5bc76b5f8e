package dra

import (
	"errors"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
)

var resourceClaims = schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}

// A claim may have devices of the pools of several nodes.
func TestOnlyDevicesOfThisNodeArePrepared(t *testing.T) {
	c := claimOf("c", `"interface":"fast"`, "memif-100", "memif-101")
	results := c.Status.Allocation.Devices.Results
	results[1].Pool = "n2"
	devices, err := requestedDevices(c, "n1")
	if err != nil || len(devices) != 1 || devices[0].Device != "memif-100" {
		t.Fatalf("%+v, %v", devices, err)
	}
	if name := devices[0].Parameters.Interface; name != "fast" { // the only one is not numbered
		t.Errorf("interface %q", name)
	}
	results[0].Pool = "n2"
	if devices, err = requestedDevices(c, "n1"); err != nil || len(devices) > 0 {
		t.Errorf("of another node: %+v, %v", devices, err)
	}
}

// The memifs of a claim are for its pods. Other consumers have UIDs, too.
func TestOnlyPodsAreConsumersOfAClaim(t *testing.T) {
	c := claimOf("c", "", "memif-100")
	c.Status.ReservedFor = append(c.Status.ReservedFor,
		resourceapi.ResourceClaimConsumerReference{Resource: "nodes", Name: "n1", UID: "uid-n1"},
		resourceapi.ResourceClaimConsumerReference{APIGroup: "example.com", Resource: "pods", Name: "b", UID: "uid-b"})
	if uids := consumers(c); !slices.Equal(uids, []string{"uid-a"}) {
		t.Errorf("consumers %q", uids)
	}
}

// claimed returns a node with a prepared claim.
func claimed(t *testing.T) (*node, pod.ClaimID) {
	t.Helper()
	n := newNode(t, claimOf("c", "", "memif-100"))
	t.Cleanup(n.statuses.keys.ShutDown) // the driver does not run
	id := pod.ClaimID{Namespace: "shop", Name: "c", UID: "uid-c"}
	if _, err := n.memifs.Claim(t.Context(), id, []pod.ClaimedDevice{
		{ClaimID: id, Device: "memif-100", Request: "m"},
	}); err != nil {
		t.Fatal(err)
	}
	return n, id
}

// failing makes requests for claims fail.
func (n *node) failing(verb string, err error) {
	n.answers.set(verb, func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// No pod needs the claim when the API server answers. Before the answer arrives, kubelet prepares the claim for another
// pod.
func TestAClaimIsNotReleasedThatIsPreparedForAnotherPodMeanwhile(t *testing.T) {
	n, id := claimed(t)
	isNeeded := true
	n.answers.set("get", func(k8stesting.Action) (bool, runtime.Object, error) {
		idle := claimOf("c", "", "memif-100")
		idle.Status.ReservedFor = nil
		if isNeeded {
			if _, err := (&plugin{Driver: n.Driver}).prepare(t.Context(), claimOf("c", "", "memif-100")); err != nil {
				t.Error(err)
			}
		}
		return true, idle, nil
	})
	if n.collector.collect(t.Context()); !slices.Contains(n.memifs.Claims(), id) {
		t.Error("the claim of the other pod is released")
	}
	isNeeded = false
	if n.collector.collect(t.Context()); len(n.memifs.Claims()) > 0 {
		t.Errorf("left %v", n.memifs.Claims())
	}
}

func TestNoClaimIsReleasedBecauseTheAPIServerFails(t *testing.T) {
	for name, err := range map[string]error{
		"no connection": errors.New("connection refused"),
		"not permitted": apierrors.NewForbidden(resourceClaims, "c", errors.New("no role")),
		"overloaded":    apierrors.NewTooManyRequests("later", 1),
	} {
		t.Run(name, func(t *testing.T) {
			n, id := claimed(t)
			n.failing("get", err)
			if n.collector.collect(t.Context()); !slices.Equal(n.memifs.Claims(), []pod.ClaimID{id}) {
				t.Errorf("left %v", n.memifs.Claims())
			}
		})
	}
}

func TestAStatusIsWrittenUntilItsClaimIsGone(t *testing.T) {
	for name, tt := range map[string]struct {
		err     error
		retried bool
	}{
		"the claim is gone": {apierrors.NewNotFound(resourceClaims, "c"), false},
		"another claim has its name": {
			apierrors.NewConflict(resourceClaims, "c", errors.New("the UID differs")), false,
		},
		"the API server has no answer": {errors.New("connection refused"), true},
	} {
		t.Run(name, func(t *testing.T) {
			n, id := claimed(t)
			n.Observe(attachmentOf("cmemif-100"))
			n.failing("patch", tt.err)
			if err := n.statuses.write(t.Context(), id); (err != nil) != tt.retried {
				t.Errorf("the write returns %v", err)
			}
			if wanted := n.statuses.wanted[id] != nil; wanted != tt.retried {
				t.Errorf("the status is still wanted: %t, want %t", wanted, tt.retried)
			}
		})
	}
}

// A pod may be connected again while the status of its first sandbox is written.
func TestANewerStatusIsNotLostToTheOneBefore(t *testing.T) {
	n, id := claimed(t)
	newer := attachmentOf("cmemif-100")
	newer.Interfaces[1].MAC = netaddr.MAC{2, 0xfe, 0, 0, 0, 2}
	n.answers.set("patch", func(k8stesting.Action) (bool, runtime.Object, error) {
		n.Observe(newer)
		return true, claimOf("c", "", "memif-100"), nil
	})
	n.Observe(attachmentOf("cmemif-100"))
	if err := n.statuses.write(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if wanted := n.statuses.wanted[id]; len(wanted) != 1 ||
		*wanted[0].NetworkData.HardwareAddress != "02:fe:00:00:00:02" {
		t.Errorf("wanted %+v", wanted)
	}
}

func TestAChangeOfHealthIsReportedAtOnce(t *testing.T) {
	h := newHealth()
	d := &Driver{health: h}
	for _, healthy := range []bool{true, false} {
		_, changed := h.state()
		d.SetHealthy(healthy)
		select {
		case <-changed:
		default:
			t.Errorf("healthy %t: kubelet learns it from the next periodic report", healthy)
		}
		is, unchanged := h.state()
		d.SetHealthy(healthy)
		select {
		case <-unchanged:
			t.Errorf("healthy %t: reported without a change", healthy)
		default:
		}
		if is != healthy {
			t.Errorf("healthy %t, want %t", is, healthy)
		}
	}
}
