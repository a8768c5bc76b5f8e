package informer_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/weftnet/weft/k8s/informer"
)

// slices is an API server without EndpointSlices, whose watch is that of a test.
type slices struct{ events *watch.FakeWatcher }

func (s slices) List(context.Context, metav1.ListOptions) (*discoveryv1.EndpointSliceList, error) {
	return &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (s slices) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, errors.New("only lists")
	}
	return s.events, nil
}

func slice(version, service string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace:       "a",
		Name:            "web-1",
		ResourceVersion: version,
		Labels:          map[string]string{discoveryv1.LabelServiceName: service},
	}}
}

// The work for a group may be long: a change of one of its objects is one call.
func TestGroupIsToldOncePerChange(t *testing.T) {
	g := informer.NewGroup(slog.New(slog.DiscardHandler))
	events := watch.NewFake()
	in := informer.Add(g, "endpoint slices", slices{events}, informer.Options[*discoveryv1.EndpointSlice]{})
	told := make(chan string, 100)
	in.OnGroup(func(o *discoveryv1.EndpointSlice) string { return o.Labels[discoveryv1.LabelServiceName] },
		func(group string) { told <- group })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	events.Add(slice("2", "web"))
	events.Modify(slice("3", "web"))
	events.Modify(slice("4", "shop"))
	events.Delete(slice("5", "shop"))
	// new, changed, moved from one to the other, gone
	for n, want := range []string{"web", "web", "web", "shop", "shop"} {
		if got := <-told; got != want {
			t.Errorf("call %d is of %s, want %s", n, got, want)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(told) > 0 {
		t.Errorf("a further call is of %s", <-told)
	}
}
