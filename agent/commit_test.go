package agent

import (
	"errors"
	"testing"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// A pod must not start while its route waits for a missing VRF.
func TestPodDoesNotStartWithPendingObjects(t *testing.T) {
	s, vrfs, routes := kvschedulertest.Markers(t)
	c := &committer{onRefused: func(error) {}, scheduler: s, client: vpp.New("/nowhere", vpp.Options{})}
	pending := eventloop.Setting{Key: routes.Ref("far").String(), Value: "away"}
	created := eventloop.Setting{Key: vrfs.Ref("a").String(), Value: ""}
	out, err := c.Commit(t.Context(), eventloop.Change{
		Atomic: true,
		Label:  "ADD",
		Set:    []eventloop.Setting{created, pending},
	})
	if !errors.Is(err, kvscheduler.ErrPending) || !out.Undone {
		t.Errorf("%v, undone: %v; want a failed ADD", err, out.Undone)
	}
	for name := range s.View().All(vrfs.Ref("a").Kind) {
		t.Errorf("%s is left over", name)
	}
	for name := range s.View().All(routes.Ref("far").Kind) {
		t.Errorf("%s is left over", name)
	}
}
