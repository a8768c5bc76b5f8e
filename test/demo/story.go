package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/node"
)

// demo is the state of the story: the node, its pods, and a snapshot from before the first pod.
type demo struct {
	node    *node.Node
	runtime *node.Runtime
	out     io.Writer
	steps   int

	a, b, c, d, e attachedPod
	memif         memifPod
	before        leftovers.Snapshot
}

// step is one step of the story that must succeed; it prints lines with d.say.
type step struct {
	title string
	do    func(*demo, context.Context) error
}

// settling is the time in which the kernel may remove objects and close connections.
const settling = 5 * time.Second

// story returns the steps of a demo that ends, or that keeps its node.
func story(keep bool) []step {
	steps := []step{
		{"five sandboxes on a private node; C's sandbox already has a default route", (*demo).prepare},
		{"the agent starts, and starts its dataplane", (*demo).start},
		{
			fmt.Sprintf(
				"the runtime adds A and B: IPv4 and IPv6 each; a %s, a %[1]s on the L2 network blue, a veth on the L3 network red",
				dataplane.Tap()),
			(*demo).addPods,
		},
		{"A, B and the node reach each other", (*demo).reachAll},
		{"A and B reach each other on blue and red", (*demo).reachOnNetworks},
		{"100 MB from A to B arrive unchanged on every network", (*demo).transferAll},
		{"the runtime adds E on the L2 network green, with the addresses that A has on blue", (*demo).addE},
		{"kubelet allocates a memif for D, and the runtime adds D with it on blue", (*demo).addD},
		{"a responder in D connects with the environment of Allocate; A and B reach it", (*demo).reachMemif},
		{
			"a client with a wrong secret or an id in use is refused; the responder is killed and connects again",
			(*demo).guardMemif,
		},
		{"networks are isolated", (*demo).isolation},
		{"the runtime adds C, which must fail: all of it is undone", (*demo).failC},
		{"the agent's transactions, by weftctl transactions", (*demo).showTransactions},
		{"kill -9 of the agent during 100 pings a second, and a new agent", (*demo).crash},
		{"the runtime checks A, B, D and E", (*demo).check},
	}
	if !keep {
		steps = append(steps, step{
			"the runtime deletes all five, and kubelet forgets them: nothing is left over", (*demo).leave,
		},
			step{"all events, by weftctl events", (*demo).showEvents})
	}
	return steps
}

// runSteps runs the steps, and stops at the first error.
func (d *demo) runSteps(ctx context.Context, keep bool) error {
	begun := time.Now()
	for _, s := range story(keep) {
		if err := d.step(ctx, s); err != nil {
			return err
		}
	}
	if keep {
		return d.stay(ctx)
	}
	fmt.Fprintf(d.out, "\nAll as expected, in %s.\n%s", short(time.Since(begun)), whereToLook)
	return nil
}

const whereToLook = `Where to look next:
  make demo KEEP=1      the same, left running for weftctl
  ARCHITECTURE.md       the packages, and walks through the code
  make test             what proves it
`

func (d *demo) step(ctx context.Context, s step) error {
	d.steps++
	fmt.Fprintf(d.out, "%d. %s\n", d.steps, s.title)
	begun := time.Now()
	if err := s.do(d, ctx); err != nil {
		return fmt.Errorf("step %d (%s): %w", d.steps, s.title, err)
	}
	d.printf("done in %s", short(time.Since(begun)))
	return nil
}

// printf prints a line of the story.
func (d *demo) printf(format string, args ...any) {
	fmt.Fprintf(d.out, "     "+format+"\n", args...)
}

// show prints lines unchanged.
func (d *demo) show(text string) {
	for line := range strings.Lines(text) {
		d.printf("%s", strings.TrimRight(line, "\n"))
	}
}

// short rounds a duration for readers.
func short(t time.Duration) time.Duration {
	switch {
	case t > time.Second:
		return t.Round(10 * time.Millisecond)
	case t > time.Millisecond:
		return t.Round(100 * time.Microsecond)
	}
	return t.Round(time.Microsecond)
}

// showFailure prints the agent's last transactions, if it still answers, and the ends of the programs' logs. It keeps
// the logs, with the stack of each goroutine.
func (d *demo) showFailure(ctx context.Context) {
	if text, err := d.node.Weftctl(ctx, "transactions", "5"); err == nil {
		fmt.Fprintf(d.out, "\n--- weftctl transactions 5\n%s", text)
	}
	fmt.Fprint(d.out, d.node.LogTails(20))
	if err := d.node.Abort(); err != nil {
		fmt.Fprintf(d.out, "\n%v\n", err)
	}
	fmt.Fprintf(d.out, "\n--- the logs are kept, with the stack of each goroutine: %s %s\n", d.node.AgentLog(),
		d.node.DataplaneLog())
}
