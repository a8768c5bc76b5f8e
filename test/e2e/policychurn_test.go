package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

const (
	// policyRounds is how often a policy is made and deleted, unless the environment says otherwise.
	policyRounds = 20
	roundsKey    = "WEFT_E2E_POLICY_ROUNDS"
	// settled is the number of contacts that are answered after the first one. Contacts without answer take long, and
	// are checked later.
	settled = 3
	// withoutAPI is how long the API server is away, and sandboxInterval the time between two sandboxes that end
	// meanwhile.
	withoutAPI      = 2 * time.Minute
	sandboxInterval = 10 * time.Second
)

// prober is a container that contacts another pod again and again.
type prober struct {
	pod, container string
	lines          *bufio.Scanner
	changed        int64 // when the answer had changed for all contacts that began later, in the milliseconds of Unix
}

func (p *prober) String() string { return p.pod + " " + p.container }

// contacted is a contact of a prober, in the milliseconds of Unix.
type contacted struct {
	began, ended int64
	answer       string
}

const (
	answered = "open"
	silent   = "silent"
)

func parseContacted(line string) (contacted, error) {
	began, rest, _ := strings.Cut(line, " ")
	ended, answer, _ := strings.Cut(rest, " ")
	result := contacted{answer: strings.TrimSpace(answer)}
	if _, err := fmt.Sscan(began+" "+ended, &result.began, &result.ended); err != nil {
		return contacted{}, fmt.Errorf("%q: %w", line, err)
	}
	if result.answer == "" {
		return contacted{}, fmt.Errorf("%q has no result", line)
	}
	return result, nil
}

// probing adds containers to a pod that contact the addresses of a pod, named by its name and the family.
func probing(spec *corev1.PodSpec, to string, addresses []netip.Addr, command func(netip.Addr) []string) {
	for _, address := range addresses {
		program := command(address)
		spec.Containers = append(spec.Containers, corev1.Container{
			Name:  fmt.Sprintf("%s-%s-%d", program[0], to, address.BitLen()),
			Image: cluster.PodImage, ImagePullPolicy: corev1.PullNever, Args: program,
		})
	}
}

// knocking contacts the UDP echo of a pod, each time from another port.
func knocking(timeout time.Duration) func(netip.Addr) []string {
	return func(address netip.Addr) []string {
		return []string{"knocks", "udp/" + netip.AddrPortFrom(address, 7).String(), "100ms", timeout.String()}
	}
}

// pinging ends with an error at the first echo request without reply.
func pinging(address netip.Addr) []string { return []string{"ping", address.String(), "0", "20ms"} }

const (
	// patience is the timeout of contacts that change, and long that of those that always have to be answered.
	patience = 2 * time.Second
	long     = 5 * time.Second
	// delay is how late a busy machine may send the packet of a contact that has begun.
	delay = 500 * time.Millisecond
)

// cast is the pods of these tests: a server that a policy selects, pods on both nodes that the policy permits, and pods
// that it does not.
type cast struct {
	*space
	permitted, denied []*prober
}

func newCast(t *testing.T) *cast {
	t.Helper()
	s := newSpace(t)
	c := &cast{space: s}
	bystander := s.run("bystander", "n1")
	s.createWith("server", "n2", "", func(spec *corev1.PodSpec) {
		probing(spec, "bystander", s.addresses(bystander), knocking(patience))
	})
	server := s.ready("server")
	for name, node := range map[string]string{"far": "n1", "near": "n2"} {
		s.createWith("client-"+name, node, "", func(spec *corev1.PodSpec) {
			probing(spec, "server", s.addresses(server), knocking(long))
			probing(spec, "server", s.addresses(server), pinging)
			probing(spec, "bystander", s.addresses(bystander), pinging)
		})
		s.createWith("stranger-"+name, node, "", func(spec *corev1.PodSpec) {
			probing(spec, "server", s.addresses(server), knocking(patience))
		})
	}
	for _, name := range []string{"server", "stranger-far", "stranger-near"} {
		c.denied = append(c.denied, probersOf(s.ready(name))...)
	}
	for _, name := range []string{"client-far", "client-near"} {
		c.permitted = append(c.permitted, probersOf(s.ready(name))...)
	}
	return c
}

