package controller

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/endpoints"
)

func TestStatusFollowsTheAnnouncements(t *testing.T) {
	l := newLab(t)
	l.start("replica", l.replica("a", nil).Run)
	l.Put(pools, &v1.IPPool{ObjectMeta: named("pods"), Spec: v1.IPPoolSpec{CIDR: "10.1.0.0/24"}})
	l.network("blue", nil)
	l.eventually("blue has a VNI, and waits for nodes", func() bool {
		n := l.get("blue")
		return n.Status.VNI == 1<<20 && reason(n.Status.Conditions) == v1.ReasonPending
	})
	node := &v1.NodeNetwork{
		ObjectMeta: named("n1"),
		Status:     v1.NodeNetworkStatus{Networks: []v1.Observed{{Name: "blue", Generation: 1}}},
	}
	l.Put(nodeNets, node)
	l.eventually("blue is ready", func() bool {
		n := l.get("blue")
		return reason(n.Status.Conditions) == v1.ReasonInUse && n.Status.ReadyNodes == 1
	})
	node.Status.Refused = []v1.Refusal{{Name: "blue", Reason: "pods have addresses of the old cidrs"}}
	l.Put(nodeNets, node)
	l.eventually("blue is refused", func() bool {
		n := l.get("blue")
		return reason(n.Status.Conditions) == v1.ReasonRefused
	})

	vni := int32(77)
	l.network("asks", func(s *v1.CustomNetworkSpec) { s.VNI = &vni })
	l.Put(ipblocks, &v1.IPBlock{
		ObjectMeta: named("10.1.0.0-26"),
		Spec:       v1.IPBlockSpec{CIDR: "10.1.0.0/26", Pool: "pods", Node: "n1"},
		Status:     v1.IPBlockStatus{Used: 5},
	})
	l.eventually("what is asked for is in use, and the pool is counted", func() bool {
		var p v1.IPPool
		l.Object(pools, "", "pods", &p)
		return l.get("asks").Status.VNI == 77 && p.Status.UsedAddresses == 5 && p.Status.ClaimedBlocks == 1 &&
			reason(p.Status.Conditions) == v1.ReasonInUse
	})
}

func TestTheStatusOfAnExternalInterfaceFollowsItsNodes(t *testing.T) {
	l := newLab(t)
	l.start("replica", l.replica("a", nil).Run)
	l.Put(externals, &v1.ExternalInterface{ObjectMeta: named("out"), Spec: v1.ExternalInterfaceSpec{
		Network: "blue", Nodes: []v1.ExternalNode{{Node: "n1", Interface: "eth1"}},
	}})
	is := func(want string) func() bool {
		return func() bool {
			var e v1.ExternalInterface
			l.Object(externals, "", "out", &e)
			return reason(e.Status.Conditions) == want
		}
	}
	l.eventually("it waits for its node", is(v1.ReasonPending))
	node := &v1.NodeNetwork{ObjectMeta: named("n1"), Status: v1.NodeNetworkStatus{
		Externals: []v1.ObservedExternal{{Name: "out", Generation: 1, Reason: "link eth1: no such link"}},
	}}
	l.Put(nodeNets, node)
	l.eventually("it is refused", is(v1.ReasonRefused))
	node.Status.Externals[0].Reason = ""
	l.Put(nodeNets, node)
	l.eventually("it is ready", is(v1.ReasonInUse))
}

