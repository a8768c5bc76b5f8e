package main

import (
	"context"
	"fmt"
	"os"

	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/traffic"
)

// stay keeps pods, agent and dataplane running until the interrupt, with light traffic from A to B, and then deletes
// the pods and compares.
func (d *demo) stay(ctx context.Context) error {
	for i, l := range d.b.links {
		wait, err := traffic.Trickle(ctx, d.a.Netns, l.Bare()[0], 1200/(i+1))
		if err != nil {
			return err
		}
		defer wait()
	}
	fmt.Fprintf(d.out, `
It is left running. In another terminal:
  %[1]s
  export WEFT_SOCKET=%[2]s PATH=$PATH:%[3]s
  weftctl status
  weftctl attachments
  weftctl transactions
  weftctl objects
  weftctl events -f
  weftctl ui --no-open         # the page; works also outside: weftctl ui --socket %[2]s
  ping %[4]s                 # pod b, from the node
  nsenter --net=%[5]s ping %[6]s   # pod b, from pod a
Logs: %[7]s %[8]s
Ctrl-C (or kill %[9]d) here deletes the pods and takes everything away.
`, netns.EnterCommand(), d.node.Socket(), d.node.Program(""), d.b.main()[0], d.a.Netns, d.b.main()[0],
		d.node.AgentLog(), d.node.DataplaneLog(), os.Getpid())
	<-ctx.Done()
	return d.step(context.WithoutCancel(ctx), step{
		"the runtime deletes all five, and kubelet forgets them: nothing is left over", (*demo).leave,
	})
}
