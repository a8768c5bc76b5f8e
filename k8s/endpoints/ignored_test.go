package endpoints

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// plain makes a Service without the annotation, which selects the pods with the label app=name.
func plain(s *corev1.Service) {
	s.Annotations = nil
	s.Spec.Selector = map[string]string{"app": s.Name}
}

func labelled(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
}

// ignored is the Event on a Service with pods that name t1.
func ignored(service, pods string) string {
	return fmt.Sprintf("Warning WeftEndpointInterfaceIgnored %[1]s: the endpoints of this Service are on eth0, not on t1, which "+
		"contivpp.io/service-endpoint-if of %[2]s names: Kubernetes makes the endpoints of a Service with spec.selector. If clients are to "+
		"reach t1, replace the Service by one without spec.selector and with the annotation contivpp.io/endpoint-selector: \"app=%[1]s\"", service, pods)
}

// settle waits until the keeper has processed all changes so far: a Service that asks is processed after the others.
func (l *lab) settle(name string) {
	l.t.Helper()
	l.Put("pods", backend(name, 9))
	l.Put("services", service(name, onlyV6))
	l.becomes(name, "IPv6 web=8080/TCP "+name+"-9 fd00:2::9 ready=true serving=true terminating=false")
}

// told waits until exactly these Events exist.
func (l *lab) told(want ...string) {
	l.t.Helper()
	slices.Sort(want)
	l.eventually(fmt.Sprintf("the events are %q", want), func() bool {
		return slices.Equal(slices.Sorted(slices.Values(l.events())), want)
	})
}

func TestAServiceThatSelectsAPodWithAnEndpointInterfaceGetsOneEvent(t *testing.T) {
	for _, first := range []string{"pods", "services"} {
		t.Run(first+" first", func(t *testing.T) {
			l := newLab(t)
			l.start()
			steps := []func(){
				func() { l.Put("pods", backend("a", 1)) },
				func() { l.Put("services", service("a", plain)) },
			}
			if first == "services" {
				slices.Reverse(steps)
			}
			steps[0]()
			l.settle("z")
			steps[1]()
			l.told(ignored("a", "a-1"))
			l.Put("pods", backend("a", 2))
			l.Put("pods", backend("a", 1, notReady))
			l.settle("y")
			l.told(ignored("a", "a-1"))
		})
	}
}

func TestTheEventOfAnIgnoredInterfaceNamesThreePodsAndCountsTheOthers(t *testing.T) {
	l := newLab(t)
	for i := range 5 {
		l.Put("pods", backend("a", i+1))
	}
	stop := l.start()
	l.settle("z")
	l.Put("services", service("a", plain))
	l.told(ignored("a", "a-1, a-2, a-3 and 2 more"))
	stop()
	l.Remove("pods", "here", "a-1") // the message would be another one
	l.start()
	l.settle("y")
	l.told(ignored("a", "a-1, a-2, a-3 and 2 more"))
}

func TestEachInterfaceThatAServiceIgnoresHasAnEvent(t *testing.T) {
	l := newLab(t)
	l.Put("pods", backend("a", 1))
	l.Put("services", service("a", plain))
	l.start()
	l.told(ignored("a", "a-1"))
	l.Put("pods", backend("a", 2, interfaceIs("v4")))
	l.told(ignored("a", "a-1"), strings.ReplaceAll(ignored("a", "a-2"), "t1", "v4"))
}

func TestAServiceThatIgnoresNoInterfaceGetsNoEvent(t *testing.T) {
	l := newLab(t)
	l.Put("pods", backend("eth", 1, interfaceIs("eth0")))
	l.Put("pods", backend("none", 1, func(p *corev1.Pod) { p.Annotations = nil }))
	l.Put("pods", backend("other", 1, labelled("elsewhere")))
	l.Put("pods", backend("far", 1, func(p *corev1.Pod) { p.Namespace = "there" }))
	l.Put("pods", backend("name", 1))
	l.Put("pods", backend("all", 1))
	for _, name := range []string{"eth", "none", "other", "far"} {
		l.Put("services", service(name, plain))
	}
	l.Put("services", service("name", plain, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }))
	l.Put("services", service("all", plain, func(s *corev1.Service) { s.Spec.Selector = nil }))
	l.start()
	l.settle("z")
	l.Put("pods", backend("a", 1))
	l.Put("services", service("a", plain))
	l.told(ignored("a", "a-1"))
}

func TestAnInterfaceThatIsNoLongerIgnoredIsNotReported(t *testing.T) {
	changes := map[string]func(l *lab){
		"the pod is gone":         func(l *lab) { l.Remove("pods", "here", "a-1") },
		"the pod names eth0":      func(l *lab) { l.Put("pods", backend("a", 1, interfaceIs("eth0"))) },
		"the pod is not selected": func(l *lab) { l.Put("pods", backend("a", 1, labelled("b"))) },
		"the Service selects none": func(l *lab) {
			l.Put("services", service("a", plain, func(s *corev1.Service) { s.Spec.Selector = nil }))
		},
		"the Service is gone": func(l *lab) { l.Remove("services", "here", "a") },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.Put("pods", backend("a", 1))
			l.Put("services", service("a", plain))
			stop := l.start()
			l.told(ignored("a", "a-1"))
			change(l)
			l.settle("y")
			stop()
			l.forgetEvents()
			l.start()
			l.settle("z")
			l.told()
		})
	}
}

// forgetEvents deletes all Events, as the API server does after an hour.
func (l *lab) forgetEvents() {
	l.t.Helper()
	list, err := l.client.Events("").List(l.t.Context(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, e := range list.Items {
		l.Remove("events", e.Namespace, e.Name)
	}
}

func TestSlicesAreKeptWhileTheMetadataOfAllPodsCannotBeRead(t *testing.T) {
	l := newLab(t)
	l.Fail(func(r *http.Request) int {
		if r.URL.Path == "/api/v1/pods" {
			return http.StatusForbidden
		}
		return 0
	})
	l.start()
	l.settle("z")
}

func TestACauseIsReportedOnceUntilItEnds(t *testing.T) {
	k := &Keeper{told: make(map[types.NamespacedName][]string)}
	id := types.NamespacedName{Namespace: "here", Name: "a"}
	steps := []struct{ causes, want []string }{
		{[]string{"t1"}, []string{"t1"}},
		{[]string{"t1"}, nil},
		{[]string{"t1", "t2"}, []string{"t2"}},
		{nil, nil},
		{[]string{"t1"}, []string{"t1"}},
	}
	for i, step := range steps {
		if got := k.news(id, step.causes); !slices.Equal(got, step.want) {
			t.Errorf("step %d: news %q, want %q", i, got, step.want)
		}
	}
	if k.news(id, nil); len(k.told) > 0 {
		t.Errorf("%v is kept of a Service without a cause", k.told)
	}
}
