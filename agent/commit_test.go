package agent

import (
	"errors"
	"testing"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
)

// A pod whose route waits for a VRF that is not there would start without that route.
func TestAPodDoesNotStartWithUnmadeObjects(t *testing.T) {
	s, vrfs, routes := markers(t)
	c := &committer{onRefused: func(error) {}, scheduler: s, client: vpp.New("/nowhere", vpp.Options{})}
	waiting := eventloop.Setting{Key: routes.Ref("far").String(), Value: "away"}
	there := eventloop.Setting{Key: vrfs.Ref("a").String(), Value: ""}
	out, err := c.Commit(t.Context(), eventloop.Change{Atomic: true, Label: "ADD", Set: []eventloop.Setting{there, waiting}})
	if !errors.Is(err, kvscheduler.ErrPending) || !out.Undone {
		t.Errorf("%v, undone: %v; expected that the ADD fails", err, out.Undone)
	}
	if left := matching(s.View(), "vpp."); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
