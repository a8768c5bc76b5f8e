package endpoints

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/pod"
)

const (
	first  = "IPv6 web=8080/TCP a-1 fd00:2::1 ready=true serving=true terminating=false"
	second = "IPv6 web=8080/TCP a-2 fd00:2::2 ready=true serving=true terminating=false"
)

func TestAServiceThatAsksHasItsPodsInterfacesAsBackends(t *testing.T) {
	l := newLab(t)
	l.Put("services", service("other", func(s *corev1.Service) { s.Annotations = nil }))
	l.start()
	l.Put("services", service("a", onlyV6))
	l.eventually("a has a slice", func() bool { return len(l.of("a")) == 1 })
	l.Put("pods", backend("a", 1))
	l.Put("pods", backend("b", 3))
	l.becomes("a", first)
	l.Put("pods", backend("a", 2))
	l.becomes("a", first, second)
	l.Remove("pods", "here", "a-1")
	l.becomes("a", second)
	l.Put("services",
		service("a", onlyV6, func(s *corev1.Service) { s.Annotations[AnnotationSelector] = "app in (b, c)" }))
	l.becomes("a", "IPv6 web=8080/TCP b-3 fd00:2::3 ready=true serving=true terminating=false")
	if got := l.of("other"); len(got) > 0 {
		t.Errorf("a Service that does not ask has %q", lines(got))
	}
	l.Put("services", service("a", onlyV6, func(s *corev1.Service) { s.Annotations = nil }))
	l.eventually("a has no annotation and no slices", func() bool { return len(l.of("a")) == 0 })
}

func TestPodsAreWatchedOnlyForAServiceAndByItsSelector(t *testing.T) {
	l := newLab(t)
	l.Put("services", service("other", func(s *corev1.Service) { s.Annotations = nil }))
	l.Put("services", service("a"))
	l.Fail(func(r *http.Request) int {
		if r.URL.Path == "/api/v1/pods" && !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
			t.Errorf("it requested more than the metadata of all pods: %s", r.Header.Get("Accept"))
		}
		return 0
	})
	l.start()
	l.eventually("a has slices", func() bool { return len(l.of("a")) == 2 })
	for _, r := range l.Requests() {
		if strings.Contains(r, "/pods") && !strings.HasPrefix(r, "GET /api/v1/pods?") &&
			(!strings.Contains(r, "/namespaces/here/pods?") || !strings.Contains(r, "labelSelector=app%3Da")) {
			t.Errorf("it asked %s", r)
		}
		// A create that conflicts with its own object, which the watch has not shown yet, reads the object.
		byLabel := strings.Contains(r, "labelSelector=")
		own := strings.Contains(r, "/namespaces/here/endpointslices/a-weft-")
		if strings.Contains(r, "/endpointslices") && strings.HasPrefix(r, "GET") && !byLabel && !own {
			t.Errorf("it asked %s", r)
		}
	}
}

func TestSlicesOfADeletedServiceAreDeleted(t *testing.T) {
	l := newLab(t)
	l.Put("services", service("a", onlyV6))
	l.Put("pods", backend("a", 1))
	stop := l.start()
	l.becomes("a", first)
	stop()
	l.Remove("services", "here", "a")
	l.start()
	l.eventually("its slices are gone", func() bool { return len(l.of("a")) == 0 })
}

func TestThirdPartySlicesAreNotChanged(t *testing.T) {
	l := newLab(t)
	theirs := &discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "a-weft-ipv6-0", Labels: map[string]string{
			discovery.LabelServiceName: "a", discovery.LabelManagedBy: "me",
		}},
		AddressType: discovery.AddressTypeIPv6, Endpoints: []discovery.Endpoint{{Addresses: []string{"fd00::1"}}},
	}
	l.Put(slicesOfServer, theirs)
	l.Put("services", service("a", onlyV6))
	l.Put("services", service("b", onlyV6))
	l.start()
	l.eventually("an Event says that the name is in use", func() bool {
		return slices.Contains(l.events(),
			"Warning WeftNoEndpoint a: EndpointSlice a-weft-ipv6-0 has another owner: remove it")
	})
	l.eventually("others are served", func() bool { return len(l.of("b")) == 1 })
	if got := l.of("a"); len(got) != 1 || got[0].Labels[discovery.LabelManagedBy] != "me" ||
		len(got[0].Endpoints) != 1 {
		t.Errorf("it was changed: %v", got)
	}
	l.Remove(slicesOfServer, "here", "a-weft-ipv6-0")
	l.eventually("its place is taken", func() bool {
		got := l.of("a")
		return len(got) == 1 && got[0].Labels[discovery.LabelManagedBy] == managedBy
	})
}

