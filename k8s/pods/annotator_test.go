package pods_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
)

// texts holds the wanted annotations, by pod.
type texts struct {
	mu sync.Mutex
	of map[string]string
}

func (w *texts) set(name, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[name] = text
}

func (w *texts) want(id pod.ID) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text, ours := w.of[id.Name+" "+id.UID]
	return text, ours
}

const noted = "k8s.v1.cni.cncf.io/network-status"

// annotator runs one until the test ends.
func (l *lab) annotator(w *texts) *pods.Annotator {
	l.T.Helper()
	a := l.Cluster(nil).NewAnnotator(noted, w.want)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	l.T.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			l.T.Errorf("the annotator ended with %v", err)
		}
	})
	return a
}

// note reads the annotation of a pod from the API server.
func (l *lab) note(name string) string {
	var p corev1.Pod
	l.Object("pods", "default", name, &p)
	return p.Annotations[noted]
}

func (l *lab) patches() (n int) {
	for _, r := range l.Requests() {
		if strings.HasPrefix(r, http.MethodPatch) {
			n++
		}
	}
	return n
}

func TestAPodIsAnnotatedOnceAndAgainAfterAThirdPartyChange(t *testing.T) {
	l := newLab(t)
	w := &texts{of: map[string]string{"web 1": "[1]", "static of kubelet": "[7]"}}
	l.Pod("web", "1", "n1", nil)
	l.Pod("static", "of the mirror", "n1", func(p *corev1.Pod) {
		p.Annotations["kubernetes.io/config.mirror"] = "of kubelet"
	})
	l.Pod("node's", "2", "n1", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	l.Pod("other", "3", "n1", nil)
	a := l.annotator(w)
	l.Eventually("pods are annotated that were there before", func() bool {
		return l.note("web") == "[1]" && l.note("static") == "[7]"
	})

	var p corev1.Pod
	l.Object("pods", "default", "web", &p)
	if p.Annotations["contivpp.io/custom-if"] != "web/tap" || p.Spec.NodeName != "n1" || p.UID != "1" {
		t.Errorf("of the pod more was changed: %+v", p)
	}
	before := l.patches()
	delete(p.Annotations, noted)
	l.Put("pods", &p)
	l.Eventually("it is written again when it is gone", func() bool { return l.note("web") == "[1]" })
	if wrote := l.patches() - before; wrote != 1 {
		t.Errorf("it was written %d times", wrote)
	}
	w.set("web 1", "[1,2]")
	a.Tell(pod.ID{Namespace: "default", Name: "web", UID: "1"})
	l.Eventually("it is written again when it is to be another", func() bool { return l.note("web") == "[1,2]" })
	if l.note("other") != "" || l.note("node's") != "" {
		t.Error("pods were annotated that are not Weft's to tell of")
	}
}

func TestAnObsoleteAnnotationIsEmptiedIfThePodStays(t *testing.T) {
	l := newLab(t)
	w := &texts{of: map[string]string{"again 4": "[5]", "last 9": "[9]"}}
	told := func(text string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Annotations[noted] = text } }
	l.Pod("ended", "1", "n1", told("[1]"))
	l.Pod("theirs", "2", "n1", told("[2,0]"))
	l.Pod("leaves", "3", "n1", func(p *corev1.Pod) {
		p.Annotations[noted] = "[3]"
		p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	})
	l.Pod("again", "4", "n1", nil)
	l.Pod("untold", "6", "n1", nil)
	a := l.annotator(w)
	l.Eventually("a pod with interfaces is annotated", func() bool { return l.note("again") == "[5]" })
	if l.note("ended") != "[1]" {
		t.Error("the annotation of a pod of which nothing is known was changed")
	}
	for name, text := range map[string]string{
		"ended":  "[1]",
		"theirs": "[2]",
		"leaves": "[3]",
		"again":  "[4]",
		"untold": "[6]",
		"gone":   "[7]",
	} {
		a.Withdraw(pod.ID{Namespace: "default", Name: name}, text)
	}
	l.Eventually("the annotation of the pod that stays is empty", func() bool { return l.note("ended") == "" })
	l.Pod("last", "9", "n1", nil)
	l.Eventually("all others were handled", func() bool { return l.note("last") == "[9]" })
	if l.note("theirs") != "[2,0]" || l.note("leaves") != "[3]" || l.note("again") != "[5]" {
		t.Errorf("others have %s, %s, %s", l.note("theirs"), l.note("leaves"), l.note("again"))
	}
	for name, want := range map[string]bool{"ended": true, "untold": false} {
		var p corev1.Pod
		l.Object("pods", "default", name, &p)
		if _, has := p.Annotations[noted]; has != want {
			t.Errorf("pod %s has the annotation: %v, want %v", name, has, want)
		}
	}
}

func TestAnAnnotationIsRetriedUntilItIsWritten(t *testing.T) {
	for name, code := range map[string]int{
		"it fails":             http.StatusInternalServerError,
		"there is no right to": http.StatusForbidden,
		"too much":             http.StatusTooManyRequests,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			var failures atomic.Int32
			l.Fail(func(r *http.Request) int {
				if r.Method == http.MethodPatch && failures.Add(1) < 4 {
					return code
				}
				return 0
			})
			l.Pod("web", "1", "n1", nil)
			l.annotator(&texts{of: map[string]string{"web 1": "[1]"}})
			l.Eventually("the pod is annotated", func() bool { return l.note("web") == "[1]" })
			if failures.Load() != 4 {
				t.Errorf("it was tried %d times", failures.Load())
			}
		})
	}
}

func TestAnAnnotationIsWrittenWhenTheAPIServerIsBack(t *testing.T) {
	l := newLab(t)
	w := &texts{of: map[string]string{}}
	l.Pod("web", "1", "n1", nil)
	l.Pod("gone", "2", "n1", nil)
	a := l.annotator(w)
	w.set("first 3", "[3]")
	l.Pod("first", "3", "n1", nil)
	l.Eventually("the watch works", func() bool { return l.note("first") == "[3]" })
	l.Disconnect()
	for name, uid := range map[string]string{"web": "1", "gone": "2"} {
		w.set(name+" "+uid, "["+uid+"]")
		a.Tell(pod.ID{Namespace: "default", Name: name, UID: uid})
	}
	l.Remove("pods", "default", "gone")
	l.Reconnect()
	l.Eventually("the pod is annotated", func() bool { return l.note("web") == "[1]" })
}

// A pod that was created again under the same name does not get the annotation of the old one.
func TestAPodDoesNotGetTheAnnotationOfItsPredecessor(t *testing.T) {
	l := newLab(t)
	w := &texts{of: map[string]string{"web old": "[old]", "web new": "[new]"}}
	l.Pod("web", "old", "n1", nil)
	var once sync.Once
	l.Fail(func(r *http.Request) int {
		if r.Method == http.MethodPatch {
			once.Do(func() { l.Pod("web", "new", "n1", nil) }) // after the look, before the write
		}
		return 0
	})
	l.annotator(w)
	l.Eventually("the pod of today is annotated", func() bool { return l.note("web") == "[new]" })
}
