package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

const (
	// samples is the number of pods, which start one after the other.
	samples = 20
	// slowest is the limit for a single pod on a busy machine.
	slowest = 10 * time.Second
)

func TestSinglePodIsReadySoon(t *testing.T) {
	s := newSpace(t)
	var took []time.Duration
	for i := range samples {
		took = append(took, s.timeToReady(fmt.Sprintf("single-%d", i), s.c.Nodes[i%len(s.c.Nodes)].Name))
	}
	slices.Sort(took)
	t.Logf("%s: ready after p50 %s, p99 %s", s.c.CNI().Name(), round(took[samples/2]), round(took[samples*99/100]))
	if took[samples-1] > slowest {
		t.Errorf("the slowest pod took %s", took[samples-1])
	}
	s.mustHaveWiredAtOnce()
}

// mustHaveWiredAtOnce fails if kubelet had to retry the creation of a sandbox, which takes seconds.
func (s *space) mustHaveWiredAtOnce() {
	s.t.Helper()
	events, err := s.c.Client.CoreV1().Events(s.name).List(s.t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("reason", "FailedCreatePodSandBox").String(),
	})
	s.must(err)
	for _, event := range events.Items {
		s.t.Errorf("%s: %s", event.InvolvedObject.Name, event.Message)
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// timeToReady returns the time from the creation of a pod to the watch event of its readiness.
func (s *space) timeToReady(name, node string) time.Duration {
	s.t.Helper()
	watch, err := s.c.Client.CoreV1().Pods(s.name).Watch(s.t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + name,
	})
	s.must(err)
	defer watch.Stop()
	started := time.Now()
	s.create(name, node)
	expired := time.After(timeout)
	for {
		select {
		case event, open := <-watch.ResultChan():
			if pod, ok := event.Object.(*corev1.Pod); ok && isReady(pod) {
				return time.Since(started)
			}
			if !open {
				s.t.Fatalf("the watch of %s ended", name)
			}
		case <-expired:
			s.t.Fatalf("%s is not ready after %s: %s", name, timeout, s.lastEvent(s.t.Context(), name))
		}
	}
}
