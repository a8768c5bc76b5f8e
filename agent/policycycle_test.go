package agent

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// policyCycles is the number of times that a pod gets its first policy and loses its last one.
const policyCycles = 25

const networkPolicies = "networkpolicies.networking.k8s.io"

// policyLab is a node with pods, their addresses, and policies that are enforced.
type policyLab struct {
	*lab
	server  *k8stest.Server
	pods    map[string]*node.Pod
	address map[string]netip.Addr
}

func newPolicyLab(t *testing.T, pods ...string) *policyLab {
	t.Helper()
	server := k8stest.New(t)
	l := &policyLab{lab: clusterLabWith(t, server, node.Options{EnforcePolicies: true}), server: server,
		pods: map[string]*node.Pod{}, address: map[string]netip.Addr{}}
	l.eventually("policies are enforced", l.says("policies ok enforced", "status"))
	for _, name := range pods {
		l.add(name)
	}
	return l
}

func (l *policyLab) add(name string) {
	l.Helper()
	p := l.pod(name)
	l.put(l.server, p, nil)
	l.pods[name], l.address[name] = p, l.addresses(l.cni("ADD", p, nil))[0]
}

// says returns whether the output of weftctl contains words.
func (l *lab) says(words string, args ...string) func() bool {
	return func() bool {
		text, err := l.Weftctl(l.Context(), args...)
		return err == nil && strings.Contains(strings.Join(strings.Fields(text), " "), words)
	}
}

// permitOnly isolates all pods of the namespace, except from some.
func (l *policyLab) permitOnly(from ...string) {
	var addresses []netip.Addr
	for _, name := range from {
		addresses = append(addresses, l.address[name])
	}
	l.server.Put(networkPolicies, ingressFrom("cycle", addresses...))
}

// answers reports whether a pod answers one ping of another pod.
func (l *policyLab) answers(from, to string) bool {
	return l.answersWithin(from, to, 300*time.Millisecond)
}

func (l *policyLab) answersWithin(from, to string, limit time.Duration) bool {
	p, err := ping.Open(l.pods[from].Netns, l.address[to])
	if err != nil {
		l.Error(err)
		return false
	}
	ctx, cancel := context.WithTimeout(l.Context(), limit)
	defer cancel()
	_, err = p.Once(ctx, l.address[to], 1)
	if closing := p.Close(); closing != nil {
		l.Error(closing)
	}
	return err == nil
}

// A pod gets its first policy and loses its last one, again and again: connections that are permitted throughout lose
// no packet, others pass exactly while no policy denies them, and nothing waits afterwards.
func TestPoliciesComeAndGoUnderTraffic(t *testing.T) {
	l := newPolicyLab(t, "web", "client", "stranger")
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, pair := range [][2]string{{"client", "web"}, {"web", "client"}} {
		from := pair[0]
		to := pair[1]
		p, err := ping.Open(l.pods[from].Netns, l.address[to])
		must.Succeed(t, err)
		running.Go(func() {
			loss, err := p.Stream(ctx, l.address[to], 2*time.Millisecond)
			if err != nil || loss.Sent != loss.Answered || loss.Sent == 0 {
				t.Errorf("pings from %s to %s: %v %v", from, to, loss, err)
			}
			_ = p.Close()
		})
	}
	for i := range policyCycles {
		l.eventually(fmt.Sprintf("round %d: a pod without policies answers", i), func() bool {
			return l.answers("stranger", "web")
		})
		l.permitOnly("client", "web")
		l.eventually("the policy isolates the pod", l.says("NetworkPolicy lab/cycle ingress", "policy", "lab/web"))
		l.eventually(fmt.Sprintf("round %d: the dataplane denies what a policy denies", i), func() bool {
			return !l.answers("stranger", "web")
		})
		l.server.Remove(networkPolicies, "lab", "cycle")
		l.eventually("the pod is open again", l.says("no policy restricts the pod", "policy", "lab/web"))
	}
	l.eventually("a pod is connected after its last policy was deleted", func() bool {
		return l.answers("stranger", "web")
	})
	stop()
	running.Wait()
	l.isSettled()
}

// isSettled fails if an object waits, or an event took an object down.
func (l *policyLab) isSettled() {
	l.Helper()
	if !l.says("repaired ok", "status")() {
		text, err := l.Weftctl(l.Context(), "status")
		l.Errorf("objects are not as desired: %v\n%s", err, text)
	}
	if text, err := l.Weftctl(l.Context(), "events"); err != nil || strings.Contains(text, "took down") {
		l.Errorf("an event took down objects: %v\n%s", err, text)
	}
	if text, err := l.Weftctl(l.Context(), "audit"); err != nil {
		l.Errorf("the audit finds differences: %v\n%s", err, text)
	}
}

