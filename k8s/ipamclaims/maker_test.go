package ipamclaims

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/pod"
)

const (
	claimResource      = "ipamclaims.k8s.cni.cncf.io"
	definitionResource = "network-attachment-definitions.k8s.cni.cncf.io"
)

// lab is an API server with a running maker.
type lab struct {
	*k8stest.Server
	t *testing.T
}

func newLab(t *testing.T) *lab {
	l := &lab{k8stest.New(t), t}
	c, err := client.New(l.Connection())
	if err != nil {
		t.Fatal(err)
	}
	maker := NewMaker(c, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- maker.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the maker ended with %v", err)
		}
	})
	return l
}

// replica puts a pod of a StatefulSet with annotations.
func (l *lab) replica(name string, annotations map[string]string, set ...func(*corev1.Pod)) {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, Annotations: annotations,
		Labels: map[string]string{"statefulset.kubernetes.io/pod-name": name},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "uid of db", Controller: &yes,
		}},
	}}
	for _, s := range set {
		s(p)
	}
	l.Put("pods", p)
}

// claim returns a claim of the namespace shop.
func (l *lab) claim(name string) (c npwg.IPAMClaim, exists bool) {
	exists = l.Object(claimResource, "shop", name, &c)
	return c, exists
}

// await waits until a claim exists.
func (l *lab) await(name string) (c npwg.IPAMClaim) {
	l.t.Helper()
	k8stest.Eventually(l.t, name+" exists", func() (exists bool) {
		c, exists = l.claim(name)
		return exists
	})
	return c
}

// made returns how often a claim was asked for.
func (l *lab) made() (n int) {
	for _, r := range l.Requests() {
		if strings.HasPrefix(r, "POST") && strings.Contains(r, "/ipamclaims") {
			n++
		}
	}
	return n
}

// with are annotations of an interface t1 on blue with options, and of t2 without.
func with(options string) map[string]string {
	return map[string]string{
		pod.AnnotationCustom:  "t1/tap/blue,t2/tap",
		pod.AnnotationOptions: `{"t1": {` + options + `}}`,
	}
}

const persistentIPs = `"persistentIPs": true`

func TestEachReplicaGetsAClaim(t *testing.T) {
	l := newLab(t)
	l.replica("db-0", with(persistentIPs))
	c := l.await("db-0.t1")
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "uid of db"}
	if c.Spec != (npwg.IPAMClaimSpec{Network: "blue", Interface: "t1"}) || len(c.Status.IPs) > 0 ||
		c.Annotations[npwg.AnnotationSeed] != "uid of db" || !slices.Equal(c.OwnerReferences, []metav1.OwnerReference{owner}) ||
		c.Labels["app.kubernetes.io/managed-by"] != "weft-controller" {
		t.Errorf("the claim is %+v", c)
	}
	l.replica("db-1", with(persistentIPs))
	l.await("db-1.t1")
	if _, exists := l.claim("db-0.t2"); exists || l.made() != 2 {
		t.Errorf("%d claims were made", l.made())
	}
}

// Claims of these pods would hold addresses that no pod gets back, or are the business of users.
func TestOtherPodsGetNoClaim(t *testing.T) {
	l := newLab(t)
	l.replica("db-0", with(`"ipamClaim": "mine"`))
	l.replica("db-1", with(`"persistentIPs": false`))
	l.replica("web-1", with(persistentIPs)) // not a name of the StatefulSet
	l.replica("db-2", with(persistentIPs), func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" })
	l.replica("db-3", with(persistentIPs), func(p *corev1.Pod) { p.OwnerReferences = nil })
	l.replica("db-4", with(persistentIPs), func(p *corev1.Pod) {
		p.Finalizers = []string{"example.com/wait"}
		p.DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time}
	})
	l.replica("db-5", with(`"persistentIPs": true, "ipamClaim": "mine"`))
	l.replica("db-9", with(persistentIPs))
	l.await("db-9.t1")
	if l.made() != 1 {
		t.Errorf("%d claims were made", l.made())
	}
}

