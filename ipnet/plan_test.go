package ipnet_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// The plan of an ADD reserves no address and consumes no number: all state is as before, and the ADD then commits what
// was planned, or fails with the planned error.
func TestPlanOfAnAddLeavesNoTraceAndIsWhatTheAddCommits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newNode(t, four, six).run(t)
		n.set(rt, custom("blue", pod.L3, "10.5.0.0/29"), custom("red", pod.L2, "10.6.0.0/24"), custom("bare", pod.L2))
		var live []*pod.AddPod
		for i := range rapid.IntRange(1, 14).Draw(rt, "steps") {
			if len(live) > 0 && rapid.IntRange(0, 3).Draw(rt, "delete") == 0 {
				at := rapid.IntRange(0, len(live)-1).Draw(rt, "which")
				n.delete(rt, live[at])
				live = append(live[:at], live[at+1:]...)
				n.now = n.now.Add(coolDown / 2)
			}
			name := fmt.Sprint("p", i)
			if rapid.IntRange(0, 3).Draw(rt, "newer sandbox") == 0 {
				name = "p0"
			}
			extra := rapid.SampledFrom([]string{
				"x/tap/blue", "x/veth/red, y/tap/blue", "x/tap/bare", "x/tap/none", "x/tap/stub",
			}).Draw(rt, "extra")
			ev := asking(name, extra, rapid.SampledFrom([]string{"", `{"x":{"ips":["10.5.0.3"]}}`}).Draw(rt, "options"))
			ev.Key.ContainerID = fmt.Sprint("sandbox", i)
			before := n.state(rt)
			records := len(n.loop.History(0))
			try := *ev
			planned, planErr := n.loop.Plan(t.Context(), &try)
			if after := n.state(rt); after != before || len(n.loop.History(0)) != records {
				rt.Fatalf("the plan of %s (%v) left\n%s\nwas\n%s", ev, planErr, after, before)
			}
			changes := len(n.committer.Changes())
			_, err := n.loop.Do(t.Context(), ev)
			if fmt.Sprint(planErr) != fmt.Sprint(err) {
				rt.Fatalf("%s: planned error %v, error %v", ev, planErr, err)
			}
			if err != nil {
				continue
			}
			live = append(live, ev)
			if got, want := settings(n.committer.Changes()[changes:]...), settings(planned.Change); got != want {
				rt.Fatalf("%s planned\n%s\ncommitted\n%s", ev, want, got)
			}
			if fmt.Sprint(try.Attachment.Interfaces) != fmt.Sprint(ev.Attachment.Interfaces) {
				rt.Fatalf("planned %v, has %v", try.Attachment.Interfaces, ev.Attachment.Interfaces)
			}
		}
	})
}

func settings(changes ...eventloop.Change) string {
	var b strings.Builder
	for _, c := range changes {
		for _, s := range c.Set {
			fmt.Fprintf(&b, "%s %+v\n", s.Key, s.Value)
		}
	}
	return b.String()
}
