package memif_test

import (
	"context"
	"fmt"
	"os"

	"github.com/weftnet/weft/memif"
)

// A program in a pod sends back what it receives.
func ExampleFromEnv() {
	ctx := context.Background()
	clients, err := memif.FromEnv(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	packet := make([]byte, memif.DefaultMaxPacket)
	for {
		n, err := clients[0].ReadPacket(ctx, packet)
		if err != nil {
			return
		}
		// A connection that ends is made again automatically; a packet in between is lost.
		_ = clients[0].WritePacket(ctx, packet[:n])
	}
}

// A dataplane serves one interface and polls it until the client disconnects.
func ExampleListen() {
	connected := make(chan *memif.Conn)
	gone := make(chan *memif.Conn, 1)
	listener, err := memif.Listen("/run/example/memif.sock", memif.ListenOptions{Name: "example"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer listener.Close()
	_, err = listener.Add(memif.Config{
		ID: 1, Secret: "open sesame", Name: "example/1",
		Connected:    func(c *memif.Conn) { connected <- c },
		Disconnected: func(c *memif.Conn, _ error) { gone <- c },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	conn := <-connected
	burst := make([][]byte, 256)
	for i := range burst {
		burst[i] = make([]byte, 2048)
	}
	for {
		select {
		case <-gone:
			conn.Release() // after the last use of its queues
			return
		default:
		}
		n := conn.RxQueues()[0].Receive(burst)
		conn.TxQueues()[0].Send(burst[:n])
	}
}
