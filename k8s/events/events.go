// Package events writes Events of Kubernetes.
package events

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
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

	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/pod"
)

// Limits. The first Events of a pod tell its author the cause.
const (
	queueLength = 256
	rate        = 2 // a second, for all pods of a node
	burst       = 20
	tries       = 3

	// Bytes that the API server accepts.
	longestMessage = 1024
	longestName    = 253
)

// agentName is the source of the Events of agents.
const agentName = "weft-agent"

// Types of Events.
const (
	Normal  = corev1.EventTypeNormal
	Warning = corev1.EventTypeWarning // needs attention
)

// Note is the content of an Event on a pod of this node.
type Note struct {
	Pod    pod.ID
	Type   string // [Normal] or [Warning]
	Reason string // one word
	At     time.Time
	Text   func() string // is called when the Event is written
}

// Writer writes Events on pods of this node, asynchronously: it drops and counts Events that do not fit into its queue
// or fail. As in all components of Kubernetes, repeats increment an Event's count, many similar Events are combined,
// and a pod gets 25 Events and then one in 5 minutes.
type Writer struct {
	client  *client.Client
	node    string
	pods    pods
	log     *slog.Logger
	queue   chan Note
	dropped atomic.Uint64

	correlator *record.EventCorrelator
	limit      flowcontrol.RateLimiter
}

// pods finds a pod of this node; nil: it is unknown.
type pods interface {
	Pod(id pod.ID) *corev1.Pod
}

// NewWriter makes a writer of Events on pods of a node. It sends nothing before Run.
func NewWriter(c *client.Client, node string, known pods, log *slog.Logger) *Writer {
	return &Writer{
		client: c, node: node, pods: known, log: log, queue: make(chan Note, queueLength),
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{}),
		limit:      NewLimit(),
	}
}

// NewLimit returns the limit of one kind of Events.
func NewLimit() flowcontrol.RateLimiter { return flowcontrol.NewTokenBucketRateLimiter(rate, burst) }

// Tell queues an Event. It does not block.
func (w *Writer) Tell(n Note) {
	select {
	case w.queue <- n:
	default:
		w.drop(n, errors.New("the queue is full"))
	}
}

// Dropped returns the number of dropped Events.
func (w *Writer) Dropped() uint64 { return w.dropped.Load() }

func (w *Writer) drop(n Note, why error) {
	w.log.Debug("event dropped", "pod", n.Pod.String(), "reason", n.Reason, "dropped", w.dropped.Add(1), "err", why)
}

// Run writes Events until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n := <-w.queue:
			if err := w.write(ctx, n); err != nil {
				w.drop(n, err)
			}
		}
	}
}

// write creates an Event, or increments the count of its repeat.
func (w *Writer) write(ctx context.Context, n Note) error {
	result, err := w.correlator.EventCorrelate(w.event(n))
	if err != nil {
		return fmt.Errorf("compare with earlier events: %w", err)
	}
	if result.Skip {
		return errors.New("the pod has too many events")
	}
	if err := w.limit.Wait(ctx); err != nil {
		return err
	}
	send := func() (*corev1.Event, error) {
		attempt, cancel := context.WithTimeout(ctx, client.RequestTimeout)
		defer cancel()
		written, err := w.send(attempt, result)
		if IsFinal(err) {
			err = backoff.Permanent(err)
		}
		return written, err
	}
	written, err := backoff.Retry(ctx, send, backoff.WithMaxTries(tries))
	if err != nil {
		return err
	}
	w.correlator.UpdateState(written)
	return nil
}

func (w *Writer) send(ctx context.Context, r *record.EventCorrelateResult) (*corev1.Event, error) {
	events := w.client.Events(r.Event.Namespace)
	if len(r.Patch) > 0 && r.Event.Count > 1 {
		written, err := events.Patch(ctx, r.Event.Name, types.MergePatchType, r.Patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return written, err
		}
	}
	r.Event.ResourceVersion = "" // the API server deletes Events after an hour
	return events.Create(ctx, r.Event, metav1.CreateOptions{})
}

// IsFinal reports whether the API server refuses an Event for good.
func IsFinal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) ||
		apierrors.IsAlreadyExists(err) ||
		apierrors.IsBadRequest(err)
}

// event converts a note. It has the UID of the pod in the API server.
func (w *Writer) event(n Note) *corev1.Event {
	at := metav1.NewTime(n.At)
	uid := types.UID(n.Pod.UID)
	if p := w.pods.Pod(n.Pod); p != nil {
		uid = p.UID
	}
	suffix := fmt.Sprintf(".%x", n.At.UnixNano())
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Pod.Namespace, Name: nameWith(n.Pod.Name, suffix)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1",
			Kind:       "Pod",
			Namespace:  n.Pod.Namespace,
			Name:       n.Pod.Name,
			UID:        uid,
		},
		Source: corev1.EventSource{Component: agentName, Host: w.node},
		Type:   n.Type, Reason: n.Reason, Message: line.Cut(n.Text(), longestMessage, ""),
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: agentName, ReportingInstance: w.node,
	}
}

// controllerName is the source of the Events of controllers.
const controllerName = "weft-controller"

// Advice is the content of an Event that tells the author of an object why the object has no effect.
type Advice struct {
	Object  corev1.ObjectReference
	Reason  string // one word
	Cause   string // identifies what is wrong with the object
	Message string // may change while the cause stays
}

// Advise writes an Event of type Warning. Its name is a hash of object, reason and cause: a restarted controller and
// another replica do not repeat it while the API server has the Event (an hour, by default).
func Advise(ctx context.Context, c *client.Client, a Advice) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	hash := fnv.New64a()
	for _, part := range []string{string(a.Object.UID), a.Reason, a.Cause} {
		_, _ = fmt.Fprintf(hash, "%q", part) // a hash never fails
	}
	suffix := fmt.Sprintf(".%016x", hash.Sum64())
	now := metav1.Now()
	_, err := c.Events(a.Object.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: a.Object.Namespace, Name: nameWith(a.Object.Name, suffix)},
		InvolvedObject: a.Object, Source: corev1.EventSource{Component: controllerName},
		Type: corev1.EventTypeWarning, Reason: a.Reason, Message: line.Cut(a.Message, longestMessage, ""),
		FirstTimestamp: now, LastTimestamp: now, Count: 1, ReportingController: controllerName,
	}, metav1.CreateOptions{})
	// An object in a namespace that is being deleted needs no Event.
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// nameWith returns a name for an Event on an object.
func nameWith(object, suffix string) string {
	return strings.TrimRight(line.Cut(object, longestName-len(suffix), ""), ".-") + suffix
}