func TestAChangedSliceIsRestored(t *testing.T) {
	l := newLab(t)
	l.Put("services", service("a", onlyV6))
	l.Put("pods", backend("a", 1))
	l.start()
	l.becomes("a", first)
	changed := l.of("a")[0]
	changed.Endpoints = nil
	changed.Labels[discovery.LabelServiceName] = "b"
	l.Put(slicesOfServer, changed)
	l.becomes("a", first)
	l.eventually("b has none", func() bool { return len(l.of("b")) == 0 })
	l.Remove(slicesOfServer, "here", l.of("a")[0].Name)
	l.becomes("a", first)
}

func TestPodsThatCannotBeEndpointsAreReported(t *testing.T) {
	ask := func(selector string, change ...func(*corev1.Service)) *corev1.Service {
		return service("a",
			slices.Concat(change, []func(*corev1.Service){
				func(s *corev1.Service) { s.Annotations[AnnotationSelector] = selector },
			})...)
	}
	tests := []struct {
		name, want string
		service    *corev1.Service
	}{
		{"an invalid selector", "contivpp.io/endpoint-selector: unable to parse requirement", ask("app in a")},
		{"an empty one", "contivpp.io/endpoint-selector: it is empty", ask("")},
		{
			"one beside that of Kubernetes", "the Service has spec.selector",
			ask("app=a", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "a"} }),
		},
		{
			"another name", "of type ExternalName has no endpoints",
			ask("app=a", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }),
		},
		{
			"an interface that is not there", "pod a-1: contivpp.io/service-endpoint-if: t9: it has no interface t9",
			ask("app=a"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t)
			l.Put("pods", backend("a", 1, interfaceIs("t9")))
			l.Put("services", tt.service)
			l.start()
			l.eventually("there is an Event", func() bool {
				return slices.ContainsFunc(l.events(), func(e string) bool { return strings.Contains(e, tt.want) })
			})
			if got := lines(l.of("a")); len(got) > 0 {
				t.Errorf("endpoints %q", got)
			}
			l.Put("pods", backend("a", 1))
			l.Put("services", service("a", onlyV6))
			l.becomes("a", first)
			if got := l.events(); len(got) != 1 {
				t.Errorf("there are %d Events: %q", len(got), got)
			}
		})
	}
}

func TestUnchangedSlicesAreNotWritten(t *testing.T) {
	l := newLab(t)
	l.Put("services", service("a"))
	l.Put("services", service("b", func(s *corev1.Service) { s.Annotations[AnnotationSelector] = "app=a" }))
	for i := 1; i <= 3; i++ {
		l.Put("pods", backend("a", i))
	}
	stop := l.start()
	l.eventually("both have three backends of each family", func() bool {
		return len(lines(l.of("a"))) == 6 && len(lines(l.of("b"))) == 6
	})
	stop()
	asked := len(l.Requests())
	l.start()
	sent := func(prefix string) (n int) {
		for _, r := range l.Requests()[asked:] {
			if strings.HasPrefix(r, prefix) {
				n++
			}
		}
		return n
	}
	l.eventually("pods of both are watched", func() bool { return sent("GET /api/v1/namespaces/here/pods?") >= 2 })
	l.Put("services", service("c")) // handled after the others
	l.eventually("c has slices", func() bool { return len(l.of("c")) == 2 })
	if posts, puts, deletes := sent("POST"), sent("PUT"), sent("DELETE"); posts != 2 || puts+deletes > 0 {
		t.Errorf("it created %d, changed %d and deleted %d slices, want the two of c", posts, puts, deletes)
	}
}

// world is the objects that a test has put onto the server.
type world struct {
	*lab
	dice     *rand.Rand
	services map[string]*corev1.Service
	pods     map[string]*corev1.Pod
}

var names = []string{"a", "b", "c"}