// A pod that is added with or without a policy stays connected when its policy ends. A replay of the dataplane connects
// it only behind the ACL of a policy that came later.
func TestConnectionOfAPodFollowsItsPolicies(t *testing.T) {
	for name, isPoliced := range map[string]bool{"added with a policy": true, "added without a policy": false} {
		t.Run(name, func(t *testing.T) {
			l := newPolicyLab(t, "client")
			isolated := l.says("eth0 ingress deny 0.0.0.0/0 any - NetworkPolicy lab/cycle ingress", "policy", "lab/web")
			if isPoliced {
				l.permitOnly()
				l.eventually("the policy is known", l.says("NetworkPolicy lab/cycle ingress", "policy", "lab/client"))
			}
			l.add("web")
			if isPoliced {
				l.eventually("the pod is isolated", isolated)
				l.server.Remove(networkPolicies, "lab", "cycle")
				l.eventually("the pod is open", l.says("no policy restricts the pod", "policy", "lab/web"))
			}
			l.eventually("a pod that no policy selects is connected", func() bool { return l.answers("client", "web") })
			l.permitOnly()
			l.eventually("the pod is isolated", isolated)
			if answered := l.answeredDuring("client", "web", l.replay); answered > 0 {
				t.Errorf("%d packets passed during a replay although a policy denies them", answered)
			}
			l.isSettled()
			l.server.Remove(networkPolicies, "lab", "cycle")
			l.eventually("the pod is open", func() bool { return l.answers("client", "web") })
			l.isSettled()
		})
	}
}

// answeredDuring returns the number of pings that were answered while f ran. Without a dataplane the links of pods are
// gone.
func (l *policyLab) answeredDuring(from, to string, f func()) (answered int) {
	l.Helper()
	ctx, stop := context.WithCancel(l.Context())
	var running sync.WaitGroup
	tried := 0
	running.Go(func() {
		for ; ctx.Err() == nil; tried++ {
			if l.answersWithin(from, to, 5*time.Millisecond) {
				answered++
			}
		}
	})
	f()
	stop()
	running.Wait()
	if tried == 0 {
		l.Error("no pings were sent")
	}
	return answered
}

// replay kills the dataplane and waits until all is applied again.
func (l *policyLab) replay() {
	l.Helper()
	must.Succeed(l.T, l.KillDataplane())
	l.eventually("the dataplane is replayed", func() bool {
		return l.says("repaired ok", "status")() && l.says("dataplane ok", "status")()
	})
}

// While the API server is away pods come and go: a new pod is closed until its labels are known, and open afterwards,
// with and without policies in the cluster. Connections that are permitted throughout lose no packet.
func TestPodsComeAndGoWhileTheAPIServerIsAway(t *testing.T) {
	for name, isPoliced := range map[string]bool{"with a policy": true, "without policies": false} {
		t.Run(name, func(t *testing.T) {
			l := newPolicyLab(t, "web", "client")
			if isPoliced {
				l.permitOnly("client", "web")
				l.eventually("the policy isolates the pod",
					l.says("NetworkPolicy lab/cycle ingress", "policy", "lab/web"))
			}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			p, err := ping.Open(l.pods["client"].Netns, l.address["web"])
			must.Succeed(t, err)
			running.Go(func() {
				loss, err := p.Stream(ctx, l.address["web"], 2*time.Millisecond)
				if err != nil || loss.Sent != loss.Answered || loss.Sent == 0 {
					t.Errorf("pings of a permitted connection: %v %v", loss, err)
				}
				_ = p.Close()
			})
			annotated := map[string]any{
				"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{}},
			}
			l.server.Disconnect()
			for i := range 3 {
				late := fmt.Sprintf("late%d", i)
				l.pods[late] = l.pod(late)
				l.address[late] = l.addresses(l.cni("ADD", l.pods[late], annotated))[0]
				if l.answers("client", late) {
					t.Errorf("%s answers although its labels are not known", late)
				}
			}
			l.cni("DEL", l.pods["late0"], nil)
			l.server.Reconnect()
			l.put(l.server, l.pods["late1"], nil)
			l.put(l.server, l.pods["late2"], nil)
			for _, late := range []string{"late1", "late2"} {
				l.eventually(late+" is open", func() bool { return l.answers("client", late) })
			}
			stop()
			running.Wait()
			l.isSettled()
		})
	}
}
