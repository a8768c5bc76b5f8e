package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/pod"
)

// events runs a writer of Events beside a view that knows the pod a.
func (l *lab) events() *events.Writer {
	l.T.Helper()
	l.Pod("a", "uid-a", "n1", nil)
	c := l.Known(nil)
	l.Eventually("the pod is seen", func() bool { return c.Pod(podA) != nil })
	e := events.NewWriter(l.Client(), "n1", c, slog.New(slog.NewTextHandler(l.T.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	l.T.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			l.T.Errorf("the writer of events ended with %v", err)
		}
	})
	return e
}

var podA = pod.ID{Namespace: "default", Name: "a"}

func failed(why string) events.Note {
	return events.Note{
		Pod:    podA,
		Type:   corev1.EventTypeWarning,
		Reason: "WeftAddFailed",
		At:     time.Now(),
		Text:   func() string { return why },
	}
}

func (l *lab) written() []corev1.Event {
	l.T.Helper()
	list, err := l.Client().Events("default").List(l.T.Context(), metav1.ListOptions{})
	if err != nil {
		l.T.Fatal(err)
	}
	return list.Items
}

func TestAnEventIsOnThePodAndCountsRepeats(t *testing.T) {
	l := newLab(t)
	e := l.events()
	for range 5 {
		e.Tell(failed("interface eth0: the pool is exhausted"))
	}
	l.Eventually("one event counts five", func() bool { w := l.written(); return len(w) == 1 && w[0].Count == 5 })
	got := l.written()[0]
	if o := got.InvolvedObject; o.Kind != "Pod" || o.Name != "a" || o.Namespace != "default" || o.UID != "uid-a" ||
		o.APIVersion != "v1" {
		t.Errorf("it is on %+v", o)
	}
	if got.Type != "Warning" || got.Reason != "WeftAddFailed" ||
		got.Message != "interface eth0: the pool is exhausted" ||
		got.Source.Component != "weft-agent" || got.Source.Host != "n1" || got.ReportingInstance != "n1" {
		t.Errorf("event %+v", got)
	}
	l.Remove("events", "default", got.Name) // as the API server does after its time
	e.Tell(failed("interface eth0: the pool is exhausted"))
	l.Eventually("it is recreated", func() bool { w := l.written(); return len(w) == 1 && w[0].Count == 6 })
}

// The first Event tells an author the cause, and must not be dropped for later ones.
func TestEventsThatDoNotFitIntoTheQueueAreDroppedAndCounted(t *testing.T) {
	l := newLab(t)
	e := events.NewWriter(l.Client(), "n1", l.Known(nil), slog.New(slog.DiscardHandler))
	for range 300 {
		e.Tell(failed("no address"))
	}
	if n := e.Dropped(); n != 300-256 {
		t.Errorf("%d events are dropped, expected all but 256 of 300", n)
	}
}

func TestEventsThatDifferByLittleAreCombined(t *testing.T) {
	l := newLab(t)
	e := l.events()
	for i := range 40 {
		e.Tell(failed(fmt.Sprintf("attempt %d", i)))
	}
	l.Eventually("they are written or dropped", func() bool {
		told := uint64(0)
		for _, w := range l.written() {
			told += uint64(w.Count)
		}
		return told+e.Dropped() >= 40
	})
	written := l.written()
	last := written[len(written)-1]
	if len(written) > 10 || !strings.Contains(last.Message, "combined from similar events") {
		t.Errorf("%d events, the last %q", len(written), last.Message)
	}
}

func TestTellDoesNotBlockWhileTheAPIServerIsAway(t *testing.T) {
	l := newLab(t)
	e := l.events()
	l.Disconnect()
	for i := range 1000 { // returns at once, or the test never ends
		e.Tell(failed(fmt.Sprintf("attempt %d", i)))
	}
	if dropped := e.Dropped(); dropped < 1000-256-1 {
		t.Errorf("%d of 1000 were dropped, more than the queue holds are kept", dropped)
	}
}

func TestAnEventThatIsRefusedIsDroppedAndTheNextOneWritten(t *testing.T) {
	l := newLab(t)
	e := l.events()
	l.Fail(func(r *http.Request) int {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events") {
			return http.StatusBadRequest
		}
		return 0
	})
	e.Tell(failed("first"))
	l.Eventually("it is dropped", func() bool { return e.Dropped() == 1 })
	l.Fail(nil)
	e.Tell(failed(strings.Repeat("long ", 1000)))
	l.Eventually("the next one is written", func() bool { return len(l.written()) == 1 })
	if n := len(l.written()[0].Message); n != 1024 {
		t.Errorf("its message has %d bytes, the API server takes 1024", n)
	}
}
