package admission_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claimsManifest has the policies for ResourceSlices and the status of ResourceClaims.
const claimsManifest = "../../k8s/manifests/claims.yaml"

// offers creates a ResourceSlice as the agent of n2.
func offers(t testing.TB, driver, node, pool string) request {
	return request{
		node:      "n2",
		operation: create,
		resource:  "resourceslices",
		object: object(t, "resourceslices", "s", fmt.Sprintf(
			`{spec: {driver: %s, nodeName: %s, pool: {name: %s, generation: 9, resourceSliceCount: 1}}}`, driver, node,
			pool)),
	}
}

// reports changes the status of a claim's devices as the agent of n2.
func reports(t testing.TB, before, after string) request {
	return request{node: "n2", operation: update, resource: "resourceclaims", sub: "status",
		old:    object(t, "resourceclaims", "c", "{metadata: {namespace: a}, spec: {}, status: {"+before+"}}"),
		object: object(t, "resourceclaims", "c", "{metadata: {namespace: a}, spec: {}, status: {"+after+"}}")}
}

func TestStolenTokenChangesOnlyMemifsOfItsNode(t *testing.T) {
	const foreign, devices, finalizers = "may offer only memifs of its own node", "may change only the status of its memifs", "adds no finalizers"
	const allocated = "allocation: {devices: {results: [{request: m, driver: memif.contivpp.io, pool: n2, device: a}]}}"
	const mine, ofN1, otherDriver = "{driver: memif.contivpp.io, pool: n2, device: a%s}", "{driver: memif.contivpp.io, pool: n1, device: a%s}", "{driver: gpu, pool: n2, device: a%s}"
	list := func(devices ...string) string { return allocated + ", devices: [" + strings.Join(devices, ", ") + "]" }
	plain := func(device string) string { return fmt.Sprintf(device, "") }
	forged := func(device string) string { return fmt.Sprintf(device, ", networkData: {ips: [10.0.0.1/32]}") }
	s := serve(t, readFile(t, claimsManifest), cluster(t)...)
	for _, a := range []attempt{
		{"offer its memifs", "", offers(t, "memif.contivpp.io", "n2", "n2")},
		{
			"offer again", "",
			offers(t, "memif.contivpp.io", "n2", "n2").with(func(r *request) { r.operation, r.old = update, r.object }),
		},
		{
			"withdraw", "",
			offers(t, "memif.contivpp.io", "n2", "n2").with(func(r *request) {
				r.operation, r.old, r.object = remove, r.object, nil
			}),
		},
		{"report a device", "", reports(t, allocated, list(plain(mine)))},
		{
			"report a device beside others", "",
			reports(t, list(plain(ofN1), plain(otherDriver)), list(plain(ofN1), plain(otherDriver), forged(mine))),
		},

		{"offer devices of another driver", foreign, offers(t, "gpu", "n2", "n2")},
		{"offer devices of another node", foreign, offers(t, "memif.contivpp.io", "n1", "n1")},
		// The scheduler uses the newest generation of a pool: that of n1 would be replaced.
		{"replace the pool of another node", foreign, offers(t, "memif.contivpp.io", "n2", "n1")},
		{
			"delete the slice of another node", foreign,
			offers(t, "memif.contivpp.io", "n1", "n1").with(func(r *request) {
				r.operation, r.old, r.object = remove, r.object, nil
			}),
		},
		{
			"keep a slice with a finalizer", finalizers,
			offers(t, "memif.contivpp.io", "n2", "n2").with(func(r *request) { r.object = finalized(r.object, "a/b") }),
		},
		{
			"offer without a node in the token", foreign,
			offers(t, "memif.contivpp.io", "''", "''").with(func(r *request) { r.node = "" }),
		},
		{"allocate", "only the status of a claim's devices", reports(t, "", allocated)},
		{"report a device of another node", devices, reports(t, list(plain(ofN1)), list(forged(ofN1)))},
		{"report a device of another driver", devices, reports(t, list(plain(otherDriver)), list(forged(otherDriver)))},
		{"remove the report of another node", devices, reports(t, list(plain(ofN1), plain(mine)), list(plain(mine)))},
		{
			"report without a node in the token", devices,
			reports(t, allocated, list(plain(mine))).with(func(r *request) { r.node = "" }),
		},
	} {
		why := s.ask(t, a.request)
		if !strings.Contains(why, a.message) || a.message == "" && why != "" {
			t.Errorf("%s: %q, want %q", a.name, why, a.message)
		}
	}
}

// endpointsManifest has the policies for EndpointSlices of the controller.
const endpointsManifest = "../../k8s/manifests/endpoints.yaml"

func TestControllersTokenWritesOnlySlicesOfServicesWithTheAnnotation(t *testing.T) {
	const own, owner, annotation = "only its own EndpointSlices", "that their Service owns", "only of Services with the annotation"
	slice := func(managedBy, label, service string) request {
		return request{
			user:      controller,
			operation: create,
			resource:  "endpointslices",
			object: object(t, "endpointslices", "s", fmt.Sprintf(
				`{metadata: {namespace: a, labels: {endpointslice.kubernetes.io/managed-by: %s, kubernetes.io/service-name: %s},
			ownerReferences: [{apiVersion: v1, kind: Service, name: %s, uid: u}]}}`, managedBy, label, service)),
		}
	}
	const ours = "weft-controller.contivpp.io"
	service := func(name string, annotations map[string]string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Annotations: annotations}}
	}
	s := serve(t, readFile(t, endpointsManifest),
		append(cluster(t), service("web", nil),
			service("red", map[string]string{"contivpp.io/endpoint-selector": "{}"}))...)
	without := serve(t, readFile(t, endpointsManifest), cluster(t)...)
	for _, a := range []attempt{
		{"of a Service with the annotation", "", slice(ours, "red", "red")},
		{"change it", "", slice(ours, "red", "red").with(func(r *request) { r.operation, r.old = update, r.object })},
		{
			"delete it", "",
			slice(ours, "red", "red").with(func(r *request) { r.operation, r.old, r.object = remove, r.object, nil }),
		},
		{"redirect a Service", annotation, slice(ours, "web", "web")},
		{"redirect a Service by a slice of another one", annotation, slice(ours, "web", "web").with(func(r *request) {
			r.operation, r.old = update, slice(ours, "red", "red").object
		})},
		{"owned by another Service", owner, slice(ours, "red", "web")},
		{"of another controller", owner, slice("endpointslice-controller.k8s.io", "red", "red")},
		{
			"delete a slice of another controller", own,
			slice("endpointslice-controller.k8s.io", "red", "red").with(func(r *request) {
				r.operation, r.old, r.object = remove, r.object, nil
			}),
		},
	} {
		why := s.ask(t, a.request)
		if !strings.Contains(why, a.message) || a.message == "" && why != "" {
			t.Errorf("%s: %q, want %q", a.name, why, a.message)
		}
	}
	if without.ask(t, slice(ours, "web", "web")) == "" {
		t.Error("a slice of a Service that does not exist is admitted")
	}
}
