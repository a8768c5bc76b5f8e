package agent

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

var policyFigures = flag.Bool("policy-figures", false,
	"measure the delay of policies, and ADDs with many of them; make bench ONLY=policy sets it")

const (
	figureChanges  = 100
	figurePolicies = 1000
	figureAdds     = 25 // in a block
	figureBlocks   = 4
	// probeInterval is the resolution of the time of enforcement.
	probeInterval = 5 * time.Millisecond
)

func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

// TestPolicyFigures prints the time from a change in the API server to its effect on packets, and what policies cost an
// ADD.
func TestPolicyFigures(t *testing.T) {
	if !*policyFigures {
		t.Skip("a measurement of minutes: make bench ONLY=policy")
	}
	for _, pods := range []int{100, 1000} {
		t.Run(fmt.Sprintf("%d pods", pods), func(t *testing.T) { measureEnforcement(t, pods) })
	}
	t.Run("ADD", measureAdds)
}

// measureEnforcement changes the peers of a policy that has many, and pings until the answers begin or end.
func measureEnforcement(t *testing.T, pods int) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{EnforcePolicies: true})
	for i := range pods {
		server.Put("pods", remotePod(i, "peer"))
	}
	client := l.pod("client")
	target := l.pod("target")
	l.put(server, client, nil)
	l.put(server, target, nil)
	from := l.addresses(l.cni("ADD", client, nil))[0]
	to := l.addresses(l.cni("ADD", target, nil))[0]
	const resource = "networkpolicies.networking.k8s.io"
	peers := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "peers"},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{"Ingress"},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
				PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "peer"}},
			}}}},
		},
	}
	server.Put(resource, peers)
	p, err := ping.Open(client.Netns, to)
	must.Succeed(t, err)
	defer p.Close()
	sequence := 0
	answers := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), probeInterval)
		defer cancel()
		sequence++
		_, err := p.Once(ctx, to, sequence)
		return err == nil
	}
	silent := func() bool { // not because of a lost packet
		for range 3 {
			if answers() {
				return false
			}
		}
		return true
	}
	l.eventually("the client is denied", silent)
	var begins, ends []time.Duration
	for range figureChanges {
		began := time.Now()
		server.Put(resource, ingressFrom("client", from))
		l.eventually("the client is permitted", answers)
		begins = append(begins, time.Since(began))
		began = time.Now()
		last := began
		server.Remove(resource, "lab", "client")
		l.eventually("the client is denied", func() bool {
			if answers() {
				last = time.Now()
				return false
			}
			return silent()
		})
		ends = append(ends, last.Sub(began))
	}
	fmt.Printf(
		"policy: from the API server to packets with %d pods as peers: permitted after p50 %s, p99 %s; denied after p50 %s, p99 %s\n",
		pods,
		rounded(quantile(begins, 0.5)), rounded(quantile(begins, 0.99)), rounded(quantile(ends, 0.5)),
		rounded(quantile(ends, 0.99)))
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// remotePod is a pod of another node.
func remotePod(i int, app string) *corev1.Pod {
	address := netip.AddrFrom4([4]byte{10, 99, byte(i / 250), byte(1 + i%250)}).String()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "lab",
			Name:      fmt.Sprintf("remote-%d", i),
			Labels:    map[string]string{"app": app},
		},
		Spec:   corev1.PodSpec{NodeName: "other"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}},
	}
}

// measureAdds compares ADDs without policies with those among many policies, of which some select the pod, in
// alternating blocks.
func measureAdds(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{EnforcePolicies: true})
	const resource = "networkpolicies.networking.k8s.io"
	for i := range figurePolicies {
		server.Put("pods", remotePod(i, fmt.Sprintf("app-%d", i)))
	}
	var without, with []time.Duration
	var memory [2]int // of the last block without policies, and with
	for block := range 2 * figureBlocks {
		adds := &without
		if block%2 == 1 {
			adds = &with
			for i := range figurePolicies {
				server.Put(resource, policyAmongMany(i))
			}
			l.settled(server, true)
		}
		for i := range figureAdds + 1 {
			p := l.pod(fmt.Sprintf("p%d-%d", block, i))
			l.put(server, p, nil)
			began := time.Now()
			l.cni("ADD", p, nil)
			if took := time.Since(began); i > 0 { // the first one warms up
				*adds = append(*adds, took)
			}
			l.cni("DEL", p, nil)
		}
		memory[block%2] = l.residentMB()
		if block%2 == 1 {
			for i := range figurePolicies {
				server.Remove(resource, "lab", policyAmongMany(i).Name)
			}
			l.settled(server, false)
		}
	}
	ours := quantile(with, 0.5)
	theirs := quantile(without, 0.5)
	fmt.Printf("policy: ADD p50 %s with %d policies, %s without: %.2f (aim: at most 1.2)\n", rounded(ours),
		figurePolicies, rounded(theirs), float64(ours)/float64(theirs))
	fmt.Printf(
		"policy: memory of the agent: %d MB with %d policies and %d pods of other nodes, %d MB with these pods and no policies\n",
		memory[1], figurePolicies, figurePolicies, memory[0])
}

// residentMB returns the resident memory of the agent.
func (l *lab) residentMB() (mb int) {
	l.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.AgentPID()))
	must.Succeed(l.T, err)
	for line := range strings.Lines(string(text)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			mb = kb / 1024
		}
	}
	return mb
}

// policyAmongMany selects the pods of one remote application, or, one of a hundred of them, all pods.
func policyAmongMany(i int) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: fmt.Sprintf("policy-%d", i)},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{"Ingress"},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
				PodSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"app": fmt.Sprintf("app-%d", (i+1)%figurePolicies)},
				},
			}}}},
		},
	}
	if i%100 > 0 {
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": fmt.Sprintf("app-%d", i)}
	}
	return p
}

// settled waits until the agent has seen all changes of policies: a pod that is added afterwards has rules, or none.
func (l *lab) settled(server *k8stest.Server, restricted bool) {
	l.Helper()
	p := l.pod(fmt.Sprintf("witness-%d", time.Now().UnixNano()))
	l.put(server, p, nil)
	l.cni("ADD", p, nil)
	l.eventually("the agent has seen all policies", func() bool {
		text, err := l.Weftctl(l.Context(), "policy", "lab/"+p.Name)
		last := strings.Contains(text, fmt.Sprintf("lab/policy-%d ", figurePolicies-100))
		return err == nil && last == restricted && restricted != strings.Contains(text, "no policy restricts")
	})
	l.cni("DEL", p, nil)
}
