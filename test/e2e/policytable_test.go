package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/weft"
)

// member is a pod of a truth table; its name is "a", "b" or "c", in namespace "x", "y" or "z".
type member struct {
	ns, name string
	space    *space
	pod      *corev1.Pod
}

func (m *member) String() string { return m.ns + "/" + m.name }

// is reports whether m is the pod "NAMESPACE/NAME".
func (m *member) is(name string) bool { return m.String() == name }

// contact is a cell of a truth table: whether one pod reaches a port of another.
type contact struct {
	from, to *member
	protocol string // tcp, udp or sctp
	port     uint16
	ipv6     bool
	service  bool // by the cluster IP of the Service of the other
}

func (c contact) String() string {
	family := 4
	if c.ipv6 {
		family = 6
	}
	by := "address"
	if c.service {
		by = "Service"
	}
	return fmt.Sprintf("%s -> %s by %s %s/%d IPv%d", c.from, c.to, by, c.protocol, c.port, family)
}

// at reports whether the contact is of the protocol and port "tcp/80".
func (c contact) at(port string) bool { return fmt.Sprintf("%s/%d", c.protocol, c.port) == port }

// tablePolicy is a policy in one of the three namespaces. In its spec, IPV4(x/a) and IPV6(x/a) are prefixes with a
// pod's address only.
type tablePolicy struct{ ns, spec string }

// policyCase is a set of policies, and which contacts they permit. A pod always reaches itself.
type policyCase struct {
	name     string
	policies []tablePolicy
	permits  func(contact) bool
}

// truthTable checks contacts between all of nine pods, on both nodes, by one interface of each pod.
type truthTable struct {
	t          *testing.T
	c          *cluster.Cluster
	members    []*member
	addresses  map[*member][]netip.Addr // one of each family
	clusterIPs map[*member][]netip.Addr // of a Service of each pod, one of each family; empty if there are none
	kind       string                   // apiVersion, kind and annotations of its policies
}

// memifTap is a container that gives its pod a memif as a tap, so that the pod uses it with sockets.
func memifTap() corev1.Container {
	privileged := true
	return corev1.Container{
		Name:            "memiftap",
		Image:           weft.Image,
		ImagePullPolicy: corev1.PullNever,
		Command:         []string{"/usr/local/bin/memiftap"},
		SecurityContext: &corev1.SecurityContext{Privileged: &privileged}, // for /dev/net/tun
		Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"contivpp.io/memif": resource.MustParse("1")},
		},
	}
}

// tableMembers makes the pods, in namespaces with the label ns. Each has an interface p0 on the network: a tap, a veth
// or a memif.
func tableMembers(t *testing.T, network string) (all []*member) {
	t.Helper()
	c := need(t)
	for _, ns := range []string{"x", "y", "z"} {
		s := newSpaceNamed(t, "e2e-policy-"+ns)
		patch := fmt.Sprintf(`{"metadata": {"labels": {"ns": %q}}}`, ns)
		_, err := s.c.Client.CoreV1().Namespaces().Patch(t.Context(), s.name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
		s.must(err)
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, &member{ns: ns, name: name, space: s})
		}
	}
	for i, m := range all {
		kind := []string{"tap", "veth", "memif"}[(i+i/3)%3]
		m.space.createLabelled(m.name, c.Nodes[i%2].Name, "p0/"+kind+"/"+network, func(spec *corev1.PodSpec) {
			spec.Containers[0].Args = []string{"serve", "-open", "80,81"}
			for _, port := range tablePorts {
				for _, protocol := range tableProtocols {
					spec.Containers[0].Ports = append(spec.Containers[0].Ports, corev1.ContainerPort{
						Name:          fmt.Sprintf("serve-%d-%s", port, protocol),
						ContainerPort: int32(port),
						Protocol:      corev1.Protocol(strings.ToUpper(protocol)),
					})
				}
			}
			if kind == "memif" {
				spec.Containers = append(spec.Containers, memifTap())
			}
		})
	}
	for _, m := range all {
		m.pod = m.space.ready(m.name)
	}
	return all
}

