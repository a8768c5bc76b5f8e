package policies

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/policy"
)

// shared has the fields that all feeds of the engine need. A feed watches objects of a kind, and gives their current
// state to the engine.
type shared struct {
	config  Config
	watches *informer.Group
	engine  *policy.Engine
	on      locking
}

// locking returns a function that holds the lock while it calls another one.
type locking func(func(key string)) func(key string)

// feeds are the feeds of the engine.
type feeds struct {
	evidence   *evidence
	pods       *podFeed
	namespaces *namespaceFeed
	nodes      *nodeFeed
	policies   *policyFeed
	services   *serviceFeed
}

func newFeeds(s *shared, p *publisher) feeds {
	e := &evidence{node: s.config.Node}
	f := feeds{
		evidence:   e,
		pods:       newPodFeed(s, e, p),
		namespaces: newNamespaceFeed(s, p),
		nodes:      newNodeFeed(s, e),
		policies:   newPolicyFeed(s),
		services:   newServiceFeed(s),
	}
	f.pods.watch.OnObject(func(o *corev1.Pod) { s.on(func(string) { f.refreshPod(o) })("") })
	return f
}

// begin gives the engine all objects. Between two objects it releases the lock.
func (f *feeds) begin(locked locking) {
	refreshAll(f.namespaces.watch, locked(f.namespaces.refresh))
	refreshAll(f.nodes.watch, locked(f.nodes.refresh))
	f.policies.refreshAll(locked)
	refreshAll(f.pods.watch, locked(func(key string) { f.pods.refresh(idOf(key)) }))
	refreshAll(f.services.watch, locked(f.services.refresh)) // endpoints depend on pods
}

// refreshPod gives the current state of a pod, and of its Services, to the engine. o is a version of the pod, which may
// be gone.
func (f *feeds) refreshPod(o *corev1.Pod) {
	f.pods.refresh(policy.ID{Namespace: o.Namespace, Name: o.Name})
	f.services.podChanged(o, f.pods.isGone(o))
}

// setNetworks replaces the known networks. It reports whether they are others.
func (f *feeds) setNetworks(n Networks) bool {
	d := f.evidence.setNetworks(n)
	if d == nil {
		return false
	}
	f.nodes.refreshOwned(d)
	for _, o := range f.pods.watch.All() {
		if d.concerns(o) {
			f.pods.refresh(policy.ID{Namespace: o.Namespace, Name: o.Name})
		}
	}
	if d.isOther {
		for id := range f.pods.attached {
			f.pods.refresh(id)
		}
	}
	return true
}

// watched is a type of objects that an informer watches.
type watched interface {
	metav1.Object
	runtime.Object
}

func refreshAll[T watched](in *informer.Informer[T], refresh func(key string)) {
	for _, o := range in.All() {
		key := o.GetName()
		if o.GetNamespace() != "" {
			key = o.GetNamespace() + "/" + key
		}
		refresh(key)
	}
}
