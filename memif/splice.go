package memif

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// SpliceConfig configures a Splice.
type SpliceConfig struct {
	// Path is the socket for the client, shorter than 108 bytes; Mode is the file's, 0: see ListenOptions.
	Path string
	Mode fs.FileMode
	// ClientID and ClientSecret come from the client. The server gets ServerID and ServerSecret instead.
	ClientID, ServerID         uint32
	ClientSecret, ServerSecret Secret
	// Dial connects to the server's socket, and does not wait for the server. Nothing may have been read from the
	// connection.
	Dial func() (*net.UnixConn, error)
}

// Splice connects a client with a server if the client cannot reach the server's socket, or may reach it only as long
// as the Splice is there: it passes their control messages in both directions. The packets are in memory that both
// share, and do not pass this process. Neither end must be trusted: the client's secret is checked here, its
// descriptors reach the server only if they are shared memory or eventfds, and the server's descriptors never reach the
// client. As with a Listener, both sockets are the broker process's: this process never reads from them. A Splice ends
// its connection when it is closed, and when the broker process ends.
type Splice struct {
	broker *Broker
	config SpliceConfig
	socket *net.UnixListener
	file   fs.FileInfo // as it was bound
	number uint32
	once   sync.Once
	early  rate.Sometimes // bounds the log lines of a client

	mu        sync.Mutex
	connected int
	err       error // of the last Dial
}

// maxSpliced bounds the clients of a Splice: the connected one, and the ones that are being closed.
const maxSpliced = 4

// unreadSize bounds the bytes that a server has not read: some messages. The kernel counts their descriptors, and has
// no more than a limit on their way for all clients of the broker process.
const unreadSize = 8192

// Splice binds the client's socket and serves it until Close.
func (b *Broker) Splice(c SpliceConfig) (*Splice, error) {
	if max(len(c.ClientSecret), len(c.ServerSecret)) > secretSize {
		return nil, fmt.Errorf("memif splice %s: secret longer than %d bytes", c.Path, secretSize)
	}
	socket, err := bind(c.Path, c.Mode)
	if err != nil {
		return nil, fmt.Errorf("memif splice %s: %w", c.Path, err)
	}
	s := &Splice{broker: b, config: c, socket: socket, early: rate.Sometimes{Interval: time.Minute}}
	if !isAbstract(c.Path) {
		s.file, _ = os.Lstat(c.Path)
	}
	s.number = b.listen(&brokeredListener{socket: socket, pending: maxSpliced, splice: s})
	return s, nil
}

// Path returns the path of the client's socket.
func (s *Splice) Path() string { return s.config.Path }

// State reports whether client and server are connected, or else why the server was not reached for the last client.
func (s *Splice) State() (connected bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected > 0, s.err
}

// Close removes the socket file if it is still the Splice's, and ends the connection. It does not wait for client and
// server.
func (s *Splice) Close() {
	s.once.Do(func() {
		if now, err := os.Lstat(s.config.Path); s.file != nil && err == nil && os.SameFile(s.file, now) {
			_ = os.Remove(s.config.Path)
		}
		s.broker.unlisten(s.number)
	})
}

// handle takes a note of the broker process, with the lock of the Broker held.
func (s *Splice) handle(n note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n.kind {
	case noteDial:
		go s.dial(n)
	case noteSpliced:
		s.connected++
	case noteParted:
		s.connected--
	case noteEarly:
		s.early.Do(func() {
			s.broker.log.Warn("memif client refused: it sent a message before INIT", "socket", s.config.Path)
		})
	}
}

// parted forgets the connections of a broker process that has ended.
func (s *Splice) parted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected = 0
}

// dial connects to the server for a client and passes the connection on.
func (s *Splice) dial(n note) {
	server, err := s.config.Dial()
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	answer := note{
		kind: noteServer, listener: n.listener, client: n.client,
		from: endpoint{s.config.ClientID, secretFieldOf([]byte(s.config.ClientSecret))},
		to:   endpoint{s.config.ServerID, secretFieldOf([]byte(s.config.ServerSecret))},
	}
	if err != nil {
		s.broker.answer(answer)
		return
	}
	_ = server.SetWriteBuffer(unreadSize)
	if raw, err := server.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { s.broker.answer(answer, int(fd)) })
	}
	// blocks only if the broker process has just ended and the server sent descriptors, and then only this goroutine
	_ = server.Close()
}

// answer sends a note.
func (b *Broker) answer(n note, fds ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell(n, fds...)
}
