package dra

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
)

// statuses writes the interfaces that the devices of claims became in pods into the claims' status, asynchronously, and
// retries until a claim has its status or is gone.
type statuses struct {
	client kubernetes.Interface
	node   string
	log    *slog.Logger
	keys   workqueue.TypedRateLimitingInterface[pod.ClaimID]

	mu     sync.Mutex
	wanted map[pod.ClaimID][]*resourceapply.AllocatedDeviceStatusApplyConfiguration
}

func newStatuses(c kubernetes.Interface, node string, log *slog.Logger) *statuses {
	return &statuses{
		client: c, node: node, log: log, keys: informer.NewQueue[pod.ClaimID](200*time.Millisecond, 5*time.Minute),
		wanted: make(map[pod.ClaimID][]*resourceapply.AllocatedDeviceStatusApplyConfiguration),
	}
}

// of returns the status of a device that became an interface.
func (s *statuses) of(
	claim *pod.ClaimedDevice, i pod.Interface, a *pod.Attachment,
) *resourceapply.AllocatedDeviceStatusApplyConfiguration {
	data := networkData(i)
	network := resourceapply.NetworkDeviceData().WithInterfaceName(data.InterfaceName).WithHardwareAddress(
		data.HardwareAddress).WithIPs(data.IPs...)
	ready := metaapply.Condition().WithType("Ready").WithStatus(metav1.ConditionTrue).WithReason("Connected").
		WithMessage("interface " + i.Name + " of pod " +
			a.Pod.String()).WithLastTransitionTime(metav1.NewTime(a.Created))
	return resourceapply.AllocatedDeviceStatus().WithDriver(pod.ClaimDriver).WithPool(s.node).WithDevice(
		claim.Device).
		WithConditions(ready).WithNetworkData(network)
}

func (s *statuses) run(ctx context.Context) {
	_ = informer.Work(ctx, s.keys, func(ctx context.Context, id pod.ClaimID) error { // ends with ctx only
		err := s.write(ctx, id)
		if err != nil {
			log := s.log.Debug
			if s.keys.NumRequeues(id) == 0 {
				log = s.log.Warn
			}
			log("status of a claim not written, retrying until the claim is gone", "claim", id.String(), "err", err)
		}
		return err
	})
}

// writeTimeout bounds one request.
const writeTimeout = 10 * time.Second

// write applies the wanted status of a claim. The UID makes the API server refuse another claim of the same name.
func (s *statuses) write(ctx context.Context, id pod.ClaimID) error {
	s.mu.Lock()
	devices := s.wanted[id]
	s.mu.Unlock()
	if devices == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	claim := resourceapply.ResourceClaim(id.Name, id.Namespace).WithUID(types.UID(id.UID)).
		WithStatus(resourceapply.ResourceClaimStatus().WithDevices(devices...))
	_, err := s.client.ResourceV1().ResourceClaims(id.Namespace).ApplyStatus(ctx, claim, metav1.ApplyOptions{
		FieldManager: "weft-agent/" + s.node,
		Force:        true,
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		s.mu.Lock()
		defer s.mu.Unlock()
		if sameSlice(s.wanted[id], devices) {
			delete(s.wanted, id)
		}
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the claim is gone, or another has its name
		return nil
	}
	if err != nil {
		return client.OneLine(err)
	}
	return nil
}

// sameSlice reports whether no other status became wanted meanwhile.
func sameSlice(a, b []*resourceapply.AllocatedDeviceStatusApplyConfiguration) bool {
	return len(a) == len(b) && (len(a) == 0 || a[0] == b[0])
}
