// Command icmpresponder answers ARP, neighbour solicitations and pings on the memifs of its container.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/memif/echo"
)

const usage = `icmpresponder answers ARP, ICMPv6 neighbour solicitations and pings for the addresses of its container's memifs.

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
		fmt.Fprintln(os.Stderr, "icmpresponder:", err)
		os.Exit(1)
	}
}

// run answers requests until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("icmpresponder", flag.ContinueOnError)
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
	chosen, err := e.Select(*only)
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		return errors.New("no memif to connect to in interfaces.json")
	}
	var running sync.WaitGroup
	lines := &lines{to: out}
	for _, d := range chosen {
		running.Go(func() { c := e.Client(d); echo.Serve(ctx, c, d, lines.events(c.Name)) })
	}
	running.Wait()
	return nil
}

// lines prints one line per event of a connection, without repeats.
type lines struct {
	mu   sync.Mutex
	to   io.Writer
	last map[string]string
}

func (l *lines) events(name string) memif.ClientEvents {
	return memif.ClientEvents{
		Connected: func(i memif.Info) {
			l.print(name, fmt.Sprintf("connected to %s of %s, rings of %d", i.PeerInterface, i.Peer, i.RingSize))
		},
		Disconnected: func(err error) { l.print(name, fmt.Sprintf("disconnected: %v", err)) },
		Failed:       func(err error) { l.print(name, fmt.Sprintf("not connected: %v", err)) },
	}
}

func (l *lines) print(name, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last[name] == line {
		return
	}
	if l.last == nil {
		l.last = make(map[string]string)
	}
	l.last[name] = line
	fmt.Fprintf(l.to, "%s: %s\n", name, line)
}
