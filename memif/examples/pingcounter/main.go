// Command pingcounter answers pings on the first memif of its container, and prints a line for each reply.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/memif/echo"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pingcounter:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	environment, err := memif.ReadEnvironment()
	if err != nil {
		return err
	}
	if len(environment.Interfaces) == 0 {
		return errors.New("interfaces.json has no memif")
	}
	m1 := environment.Interfaces[0]
	client, err := memif.Dial(ctx, environment.Client(m1), memif.ClientEvents{})
	if err != nil {
		return err
	}
	defer client.Close()
	fmt.Fprintf(out, "%s: connected, addresses %v\n", m1.Name, m1.Addresses)
	host := echo.NewHost(m1) // answers ARP, neighbour solicitations and pings for these addresses
	packet := make([]byte, memif.DefaultMaxPacket)
	for replies := 1; ; {
		n, err := client.ReadPacket(ctx, packet)
		if err != nil {
			return err
		}
		reply := host.Answer(packet[:n])
		if reply == nil {
			continue
		}
		// A reply is lost if the dataplane restarts now: the client reconnects by itself.
		_ = client.WritePacket(ctx, reply)
		fmt.Fprintf(out, "%s: reply %d, %d bytes\n", m1.Name, replies, len(reply))
		replies++
	}
}