func TestAReplicaWithADefinitionGetsAClaim(t *testing.T) {
	l := newLab(t)
	l.replica("db-0", map[string]string{pod.AnnotationNetworks: "lan, other/lan@t9"})
	l.replica("db-1", map[string]string{
		pod.AnnotationNetworks: `[{"name": "lan", "interface": "t1"}, {"name": "lan", "ipam-claim-reference": "mine"}]`,
	})
	const config = `{"type": "weft-cni", "network": "blue", "options": {"persistentIPs": true}}`
	for _, namespace := range []string{"shop", "other"} { // after the pods
		l.Put(definitionResource, &npwg.NetworkAttachmentDefinition{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lan"},
			Spec:       npwg.NetworkAttachmentDefinitionSpec{Config: config},
		})
	}
	for _, name := range []string{"db-0.net1", "db-0.t9", "db-1.t1"} {
		if c := l.await(name); c.Spec.Network != "blue" || c.Namespace != "shop" {
			t.Errorf("the claim is %+v", c)
		}
	}
	if l.made() != 3 {
		t.Errorf("%d claims were made", l.made())
	}
}

func TestAClaimIsMadeAgainWhileItsPodExists(t *testing.T) {
	l := newLab(t)
	l.replica("db-0", with(persistentIPs))
	before := l.await("db-0.t1")
	l.Remove(claimResource, "shop", "db-0.t1")
	after := l.await("db-0.t1")
	if after.UID == before.UID || after.Annotations[npwg.AnnotationSeed] != before.Annotations[npwg.AnnotationSeed] {
		t.Errorf("the claim was %+v, and is %+v", before, after)
	}
	l.Remove("pods", "shop", "db-0")
	l.Remove(claimResource, "shop", "db-0.t1")
	l.replica("db-1", with(persistentIPs))
	l.await("db-1.t1")
	l.Remove(claimResource, "shop", "db-1.t1") // is made after that of db-0 would be
	l.await("db-1.t1")
	if _, exists := l.claim("db-0.t1"); exists {
		t.Error("the claim of a pod that is gone was made again")
	}
}

func TestAnExistingClaimStaysAsItIs(t *testing.T) {
	l := newLab(t)
	l.Put(claimResource, &npwg.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0.t1", UID: "mine"},
		Spec:       npwg.IPAMClaimSpec{Network: "red"},
	})
	l.replica("db-0", with(persistentIPs))
	l.replica("db-1", with(persistentIPs))
	l.await("db-1.t1")
	if c, _ := l.claim("db-0.t1"); c.UID != "mine" || c.Spec.Network != "red" || len(c.OwnerReferences) > 0 {
		t.Errorf("the claim is %+v", c)
	}
}

// As with a quota of the namespace.
func TestAnEventTellsWhyAClaimIsNotMade(t *testing.T) {
	l := newLab(t)
	var isExceeded atomic.Bool
	isExceeded.Store(true)
	l.Fail(func(r *http.Request) int {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/ipamclaims") && isExceeded.Load() {
			return http.StatusForbidden
		}
		return 0
	})
	l.replica("db-0", with(persistentIPs))
	c, err := client.New(l.Connection())
	if err != nil {
		t.Fatal(err)
	}
	var events []corev1.Event
	k8stest.Eventually(t, "there is an event", func() bool {
		list, err := c.Events("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		events = list.Items
		return len(events) > 0
	})
	e := events[0]
	if e.InvolvedObject.Kind != "StatefulSet" || e.InvolvedObject.Name != "db" || e.InvolvedObject.UID != "uid of db" ||
		e.Reason != "WeftIPAMClaimNotMade" || e.Type != "Warning" ||
		!strings.Contains(e.Message, "IPAMClaim db-0.t1 of a pod's persistentIPs is not made, and the pod waits for it: ") {
		t.Errorf("the event is %+v", e)
	}
	isExceeded.Store(false)
	l.await("db-0.t1")
}
