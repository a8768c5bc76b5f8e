package podmanager

import (
	"context"
	"errors"
	"testing"

	"github.com/weftnet/weft/pod"
)

func TestKubeletIsAskedOnlyWhereAMemifIsWanted(t *testing.T) {
	for _, tc := range []struct {
		custom string
		want   int
	}{{"", 0}, {"t1/tap", 0}, {"t1/tap,m1/memif", 1}, {"not readable", 0}} {
		n := newNode(t)
		asked, seen := 0, 0
		n.config.Grants = func(_ context.Context, id pod.ID) ([]pod.Grant, error) {
			asked++
			return []pod.Grant{{Container: id.Name}}, nil
		}
		n.wiring = func(_ context.Context, ev *pod.AddPod) error {
			seen = len(ev.Grants)
			return nil
		}
		req := addOf("c1", "/run/netns/a")
		req.HasAnnotations, req.Annotations = true, map[string]string{pod.AnnotationCustom: tc.custom}
		if reply, err := n.Add(context.Background(), req); err != nil || reply.GetError() != nil {
			t.Fatalf("%q: %v, %v", tc.custom, reply, err)
		}
		if asked != tc.want || seen != tc.want {
			t.Errorf("%q: asked %d times, %d grants in the event, want %d", tc.custom, asked, seen, tc.want)
		}
	}
}

func TestWhileKubeletDoesNotAnswerThePodIsToBeTriedAgain(t *testing.T) {
	n := newNode(t)
	n.config.Grants = func(context.Context, pod.ID) ([]pod.Grant, error) { return nil, errors.New("no answer") }
	req := addOf("c1", "/run/netns/a")
	req.HasAnnotations, req.Annotations = true, map[string]string{pod.AnnotationCustom: "m1/memif"}
	reply, err := n.Add(context.Background(), req)
	if err != nil || reply.GetError().GetCode() != uint32(pod.CodeTryAgain) {
		t.Errorf("reply %v, error %v", reply, err)
	}
	if refusals, _ := n.refusals(t); len(refusals) != 1 {
		t.Errorf("the ADD was handled; refused are %q", refusals)
	}
}