// Regression: the VNI of a network that was deleted while pods used it was assigned to the next network, which
// connected pods of both.
func TestANetworkInUseKeepsItsVNI(t *testing.T) {
	l := newLab(t)
	l.start("replica", l.replica("a", nil).Run)
	says := func(node string, generation int64, pods ...string) {
		l.Put(nodeNets, &v1.NodeNetwork{ObjectMeta: named(node), Status: v1.NodeNetworkStatus{
			Version:  "v1",
			Networks: []v1.Observed{{Name: "shop-a", Generation: generation, Closed: generation > 1, Pods: pods}},
		}})
	}
	says("n1", 1)
	l.network("shop-a", nil)
	l.eventually("shop-a has a VNI and is kept", func() bool {
		n := l.get("shop-a")
		return n.Status.VNI == 1<<20 && slices.Contains(n.Finalizers, v1.FinalizerInUse)
	})
	l.Remove(networks, "", "shop-a")
	message := func() string {
		c := meta.FindStatusCondition(l.get("shop-a").Status.Conditions, v1.ConditionReady)
		if c == nil || c.Reason != v1.ReasonDeleting {
			return ""
		}
		return c.Message
	}
	l.eventually("n1 is waited for", func() bool {
		return strings.Contains(message(), "waiting for nodes to report their pods: n1")
	})
	says("n1", 2, "shop/a1")
	l.eventually("the pod is named", func() bool { return strings.Contains(message(), "it is used by shop/a1 on n1") })
	for _, name := range []string{"other", "shop-b"} {
		l.network(name, nil)
		l.eventually(name+" has a VNI of its own", func() bool { return l.get(name).Status.VNI > 1<<20 })
	}
	says("n1", 2)
	l.eventually("shop-a is gone with its last pod", func() bool { return l.get("shop-a").Name == "" })
}

// checkVNIs fails the test unless the VNIs of the networks are unique and unchanged.
func (l *lab) checkVNIs(names []string, before map[string]int32) map[string]int32 {
	l.t.Helper()
	now := map[string]int32{}
	owner := map[int32]string{}
	for _, name := range names {
		n := l.get(name)
		if n.Name == "" {
			continue // deleted
		}
		vni := n.Status.VNI
		if other := owner[vni]; vni != 0 && other != "" {
			l.t.Errorf("VNI %d of both %s and %s", vni, name, other)
		}
		if before[name] != 0 && before[name] != vni {
			l.t.Errorf("%s had VNI %d and has %d", name, before[name], vni)
		}
		now[name] = vni
		owner[vni] = name
	}
	return now
}

func TestConcurrentWritersAssignUniqueVNIsDespiteFailures(t *testing.T) {
	l := newLab(t)
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("net-%d", i))
	}
	var writers []*Controller
	for _, name := range []string{"a", "b", "c"} { // all without the lease
		c, _ := l.watching(name)
		writers = append(writers, c)
	}
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(1, 2))
	l.Fail(func(r *http.Request) int {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodGet || dice.IntN(4) > 0 {
			return 0
		}
		return []int{http.StatusConflict, http.StatusInternalServerError, http.StatusServiceUnavailable}[dice.IntN(3)]
	})
	given := map[string]int32{}
	for i, name := range names {
		l.network(name, nil)
		if i%7 == 6 {
			l.Remove(networks, "", names[i-3])
			delete(given, names[i-3])
		}
		var wg sync.WaitGroup
		for _, c := range writers {
			wg.Go(func() { _ = c.reconciler.reconcile(t.Context()) }) // the next one retries what fails
		}
		wg.Wait()
		given = l.checkVNIs(names[:i+1], given)
	}
	l.Fail(nil)
	l.eventually("all networks that are there have a VNI", func() bool {
		if err := writers[0].reconciler.reconcile(t.Context()); err != nil {
			t.Log(err)
		}
		for _, name := range names {
			if n := l.get(name); n.Name != "" && n.Status.VNI == 0 {
				return false
			}
		}
		return true
	})
	l.checkVNIs(names, given)
}

func TestAWriterWithAStaleWatchAssignsUniqueVNIs(t *testing.T) {
	l := newLab(t)
	l.network("blue", nil)
	stale, stop := l.watching("stale")
	stop() // its watch shows blue without a VNI
	fresh, _ := l.watching("fresh")
	if err := fresh.reconciler.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := l.checkVNIs([]string{"blue"}, nil)
	l.network("green", nil)
	if err := stale.reconciler.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := l.checkVNIs([]string{"blue", "green"}, before); now["green"] == 0 || now["blue"] == 0 {
		t.Errorf("VNIs %v", now)
	}
}

