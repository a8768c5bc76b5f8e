package dra

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

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
