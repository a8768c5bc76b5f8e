package endpoints

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/k8s/events"
)

// Reasons of the events of a Service.
const (
	reasonNoEndpoint = "WeftNoEndpoint"
	reasonIgnored    = "WeftEndpointInterfaceIgnored"
)

// tell says in one event of a Service, and in the log, what of its faults was not told yet.
func (k *Keeper) tell(ctx context.Context, s *corev1.Service, faults []string) {
	if news := k.news(idOf(s), faults); len(news) > 0 {
		text := strings.Join(news, "; ")
		k.log.Warn("endpoints are left out", "service", idOf(s).String(), "err", text)
		k.advise(ctx, s, events.Advice{Reason: reasonNoEndpoint, Cause: text, Message: text})
	}
}

// news are the causes that were not told yet of a Service, which has these now. One that ends and begins again is news.
func (k *Keeper) news(id types.NamespacedName, causes []string) []string {
	news := slices.DeleteFunc(slices.Clone(causes), func(c string) bool { return slices.Contains(k.told[id], c) })
	if len(causes) == 0 {
		delete(k.told, id)
	} else {
		k.told[id] = causes
	}
	return news
}

// advise writes an event of a Service. One that cannot be written is lost: the log has it.
func (k *Keeper) advise(ctx context.Context, s *corev1.Service, a events.Advice) {
	a.Object = corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name, UID: s.UID}
	if err := events.Advise(ctx, k.client, a); err != nil {
		k.log.Debug("event not written", "service", idOf(s).String(), "err", err)
	}
}

func idOf(s *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}
