package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/node"
)

// demo is the story under way: the node it plays on, its pods, and how the node was before the first of them.
type demo struct {
	node    *node.Node
	runtime *node.Runtime
	out     io.Writer
	steps   int

	a, b, c, d, e wired
	memif         memifPod
	before        leftovers.Snapshot
}

// step is one thing that is done and must succeed; it adds lines to the story by d.say.
type step struct {
	title string
	do    func(*demo, context.Context) error
}

// settling is how long the kernel and closing connections may take until nothing is left.
const settling = 5 * time.Second

// tell goes through the steps, and stops at the first that fails.
func (d *demo) tell(ctx context.Context, keep bool) error {
	steps := []step{
		{"five sandboxes on a private node; C's has a default route of its own already", (*demo).prepare},
		{"the agent starts, and starts its dataplane", (*demo).start},
		{fmt.Sprintf("the runtime adds A and B: IPv4 and IPv6 each; a %s, a %[1]s on the L2 network blue, a veth on the L3 network red", dataplane.Tap()), (*demo).addPods},
		{"A, B and the node reach each other", (*demo).reachAll},
		{"A and B reach each other on blue and red", (*demo).reachOnNetworks},
		{"100 MB from A to B arrive whole on every network", (*demo).transferAll},
		{"the runtime adds E on the L2 network green, with A's addresses on blue", (*demo).addE},
		{"kubelet allocates a memif for D, and the runtime adds D with it on blue", (*demo).addD},
		{"a responder in D connects with what Allocate returned; A and B reach it", (*demo).reachMemif},
		{"a client with a wrong secret or an id in use is refused; the responder is killed and connects again", (*demo).guardMemif},
		{"networks are isolated", (*demo).isolation},
		{"the runtime adds C, which cannot succeed: all of it is undone", (*demo).failC},
		{"what the agent did so far, by weftctl transactions", (*demo).showTransactions},
		{"kill -9 of the agent under 100 pings a second, and a new agent", (*demo).crash},
		{"the runtime checks A, B, D and E", (*demo).check},
	}
	if !keep {
		steps = append(steps, step{"the runtime deletes all five, and kubelet forgets them: nothing is left", (*demo).leave},
			step{"all that happened, by weftctl events", (*demo).showEvents})
	}
	begun := time.Now()
	for _, s := range steps {
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
  ARCHITECTURE.md       the packages, and the flow of one ADD
  make test             what proves it
`

func (d *demo) step(ctx context.Context, s step) error {
	d.steps++
	fmt.Fprintf(d.out, "%d. %s\n", d.steps, s.title)
	begun := time.Now()
	if err := s.do(d, ctx); err != nil {
		return fmt.Errorf("step %d (%s): %w", d.steps, s.title, err)
	}
	d.say("done in %s", short(time.Since(begun)))
	return nil
}

// say adds a line to the story.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "     "+format+"\n", args...)
}

// show adds lines as they are.
func (d *demo) show(text string) {
	for line := range strings.Lines(text) {
		d.say("%s", strings.TrimRight(line, "\n"))
	}
}

// short rounds a duration to what a reader wants to know.
func short(t time.Duration) time.Duration {
	switch {
	case t > time.Second:
		return t.Round(10 * time.Millisecond)
	case t > time.Millisecond:
		return t.Round(100 * time.Microsecond)
	}
	return t.Round(time.Microsecond)
}

// lastLines is how much of each log a failure shows.
const lastLines = 20

// showFailure prints what the agent did last, if it can still say so, and the ends of the programs' logs, which stay where they
// are with what each goroutine was at.
func (d *demo) showFailure(ctx context.Context) {
	if text, err := d.node.Weftctl(ctx, "transactions", "5"); err == nil {
		fmt.Fprintf(d.out, "\n--- weftctl transactions 5\n%s", text)
	}
	for _, path := range []string{d.node.AgentLog(), d.node.DataplaneLog()} {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it was not started
		}
		lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
		fmt.Fprintf(d.out, "\n--- the end of %s\n%s\n", path, strings.Join(lines[max(0, len(lines)-lastLines):], "\n"))
	}
	if err := d.node.Abort(); err != nil {
		fmt.Fprintf(d.out, "\n%v\n", err)
	}
	fmt.Fprintf(d.out, "\n--- the logs stay, now with what each goroutine was at: %s %s\n", d.node.AgentLog(), d.node.DataplaneLog())
}
