// Package events writes Events of Kubernetes on objects for which Weft works.
package events

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

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/pod"
)

// How many events a node writes at most: what a pod's author needs is there long before.
const (
	eventQueue = 256 // that wait; more are dropped
	Rate       = 2   // a second, for all pods of the node
	Burst      = 20
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

// Writer writes Events on pods of this node, asynchronously: what does not fit into its queue, or cannot be written,
// is dropped and counted. Events that say the same become one with a count; of many similar ones the later ones are
// combined, and of one pod no more are written than 25 and then one in 5 minutes, as all components of Kubernetes do it.
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

// pods finds a pod of this node; nil: it is not known.
type pods interface {
	Pod(id pod.ID) *corev1.Pod
}

// NewWriter makes a writer of events on pods of a node. Nothing is sent before Run.
func NewWriter(c *client.Client, node string, known pods, log *slog.Logger) *Writer {
	return &Writer{
		client: c, node: node, pods: known, log: log, queue: make(chan Note, eventQueue),
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{}),
		limit:      flowcontrol.NewTokenBucketRateLimiter(Rate, Burst),
	}
}

// Tell queues an event and returns at once.
func (w *Writer) Tell(n Note) {
	select {
	case w.queue <- n:
	default:
		w.drop(n, errors.New("too many wait"))
	}
}

// Dropped is how many events were never written.
func (w *Writer) Dropped() uint64 { return w.dropped.Load() }

func (w *Writer) drop(n Note, why error) {
	w.log.Debug("event on a pod dropped", "pod", n.Pod.String(), "reason", n.Reason, "dropped", w.dropped.Add(1), "err", why)
}

// Run writes events until ctx ends.
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

// write makes an event, or counts one up that says the same.
func (w *Writer) write(ctx context.Context, n Note) error {
	result, err := w.correlator.EventCorrelate(w.event(n))
	if err != nil {
		return fmt.Errorf("compare with earlier events: %w", err)
	}
	if result.Skip {
		return errors.New("there are too many of this pod")
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
	written, err := backoff.Retry(ctx, send, backoff.WithMaxTries(eventTries))
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
	r.Event.ResourceVersion = "" // the API server forgets events after an hour or so
	return events.Create(ctx, r.Event, metav1.CreateOptions{})
}

// IsFinal reports whether the API server refused an event and would do so again.
func IsFinal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsBadRequest(err)
}

// event is a note as the API server takes it. The pod is named by the UID that the API server knows it by.
func (w *Writer) event(n Note) *corev1.Event {
	at := metav1.NewTime(n.At)
	uid := types.UID(n.Pod.UID)
	if p := w.pods.Pod(n.Pod); p != nil {
		uid = p.UID
	}
	suffix := fmt.Sprintf(".%x", n.At.UnixNano())
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: n.Pod.Namespace, Name: cut(n.Pod.Name, longestName-len(suffix)) + suffix},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: n.Pod.Namespace, Name: n.Pod.Name, UID: uid},
		Source:         corev1.EventSource{Component: eventSource, Host: w.node},
		Type:           n.Type, Reason: n.Reason, Message: cut(n.Text(), longestMessage),
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: eventSource, ReportingInstance: w.node,
	}
}

func cut(text string, length int) string {
	if len(text) <= length {
		return text
	}
	return strings.ToValidUTF8(text[:length], "")
}
