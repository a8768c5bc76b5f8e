// Command memifbridge joins the memifs of its container to one Ethernet segment.
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
)

const usage = `memifbridge joins the memifs of its container to one Ethernet segment: a learning switch.

It reads the environment that Weft provides: MEMIF_SOCKET, MEMIF_SECRET or the file secret, and interfaces.json beside the socket.
It reconnects when the node's dataplane restarts. SIGINT and SIGTERM end it.

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
		fmt.Fprintln(os.Stderr, "memifbridge:", err)
		os.Exit(1)
	}
}

// run forwards frames until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("memifbridge", flag.ContinueOnError)
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
	if len(chosen) < 2 {
		return fmt.Errorf("%d Ethernet memifs in interfaces.json, need two", len(chosen))
	}
	return bridge(ctx, e, chosen, out)
}

// bridge connects to the memifs and forwards frames between them.
func bridge(ctx context.Context, e *memif.Environment, chosen []memif.Description, out io.Writer) error {
	s := &segment{where: make(map[address]int)}
	var lines sync.Mutex
	for _, d := range chosen {
		client, err := memif.Dial(ctx, e.Client(d), memif.ClientEvents{
			Connected:    func(memif.Info) { say(&lines, out, d.Name, "connected") },
			Disconnected: func(err error) { say(&lines, out, d.Name, err) },
			Failed:       func(err error) { say(&lines, out, d.Name, err) },
		})
		if err != nil {
			return fmt.Errorf("connect %s: %w", d.Name, err)
		}
		defer client.Close()
		s.ports = append(s.ports, client)
	}
	var running sync.WaitGroup
	for i := range s.ports {
		running.Go(func() { s.forward(ctx, i) })
	}
	running.Wait()
	return nil
}

// say prints one line, for several goroutines.
func say(lines *sync.Mutex, out io.Writer, name string, what any) {
	lines.Lock()
	defer lines.Unlock()
	fmt.Fprintf(out, "%s: %v\n", name, what)
}
