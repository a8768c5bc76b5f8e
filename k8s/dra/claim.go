package dra

import (
	"context"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/pod"
)

// requestedDevices returns the devices that an allocated claim has of this node, with the interfaces that it requests.
func requestedDevices(claim *resourceapi.ResourceClaim, node string) ([]pod.ClaimedDevice, error) {
	allocation := claim.Status.Allocation
	if allocation == nil {
		return nil, fmt.Errorf("claim %s/%s is not allocated", claim.Namespace, claim.Name)
	}
	counts := make(map[string]int)
	seen := make(map[string]int)
	for _, r := range allocation.Devices.Results {
		if r.Driver == pod.ClaimDriver && r.Pool == node {
			counts[r.Request]++
		}
	}
	var found []pod.ClaimedDevice
	for _, r := range allocation.Devices.Results {
		if r.Driver != pod.ClaimDriver || r.Pool != node {
			continue
		}
		parameters, err := parametersOf(allocation.Devices.Config, r.Request)
		if err != nil {
			return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		parameters = parameters.Named(r.Request, seen[r.Request], counts[r.Request])
		seen[r.Request]++
		if _, err := parameters.Request(); err != nil {
			return nil, fmt.Errorf("claim %s/%s: request %s: %w", claim.Namespace, claim.Name, r.Request, err)
		}
		found = append(found, pod.ClaimedDevice{
			ClaimID: idOf(claim), Device: r.Device, Request: r.Request, Parameters: parameters, Pods: consumers(claim),
		})
	}
	return found, nil
}

// parametersOf merges the parameters of a request: first the parameters of its DeviceClass, then those in the claim, in
// their order.
func parametersOf(
	configurations []resourceapi.DeviceAllocationConfiguration, request string,
) (p pod.ClaimParameters, err error) {
	for _, source := range []resourceapi.AllocationConfigSource{
		resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim,
	} {
		for _, c := range configurations {
			if c.Source != source || c.Opaque == nil || c.Opaque.Driver != pod.ClaimDriver ||
				!pod.ConcernsRequest(c.Requests, request) {
				continue
			}
			if err := p.Merge(c.Opaque.Parameters.Raw); err != nil {
				return p, fmt.Errorf("request %s: parameters (%s): %w", request, source, err)
			}
		}
	}
	return p, nil
}

// consumers returns the UIDs of the pods that a claim is reserved for.
func consumers(claim *resourceapi.ResourceClaim) (uids []string) {
	for _, c := range claim.Status.ReservedFor {
		if c.APIGroup == "" && c.Resource == "pods" {
			uids = append(uids, string(c.UID))
		}
	}
	return uids
}

// collectUntil releases claims that vanished and recreates lost metadata of the claims that are left, at once and
// periodically, until ctx ends.
func (d *Driver) collectUntil(ctx context.Context) {
	tick := time.NewTicker(d.config.Collect)
	defer tick.Stop()
	for {
		d.collect(ctx)
		d.restore(ctx)
		select {
		case <-tick.C:
		case <-d.successor:
			if retry.Pause(ctx, removalTime) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// collect releases the prepared claims that no longer exist, or that no pod needs: kubelet forgets them if it loses its
// state. Those that an attachment uses stay.
func (d *Driver) collect(ctx context.Context) {
	for _, id := range d.config.Devices.Claims() {
		preparation := d.preparations.lastOf(id.UID)
		reason, err := d.obsolete(ctx, id)
		if err != nil && ctx.Err() == nil {
			d.config.Log.Debug("claim not looked up", "claim", id.String(), "err", err)
		}
		if reason == "" {
			continue
		}
		release := func() error {
			if err := d.config.Devices.Unclaim(ctx, id, reason); err != nil {
				return err
			}
			return d.removeMetadata(id)
		}
		if err := d.preparations.ifLast(id.UID, preparation, release); err != nil {
			d.config.Log.Debug("obsolete claim not released", "claim", id.String(), "reason", reason, "err", err)
		}
	}
}

// preparations numbers the preparations of claims, and has the last one of each UID. A claim that no pod needed may be
// prepared for another pod while the API server's answer is on its way: then it is not released.
type preparations struct {
	mu     sync.Mutex
	number uint64
	last   map[string]uint64
}

func (p *preparations) note(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = make(map[string]uint64)
	}
	p.number++
	p.last[uid] = p.number
}

// lastOf returns the number of the last preparation of a claim; 0: an earlier run of the agent prepared it, or none
// did.
func (p *preparations) lastOf(uid string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[uid]
}

// ifLast releases a claim if the preparation is still its last one. Another preparation that begins meanwhile waits.
func (p *preparations) ifLast(uid string, preparation uint64, release func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last[uid] != preparation {
		return nil
	}
	delete(p.last, uid)
	return release()
}

// forget is for a claim that kubelet released.
func (p *preparations) forget(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, uid)
}

// obsolete returns why a prepared claim is obsolete; "" if it is not.
func (d *Driver) obsolete(ctx context.Context, id pod.ClaimID) (string, error) {
	claim, err := d.config.Client.ResourceV1().ResourceClaims(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "it is deleted", nil
	case err != nil:
		return "", client.OneLine(err)
	case string(claim.UID) != id.UID:
		return "another claim has its name", nil
	case claim.Status.Allocation == nil || len(claim.Status.ReservedFor) == 0:
		return "no pod needs it", nil
	}
	return "", nil
}