// createLabelled makes a pod with an extra interface and the labels pod and table.
func (s *space) createLabelled(name, node, interfaces string, change func(*corev1.PodSpec)) {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{"pod": name, "table": "policy"},
			Annotations: map[string]string{"contivpp.io/custom-if": weft.CustomInterfaces(interfaces)},
		},
		Spec: podSpec(node),
	}
	change(&pod.Spec)
	_, err := s.c.Client.CoreV1().Pods(s.name).Create(s.t.Context(), pod, metav1.CreateOptions{})
	s.must(err)
}

var (
	tablePorts     = []uint16{80, 81}
	tableProtocols = protocolsWithPorts()
)

// protocolsWithPorts lacks SCTP on VPP, which does not read its ports: docs/policy.md. Cases of test/conformance show
// what it does.
func protocolsWithPorts() []string {
	if weft.OnVPP() {
		return []string{"tcp", "udp"}
	}
	return []string{"tcp", "udp", "sctp"}
}

// mainTable is the table of the main interfaces, with NetworkPolicies. Its pods contact each other by their addresses
// and by Services.
func mainTable(t *testing.T, members []*member) *truthTable {
	t.Helper()
	tt := &truthTable{
		t:          t,
		c:          need(t),
		members:    members,
		addresses:  map[*member][]netip.Addr{},
		clusterIPs: map[*member][]netip.Addr{},
		kind:       "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:",
	}
	for _, m := range members {
		tt.addresses[m] = m.space.addresses(m.pod)
		for _, ip := range tt.service(m.ns, m.name, map[string]string{"pod": m.name}) {
			tt.clusterIPs[m] = append(tt.clusterIPs[m], netip.MustParseAddr(ip))
		}
	}
	return tt
}

// extraTable is the table of the interfaces p0, with MultiNetworkPolicies for a network of Weft.
func extraTable(t *testing.T, members []*member, network string) *truthTable {
	t.Helper()
	tt := &truthTable{
		t: t, c: need(t), members: members, addresses: map[*member][]netip.Addr{},
		kind: "apiVersion: k8s.cni.cncf.io/v1beta1\nkind: MultiNetworkPolicy\nmetadata:\n  annotations: {k8s.v1.cni.cncf.io/policy-for: " + network + "}",
	}
	for _, m := range members {
		for _, entry := range m.space.status(m.name) {
			if entry.Interface != "p0" {
				continue
			}
			for _, ip := range entry.IPs {
				tt.addresses[m] = append(tt.addresses[m], netip.MustParseAddr(ip))
			}
		}
		slices.SortFunc(tt.addresses[m], netip.Addr.Compare)
		if len(tt.addresses[m]) != 2 {
			t.Fatalf("%s has the addresses %v on p0, want one of each family", m, tt.addresses[m])
		}
	}
	return tt
}

// on returns the table for a subtest.
func (tt *truthTable) on(t *testing.T) *truthTable {
	copied := *tt
	copied.t = t
	return &copied
}

// maxFailures ends a table early: each failed case waits for its timeout.
const maxFailures = 3

// run checks each case by itself.
func (tt *truthTable) run(cases []policyCase) {
	failures := 0
	for _, c := range cases {
		passed := tt.t.Run(c.name, func(t *testing.T) {
			tt := tt.on(t)
			tt.apply("case", c.policies)
			tt.await(c.permits)
		})
		if !passed {
			failures++
		}
		if failures == maxFailures {
			tt.t.Fatal("too many cases failed; the others are not run")
		}
	}
}

// apply applies policies until the test ends, named by prefix and position.
func (tt *truthTable) apply(prefix string, policies []tablePolicy) {
	tt.t.Helper()
	if len(policies) == 0 {
		return
	}
	manifest := tt.manifest(prefix, policies)
	_, err := tt.c.Kubectl(tt.t.Context(), manifest, "apply", "-f", "-")
	tt.must(err)
	tt.t.Cleanup(func() {
		_, err := tt.c.Kubectl(context.Background(), manifest, "delete", "--ignore-not-found", "-f", "-")
		tt.must(err)
	})
}

func (tt *truthTable) must(err error) {
	tt.t.Helper()
	if err != nil {
		tt.t.Fatal(err)
	}
}