func probersOf(pod *corev1.Pod) (all []*prober) {
	for _, container := range pod.Spec.Containers {
		if strings.HasPrefix(container.Name, "knocks-") {
			all = append(all, &prober{pod: pod.Name, container: container.Name})
		}
	}
	return all
}

// follow reads the contacts of a prober from the next one on.
func (c *cast) follow(p *prober) {
	c.t.Helper()
	none := int64(0)
	stream, err := c.c.Client.CoreV1().Pods(c.name).
		GetLogs(p.pod, &corev1.PodLogOptions{
			Container: p.container,
			Follow:    true,
			TailLines: &none,
		}).Stream(c.t.Context())
	c.must(err)
	c.t.Cleanup(func() { _ = stream.Close() })
	p.lines = bufio.NewScanner(stream)
}

// next returns the next contact of a prober that is followed.
func (c *cast) next(p *prober) contacted {
	c.t.Helper()
	if !p.lines.Scan() {
		c.t.Fatalf("the contacts of %s end: %v", p, p.lines.Err())
	}
	result, err := parseContacted(p.lines.Text())
	c.must(err)
	return result
}

// changes reads contacts until the answer changes. No contact that ended before the time of the change may have the new
// answer already, and none that begins after it was seen the former one. The packet of a contact may be sent later than
// that of the next one.
func (c *cast) changes(p *prober, since time.Time, former, now string) {
	c.t.Helper()
	seen := contacted{}
	for count := 0; seen.ended == 0 || now == answered && count < settled; {
		one := c.next(p)
		switch {
		case one.answer == now &&
			one.began < p.changed: // in the order of its beginning, but it was sent before the former change
		case one.answer == now && one.ended < since.UnixMilli():
			c.t.Errorf("%s: %s %s before the change", p, one.answer, since.Sub(time.UnixMilli(one.began)))
		case one.answer == now && seen.ended == 0:
			seen = one
		case one.answer == now:
			count++
		case one.answer != former || seen.ended != 0 && one.began > seen.ended:
			c.t.Errorf("%s: %s %s after the change to %s", p, one.answer, time.UnixMilli(one.began).Sub(since), now)
		}
	}
	p.changed = seen.began + delay.Milliseconds()
}

// policyOfServer selects the server and the comers, and permits only the clients.
func policyOfServer() *networkingv1.NetworkPolicy {
	clients := []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"client-far", "client-near"}},
		}}},
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "server"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"server", "comer-n1", "comer-n2"}},
			}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: clients}},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{To: clients}},
		},
	}
}

// A policy is made and deleted again and again: it never disturbs what it permits, or pods that it does not select, and
// what it denies passes exactly as long as it does not exist.
func TestPolicyComesAndGoes(t *testing.T) {
	needWeft(t)
	c := newCast(t)
	for _, p := range c.denied {
		c.follow(p)
	}
	policies := c.c.Client.NetworkingV1().NetworkPolicies(c.name)
	rounds := policyRounds
	if text := os.Getenv(roundsKey); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		c.must(err)
	}
	for range rounds {
		made := time.Now()
		_, err := policies.Create(t.Context(), policyOfServer(), metav1.CreateOptions{})
		c.must(err)
		for _, p := range c.denied {
			c.changes(p, made, answered, silent)
		}
		deleted := time.Now()
		c.must(policies.Delete(t.Context(), "server", metav1.DeleteOptions{}))
		for _, p := range c.denied {
			c.changes(p, deleted, silent, answered)
		}
		if t.Failed() {
			break
		}
	}
	c.permittedLostNothing()
}

// permittedLostNothing checks the whole logs of what is always permitted.
func (c *cast) permittedLostNothing() {
	c.t.Helper()
	for _, p := range c.permitted {
		c.all(p, corev1.PodLogOptions{}, answered)
	}
	for _, name := range []string{"client-far", "client-near"} {
		c.unharmed(c.t, c.ready(name)) // a program that has lost a reply ended, and was restarted
	}
}

