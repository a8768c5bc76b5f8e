package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/weft"
)

// offersClaims changes the agents: 20 of the 100 memifs of a node are for claims. The mounts are those of the chart
// with claims: true.
const offersClaims = `{"spec":{"template":{"spec":{
"containers":[{"name":"agent","env":[{"name":"WEFT_DEVICES_MEMIF_CLAIMS","value":"20"}],"volumeMounts":[
  {"name":"plugins-registry","mountPath":"/var/lib/kubelet/plugins_registry"},
  {"name":"plugin","mountPath":"/var/lib/kubelet/plugins/memif.contivpp.io"},
  {"name":"cdi","mountPath":"/var/run/cdi"}]}],
"volumes":[
  {"name":"plugins-registry","hostPath":{"path":"/var/lib/kubelet/plugins_registry","type":"DirectoryOrCreate"}},
  {"name":"plugin","hostPath":{"path":"/var/lib/kubelet/plugins/memif.contivpp.io","type":"DirectoryOrCreate"}},
  {"name":"cdi","hostPath":{"path":"/var/run/cdi","type":"DirectoryOrCreate"}}]}}}}`

// claimTemplate has one memif on the network e2e-blue.
const claimTemplate = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: fast}
spec:
  spec:
    devices:
      requests: [{name: memif, exactly: {deviceClassName: memif.contivpp.io}}]
      config:
        - requests: [memif]
          opaque:
            driver: memif.contivpp.io
            parameters: {apiVersion: contivpp.io/v1, kind: MemifParameters, interface: fast, network: e2e-blue, options: {ringSize: 512}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: own}
spec:
  devices:
    requests: [{name: own, exactly: {deviceClassName: memif.contivpp.io}}]
    config:
      - opaque:
          driver: memif.contivpp.io
          parameters: {apiVersion: contivpp.io/v1, kind: MemifParameters, network: e2e-blue}
