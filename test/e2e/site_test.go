package e2e_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/weft"
)

// siteNetworks are two networks with routes through one pod, without a gateway in the dataplane.
const siteNetworks = `
apiVersion: contivpp.io/v1
kind: CustomNetwork
metadata: {name: e2e-left}
spec:
  type: L2
  cidrs: [10.78.0.0/24, "fd78::/112"]
  antiSpoof: false
  gateway: none
  reserved: [10.78.0.1-10.78.0.9]
  excluded: [10.78.0.254, "fd78::fe"]
  routes:
    - {to: 10.79.0.0/24, via: 10.78.0.254}
    - {to: "fd79::/112", via: "fd78::fe"}
---
apiVersion: contivpp.io/v1
kind: CustomNetwork
metadata: {name: e2e-right}
spec:
  type: L2
  cidrs: [10.79.0.0/24, "fd79::/112"]
  antiSpoof: false
  gateway: "10.79.0.200, fd79::c8"
  routes:
    - {to: 10.78.0.0/24, via: 10.79.0.254}
    - {to: "fd78::/112", via: "fd79::fe"}
`

// createOn makes a pod with interfaces and their options.
func (s *space) createOn(name, node, interfaces, options string) {
	s.t.Helper()
	_, err := s.c.Client.CoreV1().Pods(s.name).Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Annotations: map[string]string{
				"contivpp.io/custom-if":         weft.CustomInterfaces(interfaces),
				"contivpp.io/custom-if-options": options,
			},
		},
		Spec: podSpec(node),
	}, metav1.CreateOptions{})
	s.must(err)
}

// A pod without privileges routes between two networks, for pods of both nodes. The API server refuses networks that
// contradict themselves.
func TestAPodRoutesBetweenNetworksOfTwoNodes(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	for spec, want := range map[string]string{
		`{type: L3, cidrs: [10.80.0.0/24], gateway: none}`: "a network of type L3 needs a gateway",
		`{type: L2, gateway: 10.80.0.1}`:                   "only a network with cidrs has a gateway",
		`{type: L2, cidrs: [10.80.0.0/24], gateway: ".1"}`: "expected none, an address, or one address of each family",
		`{type: L2, cidrs: [10.80.0.0/24], reserved: [10.80.0.1-]}`: "expected an address, a prefix, or a range such as " +
			"10.7.0.1-10.7.0.20",
		`{type: L2, cidrs: [10.80.0.0/24], routes: [{to: 10.2.0.0/16, via: 10.80.0.9, interface: eth0}]}`: "via and " +
			"interface exclude each other",
		`{type: L2, direct: true, routes: [{to: 10.2.0.0/16, via: 10.80.0.9}]}`: "pods of a direct network have routes of " +
			"their own",
	} {
		manifest := "{apiVersion: contivpp.io/v1, kind: CustomNetwork, metadata: {name: e2e-wrong}, spec: " + spec + "}"
		_, err := s.c.Kubectl(t.Context(), []byte(manifest), "apply", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	s.apply(siteNetworks)
	s.createOn("router", "n1", "left/tap/e2e-left, right/veth/e2e-right", `{
		"left": {"ips": ["10.78.0.254", "fd78::fe"], "ipForwarding": true},
		"right": {"ips": ["10.79.0.254", "fd79::fe"], "ipForwarding": true}}`)
	s.createOn("a", "n1", "left/tap/e2e-left", "{}")
	s.createOn("b", "n2", "right/tap/e2e-right", "{}")
	s.ready("router")
	a := s.ready("a")
	b := s.ready("b")
	for _, address := range append(s.on(b, "right"), s.on(s.ready("router"), "right")...) {
		s.must(cluster.Eventually(t.Context(), "a reaches "+address.String(), func(ctx context.Context) error {
			_, err := s.c.Exec(ctx, a, "ping", address.String(), "100")
			return err
		}))
	}
	for _, address := range s.on(a, "left") {
		s.must(cluster.Eventually(t.Context(), "b reaches "+address.String(), func(ctx context.Context) error {
			_, err := s.c.Exec(ctx, b, "ping", address.String(), "100")
			return err
		}))
	}
}