func TestALostLedgerIsRestoredFromTheNetworks(t *testing.T) {
	l := newLab(t)
	l.network("blue", nil)
	c, _ := l.watching("a")
	if err := c.reconciler.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := l.checkVNIs([]string{"blue"}, nil)
	l.Remove("configmaps", namespace, ledgerName)
	l.network("green", nil)
	l.eventually("green is seen", func() bool { return len(c.overview.networks.All()) == 2 })
	if err := c.reconciler.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.checkVNIs([]string{"blue", "green"}, before)
	var ledger corev1.ConfigMap
	if !l.Object("configmaps", namespace, ledgerName, &ledger) || len(ledger.Data) != 2 {
		t.Errorf("ledger %v", ledger.Data)
	}
}

func TestAnUnchangedStatusIsNotWritten(t *testing.T) {
	l := newLab(t)
	l.network("blue", nil)
	l.Put(pools, &v1.IPPool{ObjectMeta: named("pods"), Spec: v1.IPPoolSpec{CIDR: "10.1.0.0/24"}})
	c, _ := l.watching("a")
	l.eventually("everything is written", func() bool {
		if err := c.reconciler.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen := c.overview.networks.All()[0]
		return seen.Status.VNI != 0 && reason(seen.Status.Conditions) != "" &&
			reason(c.overview.pools.All()[0].Status.Conditions) != ""
	})
	asked := len(l.Requests())
	for range 3 {
		if err := c.reconciler.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if more := l.Requests()[asked:]; len(more) > 0 {
		t.Errorf("rounds without news sent %v", more)
	}
}

func TestAReplicaSurvivesAnOutageOfTheAPIServer(t *testing.T) {
	l := newLab(t)
	var leading leadership
	c := l.replica("a", func(c *Config) { c.Observer = &leading })
	l.start("replica", c.Run)
	l.eventually("it leads", leading.Load)
	l.Disconnect()
	l.eventually("it is no longer the leader", func() bool { return !leading.Load() })
	if err := c.Alive(); err != nil {
		t.Errorf("it would be restarted for that: %v", err)
	}
	l.Reconnect()
	l.network("blue", nil)
	l.eventually("it gives VNIs again", func() bool { return l.get("blue").Status.VNI != 0 })
}

func TestLeaksOfANodeAreCollected(t *testing.T) {
	l := newLab(t)
	l.Put("nodes", &corev1.Node{ObjectMeta: named("n1")})
	for _, node := range []string{"n1", "gone"} {
		b := &v1.IPBlock{
			ObjectMeta: named("block-of-" + node),
			Spec:       v1.IPBlockSpec{CIDR: "10.1.0.0/26", Pool: "no-more", Node: v1.NodeName(node)},
		}
		l.Put(ipblocks, b)
	}
	c := l.replica("a", func(c *Config) {
		c.Collect = 20 * time.Millisecond
		c.Grace = time.Nanosecond
	})
	l.start("replica", c.Run)
	var b v1.IPBlock
	l.eventually("the block of the node that is gone is freed", func() bool {
		return !l.Object(ipblocks, "", "block-of-gone", &b)
	})
	if !l.Object(ipblocks, "", "block-of-n1", &b) {
		t.Error("the block of a node that is there is gone")
	}
}

func TestTheLeaderWritesEndpointsIfConfigured(t *testing.T) {
	for _, on := range []bool{false, true} {
		l := newLab(t)
		l.Put("services", &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   "default",
				Name:        "web",
				Annotations: map[string]string{endpoints.AnnotationSelector: "app=web"},
			},
			Spec: corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
		})
		c := l.replica("a", func(c *Config) { c.ServiceEndpoints = on })
		l.start("replica", c.Run)
		l.network("blue", nil)
		l.eventually("it works", func() bool { return l.get("blue").Status.VNI != 0 })
		if on {
			l.eventually("the Service has a slice", func() bool {
				return l.Object("endpointslices.discovery.k8s.io", "default", "web-weft-ipv4-0",
					&discoveryv1.EndpointSlice{})
			})
		}
		asked := slices.ContainsFunc(l.Requests(), func(r string) bool { return strings.Contains(r, "/services") })
		if asked != on {
			t.Errorf("on: %v, it asked for Services: %v", on, asked)
		}
	}
}

