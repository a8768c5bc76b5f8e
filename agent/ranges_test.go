package agent

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// joinsAgain replaces the Node of a lab by one with other ranges, as if it had been deleted and registered again.
func joinsAgain(server *k8stest.Server, uid types.UID, ranges ...string) {
	server.Remove("nodes", "", node.Name)
	server.Remove("nodenetworks.contivpp.io", "", node.Name) // owned by the Node
	server.Put("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: uid},
		Spec:       corev1.NodeSpec{PodCIDRs: ranges},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.200.0.11"}},
		},
	})
}

// areIn reports whether each of the addresses is in one of the prefixes.
func areIn(addresses []netip.Addr, prefixes []v1.CIDR) bool {
	return !slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		return !slices.ContainsFunc(prefixes, func(p v1.CIDR) bool {
			return netip.MustParsePrefix(string(p)).Contains(a)
		})
	})
}

// announces reports whether the node announces exactly these prefixes.
func announces(server *k8stest.Server, prefixes []v1.CIDR) bool {
	output := slices.Clone(announced(server))
	want := slices.Clone(prefixes)
	slices.Sort(output)
	slices.Sort(want)
	return slices.Equal(output, want)
}

// singles are the prefixes of single addresses.
func singles(addresses []netip.Addr) (prefixes []v1.CIDR) {
	for _, a := range addresses {
		prefixes = append(prefixes, v1.CIDR(netaddr.Single(a).String()))
	}
	return prefixes
}

func TestPodsHaveAddressesOfTheNodesCurrentRanges(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{})
	before := l.snapshot()
	former := []v1.CIDR{"10.8.0.0/24", "fd00:8::/64"}
	ranges := []v1.CIDR{"10.8.7.0/24", "fd00:8:0:7::/64"}
	l.eventually("the ranges are announced", func() bool { return announces(server, former) })
	pods := []*node.Pod{l.pod("a"), l.pod("b"), l.pod("c")}
	var results [3][]byte
	add := func(i int) []netip.Addr { // with annotations of the runtime
		results[i] = l.cni("ADD", pods[i], map[string]any{
			"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{}},
		})
		return l.addresses(results[i])
	}
	old := add(0)

	// The Node is replaced while the agent cannot see it; the next agent cannot see it at first either.
	server.Disconnect()
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	joinsAgain(server, "another-uid", "10.8.7.0/24", "fd00:8:0:7::/64")
	l.start()
	if n := len(l.logged("using the last known one")); n != 1 {
		t.Errorf("the missing API server was logged %d times", n)
	}
	old = append(old, add(1)...)
	server.Reconnect()
	all := slices.Concat(ranges, singles(old))
	l.eventually("the new ranges are announced, and addresses of existing pods", func() bool {
		return announces(server, all)
	})
	reached := append(add(2), old...)
	if !areIn(old, former) || !areIn(reached[:2], ranges) {
		t.Errorf("first pods had %v, the last one has %v", old, reached[:2])
	}
	l.reachEachOther(pods, reached)

	l.restartAfter(func(string) error { return nil })
	if operations := l.resyncs(); len(operations) > 0 {
		t.Errorf("operations of the next agent's resync: %v", operations)
	}
	l.reachEachOther(pods, reached)
	l.eventually("the same is announced", func() bool { return announces(server, all) })
	for i, p := range pods {
		l.check(p, results[i])
	}

	l.cni("DEL", pods[0], nil)
	l.cni("DEL", pods[1], nil)
	l.eventually("the former ranges are not announced", func() bool {
		return announces(server, ranges) && !hasRoute(t, "10.8.0.0/24")
	})
	for _, line := range l.snapshot().Since(before) {
		if strings.HasPrefix(line, "+") && (strings.Contains(line, "10.8.0.") || strings.Contains(line, "fd00:8::")) {
			t.Error("left over of the former ranges:", line)
		}
	}
	l.cni("DEL", pods[2], nil)
}

// reachEachOther checks that each pod reaches each address.
func (l *lab) reachEachOther(pods []*node.Pod, addresses []netip.Addr) {
	l.Helper()
	for _, p := range pods {
		for _, a := range addresses {
			l.mustReach(p, a)
		}
	}
}

// isNotReady waits until the agent is not ready for the reason.
func (l *lab) isNotReady(reason string) {
	l.Helper()
	l.eventually("weftctl shows: "+reason, func() bool {
		_, err := l.Weftctl(l.Context(), "status")
		return err != nil && strings.Contains(err.Error(), reason)
	})
}

func TestNodeThatJoinsAgainServesPodsWhenOtherNodesKnowIt(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{})
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	server.Remove("nodes", "", node.Name)
	if err := l.BeginAgent(); err != nil {
		t.Fatal(err)
	}
	a := l.pod("a")
	l.put(server, a, nil)
	l.isNotReady("waits for the API server to say what the node is") // the known ranges may be another node's

	server.Fail(func(r *http.Request) int {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/nodenetworks") {
			return http.StatusInternalServerError
		}
		return 0
	})
	joinsAgain(server, "another-uid", "10.8.7.0/24", "fd00:8:0:7::/64")
	l.isNotReady("the other nodes are not told of this one yet")
	server.Fail(nil)
	if err := l.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	var own v1.NodeNetwork
	if !server.Object("nodenetworks.contivpp.io", "", node.Name, &own) || own.OwnerReferences[0].UID != "another-uid" {
		t.Errorf("pods are served, and the announcement is %+v", own)
	}
	l.cni("ADD", a, nil)
}
