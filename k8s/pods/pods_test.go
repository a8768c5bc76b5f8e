package pods_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
)

func TestOnlyPodsOfThisNodeAreWatched(t *testing.T) {
	l := newLab(t)
	l.Pod("mine", "1", "n1", nil)
	l.Pod("other", "2", "n2", nil)
	c := l.Known(nil)
	l.Eventually("the pod is known", func() bool { return c.Pod(pod.ID{Namespace: "default", Name: "mine"}) != nil })
	if c.Pod(pod.ID{Namespace: "default", Name: "other"}) != nil {
		t.Error("another node's pod is known")
	}
	l.Pod("mine", "1", "n2", nil)
	l.Eventually("a pod that is on another node now is forgotten", func() bool {
		return c.Pod(pod.ID{Namespace: "default", Name: "mine"}) == nil
	})
	asked := slices.DeleteFunc(l.Requests(), func(r string) bool { return !strings.Contains(r, "/api/v1/pods") })
	if len(asked) == 0 {
		t.Error("no request for pods")
	}
	for _, r := range asked {
		if !strings.Contains(r, "fieldSelector=spec.nodeName%3Dn1") {
			t.Errorf("request %s asks for pods of all nodes", r)
		}
	}
}

func TestAnnotationsOfAKnownPodCostNoRequest(t *testing.T) {
	l := newLab(t)
	l.Pod("web", "1", "n1", nil)
	c := l.Known(nil)
	id := pod.ID{Namespace: "default", Name: "web", UID: "1"}
	l.Eventually("the pod is known", func() bool { return c.Pod(id) != nil })
	before := len(l.Requests())
	got, from, err := c.Annotations(t.Context(), id)
	if err != nil || from != "cache" || got["contivpp.io/custom-if"] != "web/tap" {
		t.Errorf("got %v from %q, error %v", got, from, err)
	}
	if len(l.Requests()) != before {
		t.Error("the API server was asked")
	}
}

func TestAnnotationsOfAnUnknownPodCostOneRequest(t *testing.T) {
	l := newLab(t)
	c, err := nodeview.New(nodeview.Config{Node: "n1", Client: l.Client()}) // nothing is watched
	if err != nil {
		t.Fatal(err)
	}
	l.Pod("web", "1", "n1", nil)
	l.Pod("static", "of the mirror", "n1", func(p *corev1.Pod) {
		p.Annotations["kubernetes.io/config.mirror"] = "of kubelet"
	})
	l.Pod("moved", "3", "n2", nil)
	for _, tt := range []struct{ name, uid, want string }{
		{"web", "1", ""},
		{"web", "", ""},
		{"web", "0", "the pod was created again: this sandbox has UID 0, the current pod 1"},
		{"static", "of kubelet", ""},
		{"moved", "3", "it is on node n2"},
		{"gone", "4", "knows no such pod"},
	} {
		before := len(l.Requests())
		got, from, err := c.Annotations(t.Context(), pod.ID{Namespace: "default", Name: tt.name, UID: tt.uid})
		if asked := len(l.Requests()) - before; asked != 1 {
			t.Errorf("%s: %d requests", tt.name, asked)
		}
		if tt.want == "" {
			if err != nil || from != "API server" || got["contivpp.io/custom-if"] != tt.name+"/tap" {
				t.Errorf("%s of UID %q: got %v from %q, error %v", tt.name, tt.uid, got, from, err)
			}
			continue
		}
		var coded *pod.Error
		if !errors.As(err, &coded) || coded.Code != pod.CodeTryAgain || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), "default/"+tt.name) {
			t.Errorf("%s of UID %q: error %v, want code 11, the pod's name and %q", tt.name, tt.uid, err, tt.want)
		}
	}
}

func TestAPodIsDeletedOnlyIfTheAPIServerSaysSo(t *testing.T) {
	l := newLab(t)
	c, err := nodeview.New(nodeview.Config{Node: "n1", Client: l.Client()}) // nothing is watched
	if err != nil {
		t.Fatal(err)
	}
	l.Pod("web", "1", "n1", nil)
	l.Pod("static", "of the mirror", "n1", func(p *corev1.Pod) {
		p.Annotations["kubernetes.io/config.mirror"] = "of kubelet"
	})
	for _, tt := range []struct {
		name, uid string
		deleted   bool
	}{
		{"web", "1", false},
		{"web", "", false},
		{"web", "0", true}, // another pod of that name
		{"static", "of kubelet", false},
		{"gone", "4", true},
	} {
		if got, err := c.IsDeleted(t.Context(), pod.ID{Namespace: "default", Name: tt.name, UID: tt.uid}); err != nil ||
			got != tt.deleted {
			t.Errorf("%s of UID %q: deleted is %v, error %v", tt.name, tt.uid, got, err)
		}
	}
	l.Fail(func(*http.Request) int { return http.StatusServiceUnavailable })
	if got, err := c.IsDeleted(t.Context(), pod.ID{Namespace: "default", Name: "gone"}); err == nil || got {
		t.Errorf("without an answer: deleted is %v, error %v", got, err)
	}
}

