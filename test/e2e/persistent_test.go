package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// claimKind is the kind IPAMClaim, with the schema of its project.
const claimKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ipamclaims.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {plural: ipamclaims, singular: ipamclaim, kind: IPAMClaim}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [interface, network]
              properties: {network: {type: string}, interface: {type: string}}
            status:
              type: object
              required: [ips]
              properties:
                ips: {type: array, items: {type: string}}
                ownerPod: {type: object, required: [name], properties: {name: {type: string}}}
`

// withPersistentIPs lets the controller make claims for a test, as docs/addresses.md says.
func (s *space) withPersistentIPs() {
	s.t.Helper()
	rights, err := os.ReadFile("../../k8s/manifests/persistent-ips.yaml")
	s.must(err)
	s.must(s.patchController(s.t.Context(), rights, "apply",
		`[{"op": "add", "path": "/spec/template/spec/containers/0/args/1", "value": "--persistent-ips"}]`))
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		s.must(s.patchController(ctx, rights, "delete",
			`[{"op": "remove", "path": "/spec/template/spec/containers/0/args/1"}]`))
	})
}

// claimOf returns the addresses that the claim of a replica holds.
func (s *space) claimOf(ctx context.Context, name string) (string, error) {
	out, err := s.c.Kubectl(ctx, nil, "-n", s.name, "get", "ipamclaim", name, "-o", "jsonpath={.status.ips}")
	return string(out), err
}

// replica puts a StatefulSet with one pod on a node, and returns the addresses of its interface t1 when it is ready.
func (s *space) replica(node string) []string {
	s.t.Helper()
	sets := s.c.Client.AppsV1().StatefulSets(s.name)
	one := int32(1)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	set.Spec.Replicas = &one
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
	set.Spec.Template.Annotations = map[string]string{
		"contivpp.io/custom-if":         "t1/tap/e2e-blue",
		"contivpp.io/custom-if-options": `{"t1": {"persistentIPs": true}}`,
	}
	set.Spec.Template.Spec = podSpec(node)
	_, err := sets.Create(s.t.Context(), set, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = sets.Update(s.t.Context(), set, metav1.UpdateOptions{})
	}
	s.must(err)
	var addresses []string
	s.must(cluster.Eventually(s.t.Context(), "db-0 is ready on "+node, func(ctx context.Context) error {
		p, err := s.c.Client.CoreV1().Pods(s.name).Get(ctx, "db-0", metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case p.Spec.NodeName != node || p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning:
			return fmt.Errorf("it is %s on %s", p.Status.Phase, p.Spec.NodeName)
		}
		addresses = nil
		for _, a := range s.globalOn(p, "t1") {
			addresses = append(addresses, a.String())
		}
		return nil
	}))
	return addresses
}

func TestReplicaKeepsItsAddressesOnTheOtherNode(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	s.apply(twoNetworks)
	s.apply(claimKind)
	s.must(cluster.Eventually(t.Context(), "the definition is established", func(ctx context.Context) error {
		_, err := s.c.Kubectl(ctx, nil, "wait", "--for=condition=Established", "crd/ipamclaims.k8s.cni.cncf.io")
		return err
	}))
	s.withPersistentIPs()
	first := s.replica("n1")
	held, err := s.claimOf(t.Context(), "db-0.t1")
	s.must(err)
	for _, a := range first {
		if !strings.Contains(held, a+"/") {
			t.Errorf("the claim holds %s, the pod has %v", held, first)
		}
	}
	if second := s.replica("n2"); len(first) == 0 || !slices.Equal(second, first) {
		t.Errorf("on n1 the replica has %v, on n2 %v", first, second)
	}
	s.must(s.c.Client.AppsV1().StatefulSets(s.name).Delete(t.Context(), "db", metav1.DeleteOptions{}))
	s.must(cluster.Eventually(t.Context(), "the claim is deleted with the StatefulSet", func(ctx context.Context) error {
		if _, err := s.claimOf(ctx, "db-0.t1"); err == nil {
			return errors.New("it exists")
		}
		return nil
	}))
}