func (tt *truthTable) manifest(prefix string, policies []tablePolicy) []byte {
	var pairs []string
	for m, addresses := range tt.addresses {
		pairs = append(pairs, fmt.Sprintf("IPV4(%s)", m), addresses[0].String()+"/32", fmt.Sprintf("IPV6(%s)", m),
			addresses[1].String()+"/128")
	}
	addresses := strings.NewReplacer(pairs...)
	var b strings.Builder
	for i, p := range policies {
		fmt.Fprintf(&b, "---\n%s\n  name: %s-%d\n  namespace: e2e-policy-%s\nspec: %s\n", tt.kind, prefix, i, p.ns,
			addresses.Replace(p.spec))
	}
	return []byte(b.String())
}

// await waits until all contacts are as expected. Its timeout begins again with each progress.
func (tt *truthTable) await(permits func(contact) bool) {
	tt.t.Helper()
	var wrong []string
	err := cluster.CountDown(tt.t.Context(), "all contacts are as the policies permit",
		func(ctx context.Context) (int, error) {
			began := time.Now()
			now, err := tt.compare(ctx, permits)
			if err == nil { // not cut off by the end of ctx
				wrong = now
			}
			if len(now) > 0 {
				tt.t.Logf("%d contacts are not yet as expected in %s, such as %s", len(now),
					time.Since(began).Round(time.Millisecond), now[0])
			}
			return len(now), err
		})
	if err != nil {
		tt.t.Fatalf("%v:\n%s", err, strings.Join(wrong[:min(len(wrong), 20)], "\n"))
	}
}

// compare tries all contacts and returns a line for each that is not as expected.
func (tt *truthTable) compare(ctx context.Context, permits func(contact) bool) (wrong []string, err error) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for _, from := range tt.members {
		group.Go(func() error {
			lines, err := tt.compareFrom(ctx, from, permits)
			mu.Lock()
			defer mu.Unlock()
			wrong = append(wrong, lines...)
			return err
		})
	}
	err = group.Wait()
	slices.Sort(wrong)
	return wrong, err
}

// compareFrom is compare for the contacts from one pod. It tries those once more that are silent and must be open:
// hundreds of contacts at once may take a busy machine longer than their timeout.
func (tt *truthTable) compareFrom(
	ctx context.Context, from *member, permits func(contact) bool,
) (wrong []string, err error) {
	isOpen := func(c contact) bool { return c.from == c.to || permits(c) }
	all := tt.from(from)
	results, err := tt.try(ctx, from, all)
	if err != nil {
		return nil, err
	}
	late := slices.DeleteFunc(slices.Clone(all), func(c contact) bool { return !isOpen(c) || results[c] != silent })
	if len(late) > 0 {
		again, err := tt.try(ctx, from, late)
		if err != nil {
			return nil, err
		}
		maps.Copy(results, again)
	}
	for _, c := range all {
		want := silent
		if isOpen(c) {
			want = answered
		}
		if results[c] != want {
			wrong = append(wrong, fmt.Sprintf("%s: %s, want %s", c, results[c], want))
		}
	}
	return wrong, nil
}

// try returns the results of contacts from a pod.
func (tt *truthTable) try(ctx context.Context, from *member, contacts []contact) (map[contact]string, error) {
	out, err := tt.c.Exec(ctx, from.pod, slices.Concat([]string{"knock"}, tt.targets(contacts))...)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(contacts) {
		return nil, fmt.Errorf("%d results of %d contacts from %s", len(lines), len(contacts), from)
	}
	results := make(map[contact]string)
	for i, c := range contacts {
		_, results[c], _ = strings.Cut(lines[i], " ")
	}
	return results, nil
}

// from lists the contacts of a pod.
func (tt *truthTable) from(from *member) (all []contact) {
	for _, to := range tt.members {
		for _, protocol := range tableProtocols {
			for _, port := range tablePorts {
				for _, ipv6 := range []bool{false, true} {
					c := contact{from: from, to: to, protocol: protocol, port: port, ipv6: ipv6}
					all = append(all, c)
					if c.service = len(tt.clusterIPs[to]) > 0; c.service {
						all = append(all, c)
					}
				}
			}
		}
	}
	return all
}

// targets returns the arguments of knock.
func (tt *truthTable) targets(contacts []contact) (all []string) {
	for _, c := range contacts {
		addresses := tt.addresses[c.to]
		if c.service {
			addresses = tt.clusterIPs[c.to]
		}
		address := addresses[0]
		if c.ipv6 {
			address = addresses[1]
		}
		all = append(all, c.protocol+"/"+netip.AddrPortFrom(address, c.port).String())
	}
	return all
}
