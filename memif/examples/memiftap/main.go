// Command memiftap joins each memif of its container to a tap of the kernel.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/memif/kerneltap"
)

const usage = `memiftap makes a tap for each Ethernet memif of its container, with the name, MAC, addresses and routes of the memif, and forwards
frames between them. So programs of the pod use the network of a memif with sockets.

It reads the environment that Weft provides: MEMIF_SOCKET, MEMIF_SECRET or the file secret, and interfaces.json beside the socket.
It needs /dev/net/tun and the capability NET_ADMIN. It reconnects when the node's dataplane restarts. SIGINT and SIGTERM end it.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "memiftap:", err)
		os.Exit(1)
	}
}

// run forwards frames until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("memiftap", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
	}
	only := flags.String("interfaces", "", "comma-separated names of interfaces; empty: all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	e, err := memif.ReadEnvironment()
	if err != nil {
		return err
	}
	selected, err := e.Select(*only)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(selected, func(d memif.Description) bool { return d.Mode != memif.Ethernet })
	if len(chosen) == 0 {
		return errors.New("no Ethernet memif to connect to in interfaces.json")
	}
	return join(ctx, e, chosen, out)
}

// join makes the taps and connects the memifs, all at once: the other end of a direct memif may wait for another one.
func join(ctx context.Context, e *memif.Environment, chosen []memif.Description, out io.Writer) error {
	var lines sync.Mutex
	say := func(name string, what any) {
		lines.Lock()
		defer lines.Unlock()
		fmt.Fprintf(out, "%s: %v\n", name, what)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	for _, d := range chosen {
		events := memif.ClientEvents{
			Connected:    func(memif.Info) { say(d.Name, "connected") },
			Disconnected: func(err error) { say(d.Name, err) },
			Failed:       func(err error) { say(d.Name, err) },
		}
		running.Go(func() {
			if err := kerneltap.Serve(ctx, e.Client(d), d, events); err != nil {
				stop(err)
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
