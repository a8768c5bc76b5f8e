package agent

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// shownOwner is an owner in the replies of the agent.
type shownOwner struct {
	Pod       struct{ Namespace, Name string }
	Interface string
}

func (o shownOwner) String() string { return o.Pod.Namespace + "/" + o.Pod.Name + ":" + o.Interface }

// ownersLab is a node of a cluster with the networks blue (L2) and red (L3).
func ownersLab(t *testing.T) (*lab, *k8stest.Server) {
	t.Helper()
	server := k8stest.New(t)
	server.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "red"},
		Spec:       v1.CustomNetworkSpec{Type: v1.L3, CIDRs: []v1.CIDR{"10.6.0.0/24"}},
	})
	l := clusterLabWith(t, server, node.Options{Memifs: 4, CoolDown: time.Hour})
	l.eventually("the agent has the cluster's objects", func() bool {
		return len(l.logged("the cluster is known")) > 0
	})
	return l, server
}

// objects returns the owners of all objects, by key.
func (l *lab) objects(args ...string) map[string][]shownOwner {
	l.Helper()
	var reply struct {
		Objects []struct {
			Ref    string
			Owners []shownOwner
		}
	}
	l.ctl(&reply, append([]string{"objects"}, args...)...)
	all := make(map[string][]shownOwner)
	for _, o := range reply.Objects {
		all[o.Ref] = o.Owners
	}
	return all
}

// output runs weftctl, and returns its text with single blanks.
func (l *lab) output(args ...string) string {
	l.Helper()
	text, err := l.Weftctl(l.Context(), args...)
	if err != nil {
		l.Fatal(err)
	}
	return strings.Join(strings.Fields(text), " ")
}

// Each object that a pod has is shown with the pod and the interface: in the list of objects, by why, in transactions,
// and as drift; after the DEL too.
func TestEachObjectIsShownWithItsPodAndInterface(t *testing.T) {
	l, server := ownersLab(t)
	before := l.objects()
	b := l.pod("b")
	l.put(server, b, nil)
	l.cni("ADD", b, nil)
	alone := l.objects()
	a, _ := l.podWithMemif(server, "a")
	l.cni("ADD", a, requests("blue0/tap/blue, red0/veth/red, m0/memif", ""))

	with := l.objects()
	selected := l.objects("--pod", "lab/a")
	seen := map[string]bool{}
	for ref, owners := range with {
		_, isNodes := before[ref]
		_, isOfB := alone[ref]
		want := "lab/a:"
		switch {
		case isNodes:
			continue
		case isOfB:
			want = "lab/b:eth0"
		}
		if len(owners) != 1 || !strings.HasPrefix(owners[0].String(), want) {
			t.Errorf("%s belongs to %v, not to %s", ref, owners, want)
			continue
		}
		if _, is := selected[ref]; is == isOfB {
			t.Errorf("weftctl objects --pod lab/a lists %s: %t", ref, is)
		}
		seen[owners[0].String()] = true
		if text := l.output("why", ref); !strings.HasPrefix(text, ref+" of "+owners[0].String()+" is in sync") {
			t.Errorf("why %s: %s", ref, text)
		}
	}
	for _, want := range []string{"lab/a:eth0", "lab/a:blue0", "lab/a:red0", "lab/a:m0", "lab/b:eth0"} {
		if !seen[want] {
			t.Errorf("no object belongs to %s", want)
		}
	}
	l.checkShownDrift(a)
	l.cni("DEL", a, nil)
	l.checkShownAfterDEL(with)
}

// checkShownDrift checks that the drift of an extra interface names the pod and the interface.
func (l *lab) checkShownDrift(a *node.Pod) {
	l.Helper()
	netnstest.Do(l.T, a.Netns, func() {
		link, err := netlink.LinkByName("red0")
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			l.Error(err)
		}
	})
	const words = " of lab/a:red0 was missing"
	l.await(func() bool { return strings.Contains(l.output("events", "--last", "0"), "drift repaired: linux.veth/") },
		"an event about drift")
	for _, shown := range [][]string{
		{"events", "--last", "0"}, {"events", "--pod", "lab/a"}, {"pod", "lab/a"}, {"transactions"},
	} {
		if text := l.output(shown...); !strings.Contains(text, words) {
			l.Errorf("weftctl %s does not show %q:\n%s", strings.Join(shown, " "), words, text)
		}
	}
	if text := l.output("events", "--pod", "lab/b"); strings.Contains(text, "drift repaired") {
		l.Errorf("the drift is an event of another pod, too:\n%s", text)
	}
}

// checkShownAfterDEL checks the names of a deleted pod.
func (l *lab) checkShownAfterDEL(with map[string][]shownOwner) {
	l.Helper()
	var reply struct {
		Transactions []struct {
			Label      string
			Operations []struct {
				Ref    string
				Owners []shownOwner
			}
		}
	}
	l.ctl(&reply, "transactions", "1")
	if n := len(reply.Transactions[0].Operations); n < 30 {
		l.Errorf("%q has %d operations", reply.Transactions[0].Label, n)
	}
	for _, op := range reply.Transactions[0].Operations {
		if want := with[op.Ref]; len(want) != 1 || !slices.Equal(op.Owners, want) {
			l.Errorf("the DEL's operation on %s is of %v, not of %v", op.Ref, op.Owners, want)
		}
	}
	cooling := l.output("addresses")
	for _, name := range []string{"lab/a:eth0", "lab/a:blue0", "lab/a:red0", "lab/a:m0"} {
		if !strings.Contains(cooling, name) {
			l.Errorf("no cooling address has the name %s:\n%s", name, cooling)
		}
	}
}

// The Event of Kubernetes begins with the interface that failed, and not with the main one.
func TestEventOfAFailedADDBeginsWithTheInterfaceThatFailed(t *testing.T) {
	l, server := ownersLab(t)
	taken := l.pod("taken")
	absent := l.pod("absent")
	l.put(server, taken, map[string]string{customInterfaces: "blue0/tap/blue, red0/veth/red"})
	l.put(server, absent, map[string]string{
		customInterfaces:                "red0/veth/red",
		"contivpp.io/custom-if-options": `{"red0":{"ips":["10.99.0.1"]}}`,
	})
	netnstest.Do(t, taken.Netns, func() {
		occupyRoute(t, &net.IPNet{IP: net.IPv4(10, 6, 0, 0), Mask: net.CIDRMask(24, 32)})
	})
	l.fails(taken)
	l.fails(absent)
	messages := map[string]string{}
	l.eventually("both pods have their Event", func() bool {
		for _, e := range eventsOf(t, server) {
			messages[e.InvolvedObject.Name] = e.Message
		}
		return len(messages) == 2
	})
	for name, want := range map[string]string{
		taken.Name:  "interface red0 of network red: making a route in the pod failed: ",
		absent.Name: "interface red0: address 10.99.0.1 ",
	} {
		if !strings.HasPrefix(messages[name], want) {
			t.Errorf("the Event of %s begins %q, not %q", name, messages[name], want)
		}
	}
}
