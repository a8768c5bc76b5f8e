package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// policyNetwork is the network of the extra interfaces, and the kind MultiNetworkPolicy, as far as the agents read it.
const (
	policyNetwork = `
apiVersion: contivpp.io/v1
kind: CustomNetwork
metadata: {name: e2e-policy}
spec: {type: L2, cidrs: [10.58.0.0/24, "fd00:58::/120"], vni: 5008}
`
	multiPolicyKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: multi-networkpolicies.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {plural: multi-networkpolicies, singular: multi-networkpolicy, kind: MultiNetworkPolicy, listKind: MultiNetworkPolicyList}
  versions:
    - name: v1beta1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`
)

// Policies of all interfaces are enforced on a cluster of two nodes: the same truth table holds for main interfaces and
// for taps, veths and memifs of a network.
func TestPolicies(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	s.apply(multiPolicyKind)
	s.apply(policyNetwork)
	members := tableMembers(t, "e2e-policy")
	main := mainTable(t, members)
	extra := extraTable(t, members, "e2e-policy")
	t.Run("NetworkPolicy", func(t *testing.T) { main.on(t).run(policyCases()) })
	t.Run("NetworkPolicyChanges", func(t *testing.T) { main.on(t).changes() })
	t.Run("Nodes", func(t *testing.T) { main.on(t).nodes() })
	t.Run("Services", func(t *testing.T) { main.on(t).services() })
	t.Run("MultiNetworkPolicy", func(t *testing.T) { extra.on(t).run(policyCases()) })
	t.Run("MultiNetworkPolicyChanges", func(t *testing.T) { extra.on(t).changes() })
}

// changes checks changes of labels and of policies.
func (tt *truthTable) changes() {
	const byRole = `{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {role: client}}}]}]}`
	everything := func(contact) bool { return true }
	tt.t.Run("labels of a pod", func(t *testing.T) {
		tt := tt.on(t)
		tt.apply("role", []tablePolicy{{"x", byRole}})
		tt.await(func(c contact) bool { return !c.to.is("x/a") })
		client := tt.member("y/b")
		tt.label(client, `"client"`)
		tt.await(func(c contact) bool { return !c.to.is("x/a") || c.from == client })
		tt.label(client, "null")
		tt.await(func(c contact) bool { return !c.to.is("x/a") })
	})
	tt.t.Run("labels of a namespace", func(t *testing.T) {
		tt := tt.on(t)
		tt.apply("trusted", []tablePolicy{
			{"x", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {trusted: "yes"}}}]}]}`},
		})
		tt.await(func(c contact) bool { return c.to.ns != "x" })
		tt.trust("z", `"yes"`)
		tt.await(func(c contact) bool { return c.to.ns != "x" || c.from.ns == "z" })
		tt.trust("z", "null")
		tt.await(func(c contact) bool { return c.to.ns != "x" })
	})
	tt.t.Run("a policy", func(t *testing.T) {
		tt := tt.on(t)
		tt.apply("changed", []tablePolicy{{"x", `{podSelector: {}, policyTypes: [Ingress]}`}})
		tt.await(func(c contact) bool { return c.to.ns != "x" })
		tt.apply("changed", []tablePolicy{
			{"x", `{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 80}]}]}`},
		})
		tt.await(func(c contact) bool { return c.to.ns != "x" || c.at("tcp/80") })
	})
	tt.t.Run("deletion of policies", func(t *testing.T) { tt.on(t).await(everything) })
}

func (tt *truthTable) member(name string) *member {
	tt.t.Helper()
	for _, m := range tt.members {
		if m.is(name) {
			return m
		}
	}
	tt.t.Fatalf("no pod %s", name)
	return nil
}

// label sets the label role of a pod to a JSON value.
func (tt *truthTable) label(m *member, value string) {
	tt.t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {"role": %s}}}`, value)
	_, err := tt.c.Client.CoreV1().Pods(m.space.name).Patch(tt.t.Context(), m.name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	tt.must(err)
}

// trust sets the label trusted of a namespace to a JSON value.
func (tt *truthTable) trust(ns, value string) {
	tt.t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {"trusted": %s}}}`, value)
	_, err := tt.c.Client.CoreV1().Namespaces().Patch(tt.t.Context(), "e2e-policy-"+ns, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	tt.must(err)
}