// all checks that all contacts in a part of a container's log have an answer.
func (c *cast) all(p *prober, part corev1.PodLogOptions, answer string) {
	c.t.Helper()
	part.Container = p.container
	log, err := c.c.Client.CoreV1().Pods(c.name).GetLogs(p.pod, &part).DoRaw(c.t.Context())
	c.must(err)
	if part.Previous && bytes.HasPrefix(log, []byte("unable to retrieve container logs")) {
		c.t.Logf("%s: kubelet has removed the log of the former program", p)
		return
	}
	count := 0
	for line := range strings.Lines(string(log)) {
		one, err := parseContacted(line)
		c.must(err)
		count++
		if one.answer != answer {
			c.t.Errorf("%s, contact %d at %s: %s, want %s", p, count, time.UnixMilli(one.began), one.answer, answer)
		}
	}
	if count == 0 {
		c.t.Errorf("%s has contacted nothing", p)
	}
	c.t.Logf("%s: %d contacts are %s", p, count, answer)
}

// The API server is away for two minutes, while sandboxes of policed pods end and kubelet makes new ones: no permitted
// connection of other pods loses a packet, and nothing that is denied passes, also by the first packets of a new
// sandbox.
func TestPoliciesHoldWhileTheAPIServerIsAway(t *testing.T) {
	needWeft(t)
	c := newCast(t)
	ctx := t.Context()
	_, err := c.c.Client.NetworkingV1().NetworkPolicies(c.name).Create(ctx, policyOfServer(), metav1.CreateOptions{})
	c.must(err)
	for _, p := range c.denied {
		c.follow(p)
		for answer := answered; answer != silent; {
			answer = c.next(p).answer
		}
	}
	bystander := c.ready("bystander")
	var comers []*prober
	for _, node := range c.c.Nodes {
		name := "comer-" + node.Name
		c.createWith(name, node.Name, "", func(spec *corev1.PodSpec) {
			probing(spec, "bystander", c.addresses(bystander), knocking(patience))
		})
		comers = append(comers, probersOf(c.ready(name))...)
	}
	since := time.Now()
	c.must(c.c.Control.APIServer.Kill())
	ended := 0
	for round := 0; time.Since(since) < withoutAPI; round++ {
		node := c.c.Nodes[round%len(c.c.Nodes)].Name
		c.renewSandbox(ctx, "comer-"+node, node)
		ended++
		next := time.NewTimer(sandboxInterval)
		<-next.C
	}
	t.Logf("%d sandboxes ended during %s without the API server", ended, time.Since(since).Round(time.Second))
	c.must(c.c.Control.APIServer.Start())
	c.must(c.c.Control.AwaitAPI(ctx))
	for _, n := range c.c.Nodes {
		c.must(n.AwaitReady(ctx))
	}
	c.must(cluster.Eventually(ctx, "kubelet knows its pods again", func(ctx context.Context) error {
		_, err := c.c.Exec(ctx, bystander, "links")
		return err
	}))
	c.permittedLostNothing()
	for _, p := range comers {
		c.ready(p.pod)
		c.all(p, corev1.PodLogOptions{}, silent)
		c.all(p, corev1.PodLogOptions{Previous: true}, silent)
	}
	away := metav1.NewTime(since)
	for _, p := range c.denied {
		c.all(p, corev1.PodLogOptions{SinceTime: &away}, silent)
	}
	c.deleteAll()
	c.mustLeaveNothing()
}

// renewSandbox kills the sandbox of a pod and waits until its node has wired another one.
func (c *cast) renewSandbox(ctx context.Context, pod, node string) {
	c.t.Helper()
	before, err := c.sandboxOf(ctx, pod, node)
	c.must(err)
	c.killContainer(node, before)
	c.must(cluster.Eventually(ctx, pod+" has another sandbox", func(ctx context.Context) error {
		now, err := c.sandboxOf(ctx, pod, node)
		if err == nil && now == before {
			err = errors.New("it still has the former one")
		}
		return err
	}))
}

// sandboxOf returns the sandbox of a pod by the attachments of its node.
func (c *cast) sandboxOf(ctx context.Context, pod, node string) (string, error) {
	c.t.Helper()
	list, err := c.attachments(ctx, node)
	if err != nil {
		return "", err
	}
	one := of(list, pod)
	if one == nil {
		return "", fmt.Errorf("%s has no attachment on %s", pod, node)
	}
	return one.Attachment.ContainerID, nil
}
