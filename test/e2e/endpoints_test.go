package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/weft"
)

// withServiceEndpoints enables service endpoints for a test, as docs/networking.md says.
func (s *space) withServiceEndpoints() {
	s.t.Helper()
	rights, err := os.ReadFile("../../k8s/manifests/endpoints.yaml")
	s.must(err)
	s.must(s.patchController(s.t.Context(), rights, "apply",
		`[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--service-endpoints"}]`))
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		s.must(s.patchController(ctx, rights, "delete",
			`[{"op": "remove", "path": "/spec/template/spec/containers/0/args/2"}]`))
	})
}

// patchController changes the controller and its rights, and waits for the rollout.
func (s *space) patchController(ctx context.Context, rights []byte, verb, patch string) error {
	if _, err := s.c.Kubectl(ctx, rights, verb, "-f", "-"); err != nil {
		return err
	}
	const controller = "deployment/weft-controller"
	if _, err := s.c.Kubectl(ctx, nil, "-n", "weft-system", "patch", controller, "--type=json", "-p",
		patch); err != nil {
		return err
	}
	_, err := s.c.Kubectl(ctx, nil, "-n", "weft-system", "rollout", "status", controller, "--timeout="+timeout.String())
	return err
}

// askFor makes a dual-stack Service with the controller's endpoints.
func (s *space) askFor(name, selector string) *corev1.Service {
	s.t.Helper()
	both := corev1.IPFamilyPolicyRequireDualStack
	service, err := s.c.Client.CoreV1().Services(s.name).Create(s.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{"contivpp.io/endpoint-selector": selector},
		},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &both,
			Ports:          []corev1.ServicePort{{Name: "web", Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	return service
}

func TestServiceReachesTheAnnotatedInterfaceOfItsPod(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	s.withServiceEndpoints()
	spec := podSpec("n2")
	spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	_, err := s.c.Client.CoreV1().Pods(s.name).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "server",
			Labels: map[string]string{"app": "server"},
			Annotations: map[string]string{
				"contivpp.io/custom-if": weft.CustomInterfaces("t1/tap"), "contivpp.io/service-endpoint-if": "t1",
			},
		},
		Spec: spec,
	}, metav1.CreateOptions{})
	s.must(err)
	service := s.askFor("special", "app=server")
	near := s.run("near", "n2")
	far := s.run("far", "n1")
	server := s.ready("server")
	for i, address := range s.on(server, "t1") {
		url := "http://" + netip.AddrPortFrom(netip.MustParseAddr(service.Spec.ClusterIPs[i]), 80).String()
		want := " reached=" + netip.AddrPortFrom(address, 8080).String() + "\n"
		for _, client := range []*corev1.Pod{near, far} {
			s.must(cluster.Eventually(t.Context(), client.Name+" reaches t1 by "+url, func(ctx context.Context) error {
				page, err := s.c.Exec(ctx, client, "http", url)
				if err := isFrom(server, page, err); err != nil || strings.HasSuffix(page, want) {
					return err
				}
				return fmt.Errorf("page %q, want %q", page, want)
			}))
		}
	}
	s.must(s.c.Client.CoreV1().Pods(s.name).Delete(t.Context(), "server", metav1.DeleteOptions{}))
	s.must(cluster.Eventually(t.Context(), "the pod is no longer an endpoint", func(ctx context.Context) error {
		list, err := s.slices(ctx)
		for _, slice := range list {
			if len(slice.Endpoints) > 0 {
				return fmt.Errorf("slice %s has %v", slice.Name, slice.Endpoints)
			}
		}
		return err
	}))
	s.theControllerWritesNoOtherSlices()
}

// slices returns the EndpointSlices of the test's namespace.
func (s *space) slices(ctx context.Context) ([]discoveryv1.EndpointSlice, error) {
	list, err := s.c.Client.DiscoveryV1().EndpointSlices(s.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// theControllerWritesNoOtherSlices makes allowed and forbidden requests with the controller's rights.
func (s *space) theControllerWritesNoOtherSlices() {
	s.t.Helper()
	list, err := s.slices(s.t.Context())
	s.must(err)
	if len(list) != 2 {
		s.t.Fatalf("%d slices, want one of each family", len(list))
	}
	access := rest.CopyConfig(s.c.Access)
	access.Impersonate.UserName = "system:serviceaccount:weft-system:weft-controller"
	access.Impersonate.Groups = []string{
		"system:serviceaccounts", "system:serviceaccounts:weft-system", "system:authenticated",
	}
	client, err := kubernetes.NewForConfig(access)
	s.must(err)
	dry := []string{metav1.DryRunAll}
	in := client.DiscoveryV1().EndpointSlices(s.name)
	own := list[0].DeepCopy()
	_, err = in.Update(s.t.Context(), own, metav1.UpdateOptions{DryRun: dry})
	s.checkVerdict("update its slice", err, true)
	s.checkVerdict("delete its slice", in.Delete(s.t.Context(), own.Name, metav1.DeleteOptions{DryRun: dry}), true)
	for what, change := range map[string]func(*discoveryv1.EndpointSlice){
		"managed by another controller": func(e *discoveryv1.EndpointSlice) {
			e.Labels[discoveryv1.LabelManagedBy] = "me"
		},
		"of another Service": func(e *discoveryv1.EndpointSlice) {
			e.Labels[discoveryv1.LabelServiceName] = "other"
		},
	} {
		other := own.DeepCopy()
		change(other)
		_, err := in.Update(s.t.Context(), other, metav1.UpdateOptions{DryRun: dry})
		s.checkVerdict("change its slice to one "+what, err, false)
		other.Name = "another"
		other.ResourceVersion = ""
		other.UID = ""
		_, err = in.Create(s.t.Context(), other, metav1.CreateOptions{DryRun: dry})
		s.checkVerdict("create a slice "+what, err, false)
	}
	foreign, err := s.c.Client.DiscoveryV1().EndpointSlices("default").Get(s.t.Context(), "kubernetes",
		metav1.GetOptions{})
	s.must(err)
	in = client.DiscoveryV1().EndpointSlices("default")
	_, err = in.Update(s.t.Context(), foreign, metav1.UpdateOptions{DryRun: dry})
	s.checkVerdict("update a foreign slice", err, false)
	s.checkVerdict("delete a foreign slice", in.Delete(s.t.Context(), foreign.Name, metav1.DeleteOptions{DryRun: dry}),
		false)
}