func TestProbesAreAnswered(t *testing.T) {
	l := newLab(t)
	l.Disconnect()
	c := l.replica("a", nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.start("replica", c.Run)
	l.start("health", func(ctx context.Context) error { return c.ServeHealth(ctx, listener) })
	ask := func(path string) string {
		r, err := http.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", r.StatusCode, text)
	}
	if got := ask("/livez"); got != "200 ok\n" {
		t.Errorf("alive: %s", got)
	}
	if got := ask(
		"/readyz"); got != "503 the API server has not shown yet: custom networks, pools, blocks, node networks, external interfaces\n" {
		t.Errorf("ready: %s", got)
	}
	if got := ask("/metrics"); !strings.HasPrefix(got, "404 ") {
		t.Errorf("metrics without a handler: %s", got)
	}
	l.Reconnect()
	l.eventually("it is ready", func() bool { return ask("/readyz") == "200 ok\n" })
	http.DefaultClient.CloseIdleConnections()
}

func TestAnotherReplicaContinuesTheWorkOfTheLeader(t *testing.T) {
	l := newLab(t)
	var first, second leadership
	a := l.replica("a", func(c *Config) { c.Observer = &first })
	b := l.replica("b", func(c *Config) { c.Observer = &second })
	stop := l.start("a", a.Run)
	l.eventually("a leads", first.Load)
	l.start("b", b.Run)
	l.network("blue", nil)
	l.eventually("a gives blue a VNI", func() bool { return l.get("blue").Status.VNI != 0 })
	before := l.checkVNIs([]string{"blue"}, nil)
	if second.Load() {
		t.Error("b leads too")
	}
	stop()
	l.network("green", nil)
	l.eventually("b gives green a VNI", func() bool { return l.get("green").Status.VNI != 0 })
	l.checkVNIs([]string{"blue", "green"}, before)
}

// TestALateWriteAssignsUniqueVNIs delays a leader between its choice and its write. Meanwhile another leader assigns
// VNIs to more networks in another order.
func TestALateWriteAssignsUniqueVNIs(t *testing.T) {
	l := newLab(t)
	l.network("blue", nil)
	late, _ := l.watching("late")
	next, _ := l.watching("next")
	held := make(chan struct{})
	release := make(chan struct{})
	var once atomic.Bool
	l.Fail(func(r *http.Request) int {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/blue/status") {
			return 0
		}
		if once.CompareAndSwap(false, true) {
			close(held)
			<-release
			return 0
		}
		return http.StatusInternalServerError
	})
	stop := l.start("late", func(ctx context.Context) error {
		_ = late.reconciler.reconcile(ctx) // may fail
		return nil
	})
	<-held
	l.network("amber", nil) // before blue in the order of assignment
	l.eventually("amber is seen", func() bool { return len(next.overview.networks.All()) == 2 })
	if err := next.reconciler.reconcile(t.Context()); err == nil {
		t.Error("the status of blue was written")
	}
	close(release)
	l.eventually("the late write has arrived", func() bool { return l.get("blue").Status.VNI != 0 })
	if now := l.checkVNIs([]string{"blue", "amber"}, nil); now["amber"] == 0 {
		t.Errorf("VNIs %v", now)
	}
	stop()
}
