package operations

import (
	"errors"
	"testing"

	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/agent/shown"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestConditionRepairedNamesObjectsThatAreNotAsDesired(t *testing.T) {
	for _, tc := range []struct {
		name     string
		degraded []string
		objects  map[string]uint32
		down     error
		want     string
	}{
		{"all in sync", nil, map[string]uint32{"InSync": 7, "Observed": 2}, nil, ""},
		{"an undo failed", []string{"a/b"}, nil, nil, "could not be undone or applied: a/b"},
		{
			"failed and pending objects", nil, map[string]uint32{"Failed": 1, "Pending": 2}, nil,
			"objects not as desired: 1 Failed, 2 Pending; weftctl objects lists them",
		},
		{
			"dataplane not connected", nil, map[string]uint32{"InSync": 3, "Unknown": 5}, errors.New("lost"),
			"5 Unknown: the dataplane is not connected",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if c := repaired(tc.degraded, tc.objects, tc.down); c.Message != tc.want || c.Ok != (tc.want == "") {
				t.Errorf("got %v, %q", c.Ok, c.Message)
			}
		})
	}
}

func TestObjectsAreCountedByPhase(t *testing.T) {
	s, vrfs, routes := kvschedulertest.Markers(t)
	set := []kvscheduler.Object{vrfs.Put("a", ""), routes.Put("fine", "a"), routes.Put("far", "c")}
	if _, err := s.Commit(t.Context(), kvscheduler.Txn{Source: "weft", Set: set}); err != nil {
		t.Fatal(err)
	}
	refs := matching(s.View(), "vpp.")
	if got := countsOf(s.View(), refs,
		new(owners.Snapshot)); got != "1 Pending, 2 InSync; the first that is not in sync is vpp.route/far" {
		t.Error(got)
	}
	if got := phasesOf(s.View(), true); got[shown.PhaseUnknown] != 2 || got["InSync"] != 0 || got["Pending"] != 1 {
		t.Errorf("dataplane not connected: %v", got)
	}
}
