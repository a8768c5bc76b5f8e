package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
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
	s.createPod(customPod(name, node, interfaces, options))
}

// customPod is a pod with interfaces and their options.
func customPod(name, node, interfaces, options string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Annotations: map[string]string{
				"contivpp.io/custom-if":         weft.CustomInterfaces(interfaces),
				"contivpp.io/custom-if-options": options,
			},
		},
		Spec: podSpec(node),
	}
}

func (s *space) createPod(pod *corev1.Pod) {
	s.t.Helper()
	_, err := s.c.Client.CoreV1().Pods(s.name).Create(s.t.Context(), pod, metav1.CreateOptions{})
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

// virtualNetwork permits its pods an address of each family that moves.
const virtualNetwork = `
apiVersion: contivpp.io/v1
kind: CustomNetwork
metadata: {name: e2e-virtual}
spec:
  type: L2
  cidrs: [10.83.0.0/24, "fd83::/112"]
  allowedAddresses: [10.83.0.100, "fd83::100"]
`

// Addresses move from a pod to one on the other node, and a client follows. A pod without the permission has them in
// vain.
func TestVirtualAddressesMoveBetweenPodsOfTwoNodes(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	s.apply(virtualNetwork)
	const permitted = `{"t1": {"allowedAddresses": ["10.83.0.100", "fd83::100"]}}`
	for name, options := range map[string]string{"one": permitted, "two": permitted, "thief": "{}"} {
		node := "n1"
		if name == "two" {
			node = "n2"
		}
		pod := customPod(name, node, "t1/tap/e2e-virtual", options)
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}},
		}
		s.createPod(pod)
	}
	s.createOn("client", "n2", "t1/tap/e2e-virtual", "{}")
	client := s.ready("client")
	virtual := []string{"10.83.0.100", "fd83::100"}
	change := func(pod, verb string) {
		s.exec(s.ready(pod), "ip", "address", verb, virtual[0]+"/24", "dev", "t1",
			"then", "ip", "address", verb, virtual[1]+"/112", "dev", "t1")
	}
	for _, pod := range []string{"one", "two"} {
		change(pod, "add")
		for _, address := range virtual {
			s.must(cluster.Eventually(t.Context(), address+" on "+pod+" answers", func(ctx context.Context) error {
				_, err := s.c.Exec(ctx, client, "ping", address)
				return err
			}))
		}
		change(pod, "del")
	}
	change("thief", "add")
	for _, address := range virtual {
		if output, err := s.c.Exec(t.Context(), client, "ping", address); err == nil {
			t.Errorf("%s answers on a pod without the permission: %s", address, output)
		}
	}
}

// limitedNetwork has pods with limits of their rates.
const limitedNetwork = `
apiVersion: contivpp.io/v1
kind: CustomNetwork
metadata: {name: e2e-limited}
spec: {type: L2, cidrs: [10.84.0.0/24, "fd84::/112"]}
`

// Limits hold for what pods send to the other node: that of Kubernetes' annotation on the main interface, and those of
// the options on others. Without a limit the same data is much faster.
func TestLimitsHoldBetweenNodes(t *testing.T) {
	needWeft(t)
	const (
		limit = 8 // Mbit/s
		bytes = 4 << 20
	)
	s := newSpace(t)
	s.apply(limitedNetwork)
	limited := customPod("limited", "n1", "t1/tap/e2e-limited", `{"t1": {"rate": {"egress": "8M"}}}`)
	limited.Annotations["kubernetes.io/egress-bandwidth"] = "8M"
	s.createPod(limited)
	s.createOn("free", "n1", "t1/tap/e2e-limited", "{}")
	s.createOn("server", "n2", "t1/tap/e2e-limited", "{}")
	server := s.ready("server")
	s.serves(server)
	rateOf := func(pod *corev1.Pod, address netip.Addr) (rate float64) {
		output := s.exec(pod, "bulk", netip.AddrPortFrom(address, 7).String(), strconv.Itoa(bytes))
		_, err := fmt.Sscanf(output, "%f Mbit/s", &rate)
		s.must(err)
		return rate
	}
	for _, link := range []string{"eth0", "t1"} {
		for _, address := range s.on(server, link) {
			if rate := rateOf(s.ready("limited"), address); rate > 1.25*limit {
				t.Errorf("%s: %g Mbit/s", address, rate)
			}
			if rate := rateOf(s.ready("free"), address); rate < 2*limit {
				t.Errorf("%s: %g Mbit/s without a limit", address, rate)
			}
		}
	}
}
