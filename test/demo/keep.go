package main

import (
	"context"
	"fmt"
	"os"

	"github.com/weftnet/weft/test/netns"
)

// stay keeps pods, agent and dataplane running until the interrupt, and then deletes the pods and compares.
func (d *demo) stay(ctx context.Context) error {
	fmt.Fprintf(d.out, `
It is left running. In another terminal:
  %s
  export WEFT_SOCKET=%s PATH=$PATH:%s
  weftctl status
  weftctl attachments
  weftctl transactions
  weftctl objects
  weftctl events -f
  ping %s                 # pod b, from the node
  nsenter --net=%s ping %s   # pod b, from pod a
Logs: %s %s
Ctrl-C (or kill %d) here deletes the pods and takes everything away.
`, netns.EnterCommand(), d.node.Socket(), d.node.Program(""), d.b.main()[0], d.a.Netns, d.b.main()[0],
		d.node.AgentLog(), d.node.DataplaneLog(), os.Getpid())
	<-ctx.Done()
	return d.step(context.WithoutCancel(ctx), step{"the runtime deletes all five, and kubelet forgets them: nothing is left over", (*demo).leave})
}