// nodes checks that the node of an isolated pod reaches it, as kubelet's probes must, and other nodes only if their
// addresses are permitted; and that policies do not select pods of the host's network.
func (tt *truthTable) nodes() {
	server := tt.member("x/a")
	server.space.serves(server.pod)
	own := tt.c.Node(server.pod.Spec.NodeName)
	other := tt.c.Nodes[0]
	if other == own {
		other = tt.c.Nodes[1]
	}
	host := server.space.hostPod("host", other.Name)
	page := func(address netip.Addr, port uint16) string {
		return "http://" + netip.AddrPortFrom(address, port).String()
	}
	tt.apply("closed", []tablePolicy{{"x", `{podSelector: {}, policyTypes: [Ingress, Egress]}`}})
	tt.await(func(c contact) bool { return c.from.ns != "x" && c.to.ns != "x" })
	for _, address := range tt.addresses[server] {
		url := page(address, 8080)
		if _, err := fetchFrom(tt.t.Context(), own, url); err != nil {
			tt.t.Errorf("%s, the node of %s, does not reach it: %v", own.Name, server, err)
		}
		if _, err := fetchFrom(tt.t.Context(), other, url); err == nil {
			tt.t.Errorf("%s reaches %s on %s by %s, but no policy permits it", other.Name, server, own.Name, address)
		}
	}
	_, err := fetchFrom(tt.t.Context(), own, page(other.Addresses[0], hostPort))
	if err != nil {
		tt.t.Errorf("policies isolate %s, which uses the network of its node: %v", host.Name, err)
	}
	// The packets of a node to pods of another node have the address of its link weft0 (docs/policy.md).
	var blocks []string
	for _, prefix := range tt.linkAddresses(other) {
		blocks = append(blocks, fmt.Sprintf(`{ipBlock: {cidr: "%s"}}`, prefix))
	}
	tt.apply("node", []tablePolicy{
		{"x", `{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [` + strings.Join(blocks, ", ") + `]}]}`},
	})
	for _, address := range tt.addresses[server] {
		tt.must(cluster.Eventually(tt.t.Context(), other.Name+" reaches "+address.String(),
			func(ctx context.Context) error {
				_, err := fetchFrom(ctx, other, page(address, 8080))
				return err
			}))
	}
}

// linkAddresses returns the addresses of the link between a node and its dataplane.
func (tt *truthTable) linkAddresses(n *cluster.Node) (all []netip.Prefix) {
	tt.t.Helper()
	tt.must(n.Do(func() error {
		link, err := netlink.LinkByName("weft0")
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		for _, a := range addresses {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.IsGlobalUnicast() {
				all = append(all, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
			}
		}
		return err
	}))
	if len(all) == 0 {
		tt.t.Fatalf("the link weft0 of %s has no address", n.Name)
	}
	return all
}

// hostPort is the port of a pod in the network of a node.
const hostPort = 18080

// hostPod makes a pod in the network of a node and waits until it is ready.
func (s *space) hostPod(name, node string) *corev1.Pod {
	s.t.Helper()
	spec := podSpec(node)
	spec.HostNetwork = true
	spec.Containers[0].Args = []string{"serve", "-http", fmt.Sprint(hostPort), "-echo", fmt.Sprint(hostPort + 1)}
	_, err := s.c.Client.CoreV1().Pods(s.name).Create(s.t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	s.must(err)
	return s.ready(name)
}

// services checks that a pod reaches a Service by its cluster IP if its egress policy permits all endpoints, and not
// otherwise.
func (tt *truthTable) services() {
	client := tt.member("x/a")
	tt.apply("client", []tablePolicy{{"x", `{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress],
  egress: [{to: [{namespaceSelector: {matchLabels: {ns: "y"}}, podSelector: {matchLabels: {pod: b}}}]}]}`}})
	tt.await(func(c contact) bool { return !c.from.is("x/a") || c.to.is("y/b") })
	permitted := tt.service("y", "permitted", map[string]string{"pod": "b"})
	denied := append(tt.service("y", "denied", map[string]string{"pod": "c"}),
		tt.service("y", "mixed", map[string]string{"table": "policy"})...)
	for _, ip := range slices.Concat(permitted, denied) {
		tt.answers(tt.member("z/a"), ip)
	}
	for _, ip := range permitted {
		tt.answers(client, ip)
	}
	for _, ip := range denied {
		if got := tt.knock(client, ip); got != "silent" {
			tt.t.Errorf("Service %s of pods that the policy denies: %s", ip, got)
		}
	}
}

// answers waits until a pod reaches TCP port 80 of an address.
func (tt *truthTable) answers(from *member, ip string) {
	tt.t.Helper()
	tt.must(cluster.Eventually(tt.t.Context(), fmt.Sprintf("%s reaches %s", from, ip), func(context.Context) error {
		if got := tt.knock(from, ip); got != "open" {
			return errors.New(got)
		}
		return nil
	}))
}

// knock returns the result of a contact with TCP port 80 of an address.
func (tt *truthTable) knock(from *member, ip string) string {
	tt.t.Helper()
	target := "tcp/" + netip.AddrPortFrom(netip.MustParseAddr(ip), 80).String()
	out, err := tt.c.Exec(tt.t.Context(), from.pod, "knock", target)
	tt.must(err)
	return strings.TrimPrefix(strings.TrimSpace(out), target+" ")
}

// service makes a Service for the table's ports of pods of a namespace, and returns its cluster IPs.
func (tt *truthTable) service(ns, name string, labels map[string]string) []string {
	tt.t.Helper()
	both := corev1.IPFamilyPolicyRequireDualStack
	spec := corev1.ServiceSpec{IPFamilyPolicy: &both, Selector: labels}
	for _, port := range tablePorts {
		for _, protocol := range tableProtocols {
			spec.Ports = append(spec.Ports, corev1.ServicePort{
				Name:     fmt.Sprintf("%s-%d", protocol, port),
				Port:     int32(port),
				Protocol: corev1.Protocol(strings.ToUpper(protocol)),
			})
		}
	}
	services := tt.c.Client.CoreV1().Services("e2e-policy-" + ns)
	made, err := services.Create(tt.t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
		metav1.CreateOptions{})
	tt.must(err)
	tt.t.Cleanup(func() { tt.must(services.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	return made.Spec.ClusterIPs
}