// change makes a random change to the cluster.
func (w *world) change() {
	name := names[w.dice.IntN(len(names))]
	i := 1 + w.dice.IntN(6)
	pod := fmt.Sprintf("%s-%d", name, i)
	switch w.dice.IntN(12) {
	case 0:
		w.put(service(name))
	case 1:
		w.put(service(name, onlyV6))
	case 2:
		w.put(service(name, func(s *corev1.Service) { s.Annotations[AnnotationSelector] = "app in (a, b)" }))
	case 3:
		w.put(service(name, func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }))
	case 4:
		w.put(service(name, func(s *corev1.Service) { s.Annotations = nil }))
	case 5:
		w.Remove("services", "here", name)
		delete(w.services, name)
	case 6:
		w.Remove("pods", "here", pod)
		delete(w.pods, pod)
	case 7:
		w.run(backend(name, i, notReady))
	case 8:
		w.run(backend(name, i, interfaceIs([]string{"eth0", "v4", "t9"}[w.dice.IntN(3)])))
	case 9:
		w.run(backend(name, i, leaving))
	default:
		w.run(backend(name, i))
	}
}

func (w *world) put(s *corev1.Service) {
	w.Put("services", s)
	w.services[s.Name] = s
}

func (w *world) run(p *corev1.Pod) {
	w.Put("pods", p)
	w.pods[p.Name] = p
}

// want returns the expected endpoints of a Service.
func (w *world) want(name string) (all []string) {
	s := w.services[name]
	if s == nil || s.Annotations == nil {
		return nil
	}
	for _, p := range w.pods {
		if app := p.Labels["app"]; app != name && (s.Annotations[AnnotationSelector] == "app="+name || app == "c") ||
			app == "c" && s.Annotations[AnnotationSelector] != "app=c" {
			continue
		}
		for _, f := range s.Spec.IPFamilies {
			if a := w.address(p, f); a != "" {
				serving := p.Status.Conditions[0].Status == corev1.ConditionTrue
				ready := s.Spec.PublishNotReadyAddresses || serving && p.DeletionTimestamp == nil
				all = append(all,
					fmt.Sprintf("%s web=8080/TCP %s %s ready=%t serving=%t terminating=%t", f, p.Name, a, ready,
						serving, p.DeletionTimestamp != nil))
			}
		}
	}
	slices.Sort(all)
	return all
}

func (w *world) address(p *corev1.Pod, f corev1.IPFamily) string {
	i := p.Name[2:]
	addresses := map[string][2]string{
		"t1":   {"10.2.0." + i, "fd00:2::" + i},
		"eth0": {"10.1.0." + i, "fd00:1::" + i},
		"v4":   {"10.4.0." + i, ""},
	}
	both := addresses[p.Annotations[pod.AnnotationEndpoint]]
	if f == corev1.IPv4Protocol {
		return both[0]
	}
	return both[1]
}

// TestSlicesConvergeAfterRandomChanges compares slices with the expected ones after changes that come faster than they
// are handled, failed writes and broken watches.
func TestSlicesConvergeAfterRandomChanges(t *testing.T) {
	l := newLab(t)
	var mu sync.Mutex
	faults := rand.New(rand.NewPCG(3, 4))
	w := &world{
		lab:      l,
		dice:     rand.New(rand.NewPCG(1, 2)),
		services: map[string]*corev1.Service{},
		pods:     map[string]*corev1.Pod{},
	}
	stop := l.start()
	for round := range 15 {
		l.Fail(func(r *http.Request) int {
			mu.Lock()
			defer mu.Unlock()
			if r.Method == http.MethodGet || faults.IntN(3) > 0 {
				return 0
			}
			return []int{http.StatusConflict, http.StatusInternalServerError}[faults.IntN(2)]
		})
		for range 1 + w.dice.IntN(20) {
			w.change()
		}
		switch round % 5 {
		case 2:
			l.DropWatches()
		case 4:
			stop()
			stop = l.start()
		}
		l.Fail(nil)
		w.change()
		for _, name := range names {
			l.becomes(name, w.want(name)...)
		}
	}
	if len(w.pods) == 0 || len(w.services) == 0 {
		t.Errorf("nothing is left to look at: %v, %v", slices.Sorted(maps.Keys(w.pods)),
			slices.Sorted(maps.Keys(w.services)))
	}
}