func TestTheRequestForAnnotationsIsBounded(t *testing.T) {
	l := newLab(t)
	release := make(chan struct{})
	l.Fail(func(*http.Request) int { <-release; return 0 })
	defer close(release)
	c, err := nodeview.New(nodeview.Config{Node: "n1", Client: l.Client(), Question: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = c.Annotations(t.Context(), pod.ID{Namespace: "default", Name: "web"})
	var coded *pod.Error
	if !errors.As(err, &coded) || coded.Code != pod.CodeTryAgain ||
		!strings.Contains(err.Error(), "no answer of the API server within 50ms") {
		t.Errorf("error %v, want code 11 that says who did not answer", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is not one line", err)
	}
}

func TestAPodIsNotMistakenForItsPredecessor(t *testing.T) {
	l := newLab(t)
	l.Pod("db-0", "1", "n1", nil)
	c := l.Known(nil)
	id := pod.ID{Namespace: "default", Name: "db-0", UID: "1"}
	l.Eventually("the pod is known", func() bool { return c.Pod(id) != nil })
	l.Remove("pods", "default", "db-0")
	l.Pod("db-0", "2", "n1", nil)
	id.UID = "2"
	if _, _, err := c.Annotations(t.Context(), id); err != nil { // by the watch, or by a question: the new one's
		t.Error(err)
	}
	l.Eventually("the new pod is known", func() bool { return c.Pod(id) != nil })
	id.UID = "1"
	if c.Pod(id) != nil {
		t.Error("the old pod is known still")
	}
}

// seen records the calls of OnPod.
type seen struct {
	mu    sync.Mutex
	calls []string
	fails int
}

func (s *seen) onPod(_ context.Context, id pod.ID, p *corev1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 {
		s.fails--
		return errors.New("not now")
	}
	state := "gone"
	if p != nil {
		state = id.UID + " " + p.Annotations["n"]
	}
	s.calls = append(s.calls, id.Name+": "+state)
	return nil
}

func (s *seen) last(want string) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.calls) > 0 && s.calls[len(s.calls)-1] == want
	}
}

func TestAPodIsHandledInItsCurrentStateAndAgainAfterAnError(t *testing.T) {
	l := newLab(t)
	s := &seen{fails: 3}
	c := l.Known(func(c *nodeview.Config) { c.OnPod = s.onPod })
	l.Pod("web", "1", "n1", nil)
	l.Eventually("handled after three errors", s.last("web: 1 "))
	l.Pod("host", "9", "n1", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	l.Pod("web", "1", "n1", func(p *corev1.Pod) { p.Annotations["n"] = "more" })
	l.Eventually("handled as it is", s.last("web: 1 more"))
	l.Remove("pods", "default", "web")
	l.Eventually("handled as gone", s.last("web: gone"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.calls, func(c string) bool { return strings.HasPrefix(c, "host") }) {
		t.Error("a pod of the node's own network was handled")
	}
	if c.Pod(pod.ID{Namespace: "default", Name: "host"}) != nil {
		t.Error("a pod of the node's own network is known")
	}
}

// While one pod is being handled others change: each is handled once afterwards, in its current state.
func TestChangesOfAPodDuringACallAreHandledOnce(t *testing.T) {
	const updates = 10000
	l := newLab(t)
	s := &seen{}
	begun := make(chan struct{})
	goOn := make(chan struct{})
	c := l.Known(func(c *nodeview.Config) {
		c.OnPod = func(ctx context.Context, id pod.ID, p *corev1.Pod) error {
			if id.Name == "first" {
				close(begun)
				<-goOn
			}
			return s.onPod(ctx, id, p)
		}
	})
	l.Pod("first", "1", "n1", nil)
	<-begun
	for i := range updates {
		l.Pod("busy", "2", "n1", func(p *corev1.Pod) { p.Annotations["n"] = strconv.Itoa(i + 1) })
	}
	l.Pod("brief", "3", "n1", nil)
	l.Remove("pods", "default", "brief")
	l.Pod("last", "4", "n1", nil) // the watch tells of it after all else
	l.Eventually("three pods wait", func() bool { return c.Waiting() == 3 })
	close(goOn)
	l.Eventually("the last one is handled", s.last("last: 4 "))
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := []string{"first: 1 ", "busy: 2 10000", "brief: gone", "last: 4 "}; !slices.Equal(s.calls, want) {
		t.Errorf("handled were %q, want %q", s.calls, want)
	}
}

func TestAMissedDeleteIsHandled(t *testing.T) {
	l := newLab(t)
	s := &seen{}
	c := l.Known(func(c *nodeview.Config) { c.OnPod = s.onPod })
	l.Pod("web", "1", "n1", nil)
	l.Eventually("handled", s.last("web: 1 "))
	l.Disconnect()
	l.Remove("pods", "default", "web")
	l.Compact() // the watch cannot go on: it begins with a list again, and finds a tombstone
	l.Reconnect()
	l.Eventually("handled as gone", s.last("web: gone"))
	if c.Pod(pod.ID{Namespace: "default", Name: "web"}) != nil {
		t.Error("the pod is known still")
	}
}
