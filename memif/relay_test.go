package memif

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// A client that is killed long after its last message: the deadline of that message has passed, and the Broker learns
// of the end all the same.
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

// A message that does not reach the Broker ends both connections: nothing reads from the client any more, and its end
// would not be noticed.
func TestClientIsHungUpOnWhenItsMessageIsLost(t *testing.T) {
	c, client, _ := relayedPair(t)
	if err := c.relay.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	go c.run()
	if err := client.send(newMessage(connectMessage)[:]); err != nil {
		t.Fatal(err)
	}
	_ = client.SetReadDeadline(time.Now().Add(timeout))
	peer := control{socket: client}
	if _, _, err := peer.receive(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the client got %v, want the end of its connection", err)
	}
}

// rejoining returns a connection without a relay that waits for one, and the client's end of its socket.
func rejoining(t *testing.T) (b *Broker, client *packetSocket, joined chan bool) {
	t.Helper()
	b = &Broker{clients: map[uint64]*brokeredClient{}, yielded: make(chan struct{})}
	socket, client := pairOfSockets(t)
	duplicate, err := socket.File()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(duplicate.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_ = duplicate.Close()
	_ = socket.Close()
	held := &brokeredClient{
		broker:      b,
		number:      1,
		socket:      fd,
		established: true,
		relays:      make(chan *packetSocket, 1),
		stop:        make(chan struct{}),
	}
	b.clients[1] = held
	t.Cleanup(b.forget)
	joined = make(chan bool, 1)
	go func() { joined <- (&control{socket: noSocket(), client: held}).rejoin() }()
	return b, client, joined
}

func TestWaitForTheNextBrokerProcessEnds(t *testing.T) {
	ends := map[string]func(b *Broker, client *packetSocket){
		"when the client hangs up": func(_ *Broker, client *packetSocket) { _ = client.Close() },
		"when the process has closed the client": func(b *Broker, _ *packetSocket) {
			b.handle(note{kind: noteClosed, client: 1}, nil)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			b, client, joined := rejoining(t)
			end(b, client)
			if await(t, joined, "end of the wait") {
				t.Error("the connection continues")
			}
		})
	}
}

// The Broker waits for what notes say: a process that loses one ends, and the next one gets all sockets.
func TestBrokerProcessThatLosesANoteEnds(t *testing.T) {
	channel, _ := pairOfSockets(t)
	p := &brokerProcess{channel: channel}
	ended := make(chan error, 1)
	go func() { ended <- p.serve() }()
	for p.lost.Load() == nil {
		p.tell(note{kind: noteClosed, client: 1})
	}
	if err := await(t, ended, "end of the process"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the process ended with %v", err)
	}
}

// A client may hold up the goroutine that reads from it, as by descriptors whose close takes an hour. Here nothing
// reads from it.
func TestSuccessorConnectsAlthoughTheEndOfItsPredecessorIsNotSeen(t *testing.T) {
	l := newLab(t, ListenOptions{})
	i := l.addReleasing(t, hostileConfig)
	socket, client := pairOfSockets(t)
	conn := newConn(&control{socket: socket})
	conn.handed = true
	conn.released = i.vacate
	if err := i.claim(conn); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	next, err := Connect(t.Context(), ClientConfig{Socket: l.Path(), ID: 1, Secret: hostileConfig.Secret})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Release()
	await(t, l.connected, "connection of the successor")
	_ = await(t, l.disconnected, "end of the predecessor")
}

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
			raw := of.Sel.Name == "Write" && receiver != nil &&
				(receiver.Sel.Name == "relay" || receiver.Sel.Name == "socket")
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
