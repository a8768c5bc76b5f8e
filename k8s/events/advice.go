package events

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/client"
)

// controllerName is the source of the Events of controllers.
const controllerName = "weft-controller"

// Advice is the content of an Event that tells the author of an object why the object has no effect.
type Advice struct {
	Object  corev1.ObjectReference
	Reason  string // one word
	Cause   string // identifies what is wrong with the object
	Message string // may change while the cause stays
}

// Advise writes an Event of type Warning. Its name is a hash of object, reason and cause: a restarted controller and another replica do not
// repeat it while the API server has the Event (an hour, by default).
func Advise(ctx context.Context, c *client.Client, a Advice) error {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	hash := fnv.New64a()
	for _, part := range []string{string(a.Object.UID), a.Reason, a.Cause} {
		_, _ = fmt.Fprintf(hash, "%q", part) // a hash never fails
	}
	suffix, now := fmt.Sprintf(".%016x", hash.Sum64()), metav1.Now()
	_, err := c.Events(a.Object.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: a.Object.Namespace, Name: nameWith(a.Object.Name, suffix)},
		InvolvedObject: a.Object, Source: corev1.EventSource{Component: controllerName},
		Type: corev1.EventTypeWarning, Reason: a.Reason, Message: cut(a.Message, longestMessage),
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
	return strings.TrimRight(cut(object, longestName-len(suffix)), ".-") + suffix
}
