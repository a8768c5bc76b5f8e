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

// weftctl plan and weftctl pod say the same of an interface on the default network.
func TestInterfacesWithoutANetworkAreOnTheDefaultOne(t *testing.T) {
	var plan, details bytes.Buffer
	printPlannedInterfaces(&printer{out: &plan}, &operatorv1.PlanReply{
		Interfaces: []*operatorv1.InterfaceInfo{{Name: "eth0", Type: "tap", Mtu: 1500}},
	})
	if row := strings.Fields(strings.Split(plan.String(), "\n")[1]); len(row) < 3 || row[2] != "default" {
		t.Errorf("plan %q", plan.String())
	}
	printPodInterface(&printer{out: &details}, &story{}, nil, &operatorv1.InterfaceInfo{Name: "eth0", Type: "tap"})
	if !strings.Contains(details.String(), "on network default,") {
		t.Errorf("pod %q", details.String())
	}
}
