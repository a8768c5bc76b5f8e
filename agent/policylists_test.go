package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// A Service with thousands of ports has rules in the list of each pod with a policy of its own. Together they neither
// exhaust the memory of the agent nor delay other pods, and the pods reach what they are allowed to.
func TestServiceOfAStrangerInManyListsIsBounded(t *testing.T) {
	server := k8stest.New(t)
	l := &policedLab{
		plainClusterLab(t, server, node.Options{EnforcePolicies: true}), server, make(map[string]*node.Pod),
		make(map[string]netip.Addr),
	}
	l.add("web", "web")
	l.add("secret", "secret")
	const pods = 60
	web := networkingv1.NetworkPolicyPeer{
		PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}
	for i := range pods {
		app := fmt.Sprint("c", i)
		l.policy(app, networkingv1.NetworkPolicySpec{
			PodSelector: podsOf(app), PolicyTypes: []networkingv1.PolicyType{"Egress"},
			Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{web}}},
		})
		l.add(app, app)
	}
	l.eventually("the policies are enforced", func() bool {
		return l.answers("c0", "web") && !l.answers("c59", "secret")
	})
	l.besideService(0)
	l.besideService(1)
	l.eventually("status says whose rules are too many",
		l.says("Service evil/s: policed pods cannot contact it", "status"))
	l.server.Remove("services", "evil", "s")
	l.eventually("status says that all is enforced", l.says("policies ok enforced", "status"))
	l.reaches("c59")
	if failed := l.logged("rules of policies are not set completely"); len(failed) > 0 {
		t.Errorf("the dataplane refused rules: %s", failed[0])
	}
	text, err := l.Weftctl(t.Context(), "events", "--failed")
	if err != nil || strings.Contains(text, "policies") {
		t.Errorf("changes of policies failed: %s, %v", text, err)
	}
	l.deleteAll()
}

// reaches fails the test unless a pod reaches web and nothing else. The dataplane may be busy with rules for a while.
func (l *policedLab) reaches(from string) {
	l.Helper()
	l.eventually(from+" reaches web", func() bool { return l.answers(from, "web") })
	if l.answers(from, "secret") {
		l.Errorf("%s reaches secret", from)
	}
}

// besideService adds pods beside a Service with 6,900 ports, of which each list permits all, at its cluster IP and
// other addresses.
func (l *policedLab) besideService(addresses int) {
	l.Helper()
	l.hostileService(6900, addresses, l.addresses["web"])
	most := 0
	slowest := time.Duration(0)
	for i := range 20 {
		name := fmt.Sprint("late", addresses, "-", i)
		began := time.Now()
		l.add(name, "c1")
		slowest = max(slowest, time.Since(began))
		most = max(most, l.residentMB())
		l.reaches(name)
	}
	l.reaches("c59")
	l.Logf("with %d further addresses the slowest ADD takes %s, the agent has %d MB at most", addresses,
		slowest.Round(time.Millisecond), most)
	if most > agentMemoryMB {
		l.Errorf("with %d further addresses the agent has %d MB", addresses, most)
	}
}
