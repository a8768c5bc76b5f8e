package operations

import (
	"slices"
	"strings"
	"testing"
	"time"

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
	waits := []string{"vpp.route/far waits for vpp.vrf/c: no desired object of that name"}
	for ref, want := range map[string][]string{
		"vpp.vrf/a":      {"vpp.vrf/a is in sync", "  last operation: create (desired) 0s ago, in transaction 1"},
		"vpp.vrf":        {"all 2 objects are in sync"},
		"vpp.route/fine": {"vpp.route/fine is in sync", "  last operation: create (desired) 0s ago, in transaction 1"},
		"vpp.route/far":  waits,
		"vpp.route/f":    waits, // not vpp.route/fine, which is in sync
		"vpp.route/x":    {"vpp.route/x: no desired object of that name"},
		"x":              {`no objects with prefix "x"; weftctl objects lists all`},
	} {
		reply, err := (New(Config{Scheduler: s})).Why(t.Context(), &operatorv1.WhyRequest{Ref: ref})
		if err != nil || !slices.Equal(reply.GetLines(), want) {
			t.Errorf("%s: %q, %v, want %q", ref, reply.GetLines(), err, want)
		}
		var lines []string
		for _, r := range reply.Reasons {
			lines = append(lines, r.Text)
			if waits := strings.Contains(r.Text, " waits for "); waits != (r.WaitsFor == "vpp.vrf/c") ||
				!strings.HasPrefix(r.Text, r.Ref) || waits != (r.Phase == "Pending") {
				t.Errorf("%s: %v", ref, r)
			}
		}
		if len(lines) > 0 && !slices.Equal(lines, want) {
			t.Errorf("%s: reasons %q, want %q", ref, lines, want)
		}
		for _, last := range reply.LastOperations {
			if last.Ref != ref || last.Verb != "create" || last.Why != "desired" || last.Transaction != 1 ||
				time.Since(last.At.AsTime()) > time.Minute {
				t.Errorf("%s: %v", ref, last)
			}
		}
		if described := len(want) == 2; described != (len(reply.LastOperations) == 1) ||
			(len(lines) > 0) != (len(want) == 1 && strings.HasPrefix(want[0], "vpp.route/")) {
			t.Errorf("%s: %d reasons, last operations %v", ref, len(lines), reply.LastOperations)
		}
		if found := ref != "vpp.route/x" && ref != "x"; reply.GetFound() != found {
			t.Errorf("%s: found %t", ref, !found)
		}
	}
}
