package endpoints

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What is told of a Service.
const (
	eventSource = "weft-controller"
	eventReason = "WeftNoEndpoint"

	longestMessage = 1024 // bytes that the API server takes
)

// tell says in one event of a Service, and in the log, what of its faults was not told yet. An event that cannot be written
// is lost: the log has it.
func (k *Keeper) tell(ctx context.Context, s *corev1.Service, faults []string) {
	id := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	news := slices.DeleteFunc(slices.Clone(faults), func(f string) bool { return slices.Contains(k.told[id], f) })
	k.told[id] = faults
	if len(news) == 0 {
		return
	}
	text := strings.Join(news, "; ")
	k.log.Warn("endpoints are left out", "service", id.String(), "err", text)
	now := metav1.Now()
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	_, err := k.client.Events(s.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprintf("%s.%x", s.Name, time.Now().UnixNano())},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name, UID: s.UID},
		Source:         corev1.EventSource{Component: eventSource},
		Type:           corev1.EventTypeWarning, Reason: eventReason,
		Message:        strings.ToValidUTF8(text[:min(len(text), longestMessage)], ""),
		FirstTimestamp: now, LastTimestamp: now, Count: 1, ReportingController: eventSource,
	}, metav1.CreateOptions{})
	if err != nil {
		k.log.Debug("event not written", "service", id.String(), "err", err)
	}
}
