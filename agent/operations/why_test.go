package operations

import (
	"slices"
	"testing"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func TestWhyExplainsObjects(t *testing.T) {
	s, vrfs, routes := kvschedulertest.Markers(t)
	set := []kvscheduler.Object{vrfs.Put("a", ""), vrfs.Put("b", ""), routes.Put("fine", "a"), routes.Put("far", "c")}
	if _, err := s.Commit(t.Context(), kvscheduler.Txn{Source: "weft", Set: set}); err != nil {
		t.Fatal(err)
	}
	waits := []string{"vpp.route/far waits for vpp.vrf/c: no object of that name was seen or is desired"}
	for ref, want := range map[string][]string{
		"vpp.vrf/a":      {"vpp.vrf/a is in sync", "  last operation: create (desired) 0s ago, in transaction 1"},
		"vpp.vrf":        {"all 2 objects are in sync"},
		"vpp.route/fine": {"vpp.route/fine is in sync", "  last operation: create (desired) 0s ago, in transaction 1"},
		"vpp.route/far":  waits,
		"vpp.route/f":    waits, // not vpp.route/fine, which is in sync
		"vpp.route/x":    {"vpp.route/x: no object of that name was seen or is desired"},
		"x":              {`no objects with prefix "x"; weftctl objects lists all`},
	} {
		reply, err := (New(Config{Scheduler: s})).Why(t.Context(), &operatorv1.WhyRequest{Ref: ref})
		if err != nil || !slices.Equal(reply.GetLines(), want) {
			t.Errorf("%s: %q, %v, want %q", ref, reply.GetLines(), err, want)
		}
		if found := ref != "vpp.route/x" && ref != "x"; reply.GetFound() != found {
			t.Errorf("%s: found %t", ref, !found)
		}
	}
}