`

// offerClaims installs the DeviceClass and makes the agents offer memifs to claims, until the end of the test.
func (s *space) offerClaims(t *testing.T) {
	t.Helper()
	manifest, err := os.ReadFile("../../k8s/manifests/claims.yaml")
	s.must(err)
	s.apply(string(manifest))
	agents := func(ctx context.Context, arguments ...string) error {
		_, err := s.c.Kubectl(ctx, nil, append([]string{"-n", system}, arguments...)...)
		return err
	}
	rolledOut := []string{"rollout", "status", "daemonset/weft-agent", "--timeout=90s"}
	s.must(agents(t.Context(), "patch", "daemonset/weft-agent", "--type=strategic", "-p", offersClaims))
	t.Cleanup(func() {
		// Kubelet releases claims while the driver is there; without it their pods would not end.
		if err := errors.Join(s.c.Client.CoreV1().Pods(s.name).DeleteCollection(context.Background(),
			metav1.DeleteOptions{}, metav1.ListOptions{}),
			s.awaitNoPods(context.Background())); err != nil {
			t.Error(err)
		}
		if err := errors.Join(agents(context.Background(), "rollout", "undo", "daemonset/weft-agent"),
			agents(context.Background(), rolledOut...)); err != nil {
			t.Error(err)
		}
	})
	s.must(agents(t.Context(), rolledOut...))
	s.must(cluster.Eventually(t.Context(), "each node offers 20 memifs", func(ctx context.Context) error {
		list, err := s.c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		offered := map[string]int{}
		for _, slice := range list.Items {
			if slice.Spec.Driver == "memif.contivpp.io" {
				offered[*slice.Spec.NodeName] += len(slice.Spec.Devices)
			}
		}
		if offered["n1"] != 20 || offered["n2"] != 20 {
			return fmt.Errorf("offered %v", offered)
		}
		return nil
	}))
}

// responds makes the first container of a spec answer pings on the memifs in a directory.
func responds(spec *corev1.PodSpec, directory string) {
	spec.Containers[0].Name = "responder"
	spec.Containers[0].Image = weft.Image
	spec.Containers[0].Command = []string{"/usr/local/bin/icmpresponder"}
	spec.Containers[0].Args = nil
	spec.Containers[0].Env = []corev1.EnvVar{{Name: "MEMIF_SOCKET", Value: directory + "/memif.sock"}}
}

// statusOfClaim waits until the status of a pod's claim has an interface, and returns its addresses.
func (s *space) statusOfClaim(pod, name string) (addresses []netip.Addr) {
	s.t.Helper()
	s.must(cluster.Eventually(s.t.Context(), "the claim of "+pod+" has interface "+name,
		func(ctx context.Context) error {
			list, err := s.c.Client.ResourceV1().ResourceClaims(s.name).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				if addresses = addressesIn(&list.Items[i], pod, name); len(addresses) > 0 {
					return nil
				}
			}
			return fmt.Errorf("%d claims", len(list.Items))
		}))
	return addresses
}

func addressesIn(claim *resourceapi.ResourceClaim, pod, name string) (addresses []netip.Addr) {
	for _, d := range claim.Status.Devices {
		if len(claim.Status.ReservedFor) != 1 || claim.Status.ReservedFor[0].Name != pod || d.NetworkData == nil ||
			d.NetworkData.InterfaceName != name || d.NetworkData.HardwareAddress == "" {
			continue
		}
		for _, text := range d.NetworkData.IPs {
			if p, err := netip.ParsePrefix(text); err == nil {
				addresses = append(addresses, p.Addr())
			}
		}
	}
	return addresses
}

// A pod gets a memif by a claim template or by a claim, is reachable by it from the other node, and the claim's status
// has its addresses. Kubelet and the agent may restart in between. A pod uses a claim and a device of the device plugin
// together. Nothing is left afterwards.
func TestDRAGivesMemifs(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	s.apply(twoNetworks)
	s.offerClaims(t)
	_, err := s.c.Kubectl(t.Context(), []byte(claimTemplate), "apply", "-n", s.name, "-f", "-")
	s.must(err)
	s.createWith("client", "n2", "blue/tap/e2e-blue", nil)
	template := "fast"
	s.createWith("templated", "n1", "", func(spec *corev1.PodSpec) {
		responds(spec, "/run/memif-claims/fast")
		spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "fast", ResourceClaimTemplateName: &template}}
		spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "fast"}}
	})
	client := s.ready("client")
	s.ready("templated")
	reach := func(address netip.Addr) {
		s.must(cluster.Eventually(t.Context(), "client reaches "+address.String(), func(ctx context.Context) error {
			_, err := s.c.Exec(ctx, client, "ping", address.String(), "100")
			return err
		}))
	}
	for _, address := range s.statusOfClaim("templated", "fast") {
		reach(address)
	}
	n := s.c.Node("n1")
	s.must(errors.Join(n.Kubelet.Restart(t.Context()), n.AwaitKubelet(t.Context())))
	s.killAgents()
	s.must(n.AwaitDevices(t.Context(), "contivpp.io/memif")) // without devices kubelet rejects a pod for good
	claim := "own"
	s.createWith("both", "n1", "m1/memif/e2e-blue", func(spec *corev1.PodSpec) {
		responds(spec, "/run/memif-claims/own")
		spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "own", ResourceClaimName: &claim}}
		spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "own"}}
		second := *spec.Containers[0].DeepCopy()
		second.Name = "second"
		second.Env = nil
		second.Resources.Claims = nil
		second.Resources.Limits = corev1.ResourceList{"contivpp.io/memif": resource.MustParse("1")}
		spec.Containers = append(spec.Containers, second)
	})
	s.ready("both")
	for _, address := range append(s.statusOfClaim("both", "own"), s.statusOfClaim("templated", "fast")...) {
		reach(address)
	}
	s.must(s.c.Client.CoreV1().Pods(s.name).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.must(s.awaitNoPods(t.Context()))
	s.must(cluster.Eventually(t.Context(), "the claims' memifs are released", func(context.Context) error {
		return n.Do(func() error {
			left, err := filepath.Glob("/run/cdi/contivpp.io-memif_*")
			if err == nil && len(left) > 0 {
				err = errors.New(strings.Join(left, ", "))
			}
			return err
		})
	}))
}
