// Command weftctl shows an operator what the agent of this node did and why.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/weftnet/weft/ctl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := ctl.Main(ctx, ctl.Env{Out: os.Stdout, Err: os.Stderr, Plugin: ctl.IsPlugin(os.Args[0])},
		ctl.Arguments(os.Args[0], os.Args[1:]))
	stop()
	os.Exit(code)
}
