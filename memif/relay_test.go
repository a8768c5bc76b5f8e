package memif

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// relayedPair returns a client of a broker process, the client's end of its socket, and the Broker's end of the relay.
func relayedPair(t *testing.T) (c *relayed, client *packetSocket, broker *control) {
	t.Helper()
	socket, client := pairOfSockets(t)
	relay, own := pairOfSockets(t)
	channel, other := pairOfSockets(t)
	go func() {
		for {
			if _, _, err := receiveNote(other); err != nil {
				return
			}
		}
	}()
	c = &relayed{process: &brokerProcess{channel: channel}, number: 1, socket: socket, relay: relay}
	return c, client, &control{socket: own, client: &brokeredClient{stop: make(chan struct{})}}
}

func pairOfSockets(t *testing.T) (one, two *packetSocket) {
	t.Helper()
	one, fd, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	if two, err = socketOf(fd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = one.Close(); _ = two.Close() })
	return one, two
}

// A client that is killed long after its last message: the deadline of that message has passed, and the Broker learns of the end all the same.
func TestEndOfAClientReachesTheBrokerAfterTheDeadlineOfItsLastMessage(t *testing.T) {
	c, client, broker := relayedPair(t)
	if err := c.relay.SetWriteDeadline(longAgo); err != nil {
		t.Fatal(err)
	}
	go c.run()
	_ = client.Close()
	_ = broker.socket.SetReadDeadline(time.Now().Add(timeout))
	if _, _, err := broker.receive(); !isEnd(err) {
		t.Fatalf("the Broker got %v, want the end of the client", err)
	}
}

// isEnd reports whether a receive has ended with the client's end, and not with that of the broker process.
func isEnd(err error) bool { return err != nil && strings.HasSuffix(err.Error(), "EOF") }

// Deadlines of messages and their errors have one owner.
func TestOnlyPacketSocketsSend(t *testing.T) {
	const owner = "packetsocket.go"
	owned := map[string]bool{"SetWriteDeadline": true, "WriteMsgUnix": true, "WriteToUnix": true}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			of, is := call.Fun.(*ast.SelectorExpr)
			if !is {
				return true
			}
			receiver, _ := of.X.(*ast.SelectorExpr)
			raw := of.Sel.Name == "Write" && receiver != nil && (receiver.Sel.Name == "relay" || receiver.Sel.Name == "socket")
			switch {
			case !raw && !owned[of.Sel.Name]:
			case e.Name() == owner:
				found++
			default:
				t.Errorf("%s: a message is sent by %s, not by packetSocket.send", e.Name(), of.Sel.Name)
			}
			return true
		})
	}
	if found < 2 {
		t.Errorf("%d calls in %s", found, owner)
	}
}

// noSocket returns a socket whose every use fails.
func noSocket() *packetSocket { return &packetSocket{UnixConn: new(net.UnixConn)} }
