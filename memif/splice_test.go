package memif

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const clientSecret = "the client's own secret"

// spliced is the INIT of a client of spliceTo.
var spliced = initiation{version: version, id: 7, secret: secretFieldOf([]byte(clientSecret)), name: "liar"}

// spliceLab is a Splice between clients and the server of a lab, which has hostileConfig.
type spliceLab struct {
	*lab
	broker *Broker
	splice *Splice
}

func newSpliceLab(t *testing.T) *spliceLab {
	t.Helper()
	s := &spliceLab{lab: newLab(t, ListenOptions{}), broker: newBroker(t)}
	s.splice = spliceTo(t, s.broker, s.lab.Path())
	return s
}

// spliceTo splices clients with the server of a path.
func spliceTo(t *testing.T, b *Broker, path string) *Splice {
	t.Helper()
	splice, err := b.Splice(SpliceConfig{
		Path:         filepath.Join(t.TempDir(), "c"),
		ClientID:     7,
		ClientSecret: clientSecret,
		ServerID:     hostileConfig.ID,
		ServerSecret: hostileConfig.Secret,
		Dial: func() (*net.UnixConn, error) {
			return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(splice.Close)
	return splice
}

func (s *spliceLab) client() ClientConfig {
	return ClientConfig{Socket: s.splice.Path(), ID: 7, Secret: clientSecret}
}

// connect connects a client through the Splice.
func (s *spliceLab) connect(t *testing.T) (server, client *Conn) {
	t.Helper()
	return connectPair(t, s.lab, s.client())
}

func (s *spliceLab) isConnected() bool {
	connected, _ := s.splice.State()
	return connected
}

func TestSpliceConnectsClientAndServer(t *testing.T) {
	s := newSpliceLab(t)
	s.add(t, hostileConfig)
	if s.isConnected() {
		t.Error("connected without a client")
	}
	server, client := s.connect(t)
	bothWays(t, server, client)
	eventually(t, "the Splice says so", s.isConnected)
	client.Close()
	_ = await(t, s.disconnected, "end of the connection")
	server.Release()
	eventually(t, "the Splice says so", func() bool { return !s.isConnected() })
	again, other := s.connect(t)
	bothWays(t, again, other)
}

func TestSpliceChecksTheClient(t *testing.T) {
	s := newSpliceLab(t)
	s.addReleasing(t, hostileConfig)
	for want, change := range map[string]func(*ClientConfig){
		"unmatched interface id": func(c *ClientConfig) { c.ID = hostileConfig.ID },
		"secret required":        func(c *ClientConfig) { c.Secret = "" },
		"incorrect secret":       func(c *ClientConfig) { c.Secret = hostileConfig.Secret },
	} {
		c := s.client()
		change(&c)
		if _, err := Connect(t.Context(), c); reasonFrom(err) != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if n := len(s.connected); n != 0 {
		t.Errorf("the server has %d connections", n)
	}
}

func TestSpliceWithoutAServer(t *testing.T) {
	b := newBroker(t)
	splice := spliceTo(t, b, filepath.Join(t.TempDir(), "missing"))
	_, err := Connect(t.Context(), ClientConfig{Socket: splice.Path(), ID: 7, Secret: clientSecret})
	if !strings.Contains(reasonFrom(err), "does not listen") {
		t.Errorf("%v, want that the server does not listen", err)
	}
	if _, err := splice.State(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the Splice reports %v", err)
	}
}

func TestClosedSpliceEndsItsConnection(t *testing.T) {
	s := newSpliceLab(t)
	s.add(t, hostileConfig)
	_, client := s.connect(t)
	s.splice.Close()
	_ = await(t, client.Gone(), "end of the connection")
	_ = await(t, s.disconnected, "end of the connection")
	if _, err := os.Lstat(s.splice.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket file is there: %v", err)
	}
	eventually(t, "the broker has no listener", func() bool {
		s.broker.mu.Lock()
		defer s.broker.mu.Unlock()
		return len(s.broker.listeners) == 0
	})
}

func TestSpliceServesAgainAfterItsBrokerProcessWasKilled(t *testing.T) {
	s := newSpliceLab(t)
	s.add(t, hostileConfig)
	server, client := s.connect(t)
	s.broker.kill(t)
	_ = await(t, client.Gone(), "end of the connection")
	_ = await(t, s.disconnected, "end of the connection")
	server.Release()
	eventually(t, "the Splice says so", func() bool { return !s.isConnected() })
	server, client = s.connect(t)
	bothWays(t, server, client)
}

// A refused client has no part in the state: it was never connected. There is room for a further one only when the
// broker process has told that an earlier one is gone, so this tests at least one that is.
func TestRefusedClientDoesNotCountAsParted(t *testing.T) {
	s := newSpliceLab(t)
	s.add(t, hostileConfig)
	s.connect(t)
	eventually(t, "the Splice says that they are connected", s.isConnected)
	for range 2 * maxSpliced {
		if _, err := Connect(t.Context(), ClientConfig{Socket: s.splice.Path(), ID: 7}); reasonFrom(
			err) != "secret required" {
			t.Fatal(err)
		}
	}
	if !s.isConnected() {
		t.Error("refused clients count as parted")
	}
}

// A server may repeat its last message of the handshake.
func TestClientIsConnectedOnceHoweverOftenTheServerSaysSo(t *testing.T) {
	client, server, splice := rawSplice(t)
	for range 2 {
		if err := server.send(newMessage(connectedMessage), -1); err != nil {
			t.Fatal(err)
		}
		if kind, _ := client.answer(); kind != connectedMessage {
			t.Fatalf("the client got message %d", kind)
		}
	}
	isConnected := func() bool {
		connected, _ := splice.State()
		return connected
	}
	eventually(t, "the Splice says that they are connected", isConnected)
	_ = server.socket.Close()
	eventually(t, "the Splice says that they are not connected", func() bool { return !isConnected() })
}

// rawSplice is a Splice between a client and a server that send any message.
func rawSplice(t *testing.T) (client *liar, server *control, splice *Splice) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	splice = spliceTo(t, newBroker(t), path)
	client = newLiar(t, splice.Path())
	socket, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	server = &control{socket: &packetSocket{UnixConn: socket}}
	if err := server.send(newMessage(helloMessage), -1); err != nil {
		t.Fatal(err)
	}
	if kind, _ := client.answer(); kind != helloMessage {
		t.Fatalf("the client got %d, want the server's message", kind)
	}
	client.say(spliced.encode(), -1)
	if m, _, err := server.receive(); err != nil || m.kind() != initMessage {
		t.Fatalf("the server got %v, %v; want the client's message", m, err)
	}
	return client, server, splice
}

// A descriptor that is neither memory nor an eventfd is replaced by one of /dev/null: the server gets no pipe, socket
// or file of the client.
func TestSplicePassesOnlyMemoryAndEventfds(t *testing.T) {
	client, server, _ := rawSplice(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	client.fds = append(client.fds, pipe[:]...)
	memory := uint32(unix.S_IFREG)
	null := uint32(unix.S_IFCHR)
	for _, sent := range []struct {
		fd   int
		kind uint32
	}{{client.memfd(4096, unix.MFD_ALLOW_SEALING), memory}, {client.eventfd(), 0}, {pipe[0], null}} {
		client.say(newRegion{size: 4096}.encode(), sent.fd)
		m, fd, err := server.receive()
		if err != nil || m.kind() != addRegionMessage {
			t.Fatalf("the server got %v, %v", m, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != sent.kind {
			t.Errorf("the server got a descriptor of mode %#o, %v; want %#o", st.Mode, err, sent.kind)
		}
		_ = unix.Close(fd)
	}
}

// A server that passes descriptors is hung up on, and the client gets none.
func TestSplicePassesNoDescriptorsOfTheServer(t *testing.T) {
	client, server, _ := rawSplice(t)
	if err := server.send(newMessage(ackMessage), client.eventfd()); err != nil {
		t.Fatal(err)
	}
	if kind, _ := client.answer(); kind != 0 {
		t.Errorf("the client got message %d", kind)
	}
}

// lines is a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// A client that sends anything but INIT first is hung up on. The server gets none of it, and serves other clients.
func TestSpliceRefusesMessagesBeforeInit(t *testing.T) {
	log := make(lines, 8)
	b, err := StartBroker(slog.New(slog.NewTextHandler(log, nil)), brokerArgument)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	splice := spliceTo(t, b, path)
	for range 2 {
		client := newLiar(t, splice.Path())
		client.say(newRegion{size: 4096}.encode(), client.memfd(4096, unix.MFD_ALLOW_SEALING))
		if kind, reason := client.answer(); kind != disconnectMessage || reason != "unexpected message before init" {
			t.Errorf("the client got message %d, %q", kind, reason)
		}
		server, err := listener.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		if err := server.SetDeadline(time.Now().Add(timeout)); err != nil {
			t.Fatal(err)
		}
		peer := control{socket: &packetSocket{UnixConn: server}}
		if m, _, err := peer.receive(); !errors.Is(err, io.EOF) {
			t.Errorf("the server got %v, %v; want the end", m, err)
		}
		_ = server.Close()
	}
	declining := newLiar(t, splice.Path())
	declining.say(disconnection(refusal("incompatible version")), -1)
	server, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	peer := control{socket: &packetSocket{UnixConn: server}}
	if m, _, err := peer.receive(); err != nil || m.kind() != disconnectMessage {
		t.Errorf("the server of a client that declines got %v, %v", m, err)
	}
	if line := await(t, log, "line in the log"); !strings.Contains(line,
		`msg="memif client refused: it sent a message before INIT" socket=`+splice.Path()) {
		t.Errorf("logged %s", line)
	}
	if len(log) > 0 {
		t.Errorf("also logged %s, want one line a minute", <-log)
	}
}

// Descriptors whose close blocks take threads of the broker process only, and few.
func TestSpliceBoundsItsClients(t *testing.T) {
	s := newSpliceLab(t)
	s.addReleasing(t, hostileConfig)
	s.broker.giveLast(t, func() {
		for range 10 * maxSpliced {
			liar := newLiar(t, s.splice.Path())
			liar.sayWithLingering(ackMessage)
			_ = liar.socket.Close()
		}
	})
	eventually(t, "the threads of the broker process are blocked", func() bool {
		return closing(t, s.broker.alive(t)) == maxSpliced
	})
	if n := closing(t, os.Getpid()); n > 0 {
		t.Errorf("%d threads of this process are blocked in close", n)
	}
	other := spliceTo(t, s.broker, s.lab.Path())
	client, err := Connect(t.Context(), ClientConfig{Socket: other.Path(), ID: 7, Secret: clientSecret})
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	client.Release()
	if err := unix.Kill(s.broker.alive(t), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = await(t, s.connected, "connection of the other Splice")
}

// What a server does not read stays in the kernel, as memory of the broker process, also when the client has left. Few
// clients may cause that.
func TestSpliceBoundsWhatItsServerDoesNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	splice := spliceTo(t, newBroker(t), path)
	const clients = 3 * maxSpliced
	for range clients {
		liar := newLiar(t, splice.Path())
		liar.say(spliced.encode(), -1)
		_ = liar.socket.Close()
	}
	accept := func(most int, wait time.Duration) (held []*net.UnixConn) {
		_ = listener.SetDeadline(time.Now().Add(wait))
		for len(held) < most {
			socket, err := listener.AcceptUnix()
			if err != nil {
				return held
			}
			held = append(held, socket)
		}
		return held
	}
	held := accept(clients, time.Second)
	if len(held) != maxSpliced {
		t.Errorf("the server has %d clients whose messages it does not read, want %d", len(held), maxSpliced)
	}
	for _, socket := range held {
		_ = socket.Close()
	}
	for range clients - len(held) {
		for _, socket := range accept(1, timeout) {
			_ = socket.Close()
		}
	}
}

// Client and server may agree to send messages without end: they are passed at a bounded rate.
func TestSpliceBoundsTheRateOfMessages(t *testing.T) {
	client, server, _ := rawSplice(t)
	go func() {
		for client.send(newMessage(ackMessage), -1) == nil {
		}
	}()
	const second = 1
	passed := 0
	_ = server.socket.SetReadDeadline(time.Now().Add(second * time.Second))
	for {
		if _, _, err := server.receive(); err != nil {
			break
		}
		passed++
	}
	if most := passBurst + (second+1)*passRate; passed > most {
		t.Errorf("%d messages in %d s, want at most %d", passed, second, most)
	}
}

// A client can keep the broker process in a close that no signal ends, and the process then keeps its sockets: here the
// test does. The connection ends all the same, and the next process can listen on the socket.
func TestSpliceEndsWithABrokerWhoseSocketsStay(t *testing.T) {
	b := newBroker(t)
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	kept := make(chan *os.File, 2)
	splice, err := b.Splice(SpliceConfig{
		Path: filepath.Join(t.TempDir(), "c"), ClientID: 7,
		Dial: func() (*net.UnixConn, error) {
			socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
			if err != nil {
				return nil, err
			}
			file, err := socket.File()
			kept <- file
			return socket, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	socket, err := splice.socket.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	client := newLiar(t, splice.Path())
	client.say(spliced.encode(), -1)
	server, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	defer func() { _ = (<-kept).Close() }()
	peer := control{socket: &packetSocket{UnixConn: server}}
	if _, _, err := peer.receive(); err != nil {
		t.Fatal(err)
	}
	b.Close()
	_ = server.SetReadDeadline(time.Now().Add(timeout))
	if _, _, err := peer.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("the server got %v, want the end", err)
	}
	again, err := bind(splice.Path(), 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}
