package k8s

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/weftnet/weft/pod"
)

// How many events a node writes at most: what a pod's author needs is there long before.
const (
	eventQueue = 256 // that wait; more are dropped
	eventRate  = 2   // a second, for all pods of the node
	eventBurst = 20
	eventTries = 3

	longestMessage = 1024 // bytes that the API server takes
	longestName    = 253
)

// eventSource is who events are said to come from.
const eventSource = "weft-agent"

// Warning is the type of events that need attention.
const Warning = corev1.EventTypeWarning

// Note is something that is told of a pod of this node.
type Note struct {
	Pod    pod.ID
	Type   string // [Warning], or another one of Kubernetes
	Reason string // one word
	At     time.Time
	Text   func() string // is asked when the event is written
}

// Events writes Events on pods of this node, asynchronously: what does not fit into its queue, or cannot be written,
// is dropped and counted. Events that say the same become one with a count; of many similar ones the later ones are
// combined, and of one pod no more are written than 25 and then one in 5 minutes, as all components of Kubernetes do it.
type Events struct {
	cluster *Cluster
	log     *slog.Logger
	queue   chan Note
	dropped atomic.Uint64

	correlator *record.EventCorrelator
	limit      flowcontrol.RateLimiter
}

// Events makes a writer of events on pods of this node. Nothing is sent before Run.
func (c *Cluster) Events() *Events {
	return &Events{
		cluster: c, log: c.config.Log, queue: make(chan Note, eventQueue),
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{}),
		limit:      flowcontrol.NewTokenBucketRateLimiter(eventRate, eventBurst),
	}
}

// Tell queues an event and returns at once.
func (e *Events) Tell(n Note) {
	select {
	case e.queue <- n:
	default:
		e.drop(n, errors.New("too many wait"))
	}
}

// Dropped is how many events were never written.
func (e *Events) Dropped() uint64 { return e.dropped.Load() }

func (e *Events) drop(n Note, why error) {
	e.log.Debug("event on a pod dropped", "pod", n.Pod.String(), "reason", n.Reason, "dropped", e.dropped.Add(1), "err", why)
}

// Run writes events until ctx ends.
func (e *Events) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n := <-e.queue:
			if err := e.write(ctx, n); err != nil {
				e.drop(n, err)
			}
		}
	}
}

// write makes an event, or counts one up that says the same.
func (e *Events) write(ctx context.Context, n Note) error {
	result, err := e.correlator.EventCorrelate(e.event(n))
	if err != nil {
		return fmt.Errorf("compare with earlier events: %w", err)
	}
	if result.Skip {
		return errors.New("there are too many of this pod")
	}
	if err := e.limit.Wait(ctx); err != nil {
		return err
	}
	send := func() (*corev1.Event, error) {
		attempt, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		written, err := e.send(attempt, result)
		if isFinal(err) {
			err = backoff.Permanent(err)
		}
		return written, err
	}
	written, err := backoff.Retry(ctx, send, backoff.WithMaxTries(eventTries))
	if err != nil {
		return err
	}
	e.correlator.UpdateState(written)
	return nil
}

func (e *Events) send(ctx context.Context, r *record.EventCorrelateResult) (*corev1.Event, error) {
	events := e.cluster.config.Client.Events(r.Event.Namespace)
	if len(r.Patch) > 0 && r.Event.Count > 1 {
		written, err := events.Patch(ctx, r.Event.Name, types.MergePatchType, r.Patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return written, err
		}
	}
	r.Event.ResourceVersion = "" // the API server forgets events after an hour or so
	return events.Create(ctx, r.Event, metav1.CreateOptions{})
}

// isFinal reports whether the API server refused an event and would do so again.
func isFinal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsBadRequest(err)
}

// event is a note as the API server takes it. The pod is named by the UID that the API server knows it by.
func (e *Events) event(n Note) *corev1.Event {
	at := metav1.NewTime(n.At)
	uid := types.UID(n.Pod.UID)
	if p := e.cluster.Pod(n.Pod); p != nil {
		uid = p.UID
	}
	suffix := fmt.Sprintf(".%x", n.At.UnixNano())
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: n.Pod.Namespace, Name: cut(n.Pod.Name, longestName-len(suffix)) + suffix},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: n.Pod.Namespace, Name: n.Pod.Name, UID: uid},
		Source:         corev1.EventSource{Component: eventSource, Host: e.cluster.config.Node},
		Type:           n.Type, Reason: n.Reason, Message: cut(n.Text(), longestMessage),
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: eventSource, ReportingInstance: e.cluster.config.Node,
	}
}

func cut(text string, length int) string {
	if len(text) <= length {
		return text
	}
	return strings.ToValidUTF8(text[:length], "")
}
