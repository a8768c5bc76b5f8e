package ctl_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/ctl/ctltest"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	"github.com/weftnet/weft/test/pages"
)

// The outputs of commands in docs/troubleshooting.md are those of the program.
func TestOutputsOfTroubleshooting(t *testing.T) {
	source, err := os.ReadFile("../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	starting := ctltest.Sample(now)
	state := starting.State
	state.Ready = false
	state.Started = timestamppb.New(now.Add(-3 * time.Second))
	state.Events = 0
	state.Queue = 0
	state.Running = ""
	state.Attachments = 0
	state.Objects = nil
	state.Conditions = []*operatorv1.Condition{
		{Name: "started", Message: "the first resync has not ended"},
		{Name: "dataplane", Ok: true, Message: state.Dataplane},
	}
	t.Chdir(t.TempDir())
	manifest := "kind: Pod\napiVersion: v1\nmetadata:\n  name: router\n  annotations:\n    contivpp.io/custom-if: t1/tub\nspec: {containers: [{name: a}]}\n"
	if err := os.WriteFile("pod.yaml", []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, b := range pages.Parse("troubleshooting.md", source).Blocks {
		if b.Language != "console" {
			continue
		}
		checked++
		command, want, _ := strings.Cut(strings.TrimPrefix(b.Text, "$ weftctl "), "\n")
		if got, _, _ := answer(t, starting, strings.Fields(command)...); got != want {
			t.Errorf("weftctl %s prints\n%s\nand on the page it is\n%s", command, got, want)
		}
	}
	if checked < 2 {
		t.Errorf("checked %d commands", checked)
	}
}
