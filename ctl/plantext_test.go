package ctl

import (
	"bytes"
	"strings"
	"testing"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// A part of a plan that would not happen is said as clearly as the operations.
func TestPlanListsWhatIsSkippedAndWhatWaits(t *testing.T) {
	var out bytes.Buffer
	c := &client{printer: printer{out: &out, format: "table"}}
	reply := &operatorv1.PlanReply{
		Operations: []*operatorv1.PlannedOperation{{Step: 1, Verb: "create", Ref: "vpp.route/a", Why: "new"}},
		Waiting:    []string{"vpp.route/b waits for vpp.interface/c"}, Notes: []string{"paused"},
		Skipped: []string{"vpp.route/d: invalid\nprefix \x1b[31m"},
	}
	if err := showPlan(c, reply, "plan"); err != nil {
		t.Error(err)
	}
	want := "waits: vpp.route/b waits for vpp.interface/c\nskipped: vpp.route/d: invalid prefix �[31m\nnote: paused\nplan: 1 operation, nothing was changed\n"
	if got := out.String(); !strings.HasSuffix(got, want) || !strings.Contains(got, "create") {
		t.Errorf("plan\n%s\nwant at its end\n%s", got, want)
	}
}
