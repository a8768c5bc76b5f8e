package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/memif/echo"
	"github.com/weftnet/weft/memif/kerneltap"
)

// Limits of the server, whose clients are the probe pods of one test.
const (
	maxConnections = 64
	connectionLife = 30 * time.Second
	maxDatagram    = 64 << 10
)

// Serve echoes TCP and UDP on a port of all addresses, and answers pings on the memifs of the container, until ctx
// ends. It writes "serving" when it does.
func Serve(ctx context.Context, port uint16, out io.Writer) error {
	address := fmt.Sprintf(":%d", port)
	streams, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	datagrams, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", streams.Addr().String())
	if err != nil {
		_ = streams.Close()
		return err
	}
	end := context.AfterFunc(ctx, func() {
		_ = streams.Close()
		_ = datagrams.Close()
	})
	defer end()
	var running sync.WaitGroup
	defer running.Wait()
	if err := serveMemifs(ctx, &running, out); err != nil {
		_ = streams.Close()
		_ = datagrams.Close()
		return err
	}
	running.Go(func() { echoDatagrams(datagrams) })
	fmt.Fprintf(out, "serving on %s\n", streams.Addr())
	err = echoStreams(ctx, streams, &running)
	if ctx.Err() != nil {
		return nil
	}
	_ = datagrams.Close()
	return err
}

// serveMemifs answers pings on the memifs of this container.
func serveMemifs(ctx context.Context, running *sync.WaitGroup, out io.Writer) error {
	if os.Getenv(memif.SocketVariable) == "" {
		return nil
	}
	e, err := memif.ReadEnvironment()
	if err != nil {
		return err
	}
	for _, d := range e.Interfaces {
		running.Go(func() { echo.Serve(ctx, e.Client(d), d, eventsOf(d, out)) })
	}
	return nil
}

func eventsOf(d memif.Description, out io.Writer) memif.ClientEvents {
	return memif.ClientEvents{
		Connected:    func(memif.Info) { fmt.Fprintf(out, "%s: connected\n", d.Name) },
		Disconnected: func(err error) { fmt.Fprintf(out, "%s: disconnected: %v\n", d.Name, err) },
		Failed:       func(err error) { fmt.Fprintf(out, "%s: not connected: %v\n", d.Name, err) },
	}
}

// Tap makes each memif of the container a tap of the pod's kernel, until ctx ends.
func Tap(ctx context.Context, out io.Writer) error {
	e, err := memif.ReadEnvironment()
	if err != nil {
		return err
	}
	taps, ctx := errgroup.WithContext(ctx)
	for _, d := range e.Interfaces {
		taps.Go(func() error { return kerneltap.Serve(ctx, e.Client(d), d, eventsOf(d, out)) })
	}
	return taps.Wait()
}

// echoStreams echoes the bytes of each connection, until the listener is closed.
func echoStreams(ctx context.Context, streams net.Listener, running *sync.WaitGroup) error {
	places := make(chan struct{}, maxConnections)
	for {
		conn, err := streams.Accept()
		if err != nil {
			return err
		}
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			end := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer end()
			_ = conn.SetDeadline(time.Now().Add(connectionLife)) // of an open connection
			_, _ = io.Copy(conn, conn)                           // the client sees a failure
		})
	}
}

// echoDatagrams echoes each datagram, until the socket is closed.
func echoDatagrams(datagrams net.PacketConn) {
	buffer := make([]byte, maxDatagram)
	for {
		n, from, err := datagrams.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = datagrams.WriteTo(buffer[:n], from) // a lost reply is a lost packet
		}
	}
}
