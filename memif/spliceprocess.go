package memif

import (
	"crypto/subtle"
	"time"

	"golang.org/x/sys/unix"
)

// reached is the Broker's reply to noteDial.
type reached struct {
	server   *packetSocket // nil: it does not listen
	from, to endpoint
}

// reply hands a reply to the client that waits for it.
func (p *brokerProcess) reply(n note, fds []int) {
	d := reached{from: n.from, to: n.to}
	if len(fds) == 1 {
		if server, err := socketOf(fds[0]); err == nil {
			d.server = server
		}
	}
	p.mu.Lock()
	waiting, is := p.dialing[n.client]
	delete(p.dialing, n.client)
	p.mu.Unlock()
	if is {
		waiting <- d
	} else {
		p.dispose(d.server)
	}
}

// dispose closes a socket to a server without blocking.
func (p *brokerProcess) dispose(server *packetSocket) {
	if server != nil {
		go (&relayed{process: p, socket: server}).dispose()
	}
}

// splicedClient is a client of a Splice, in the broker process.
type splicedClient struct {
	*relayed
	reached
	spliced bool // client and server are connected
}

// run passes messages until an end hangs up, or the Splice is closed. The client is counted until both sockets are
// closed.
func (c *splicedClient) run() {
	defer c.relayed.dispose()
	defer c.settle()
	c.reached = c.dial()
	if c.server == nil {
		c.refuse("the server of this interface does not listen")
		return
	}
	end := &relayed{process: c.process, socket: c.server}
	defer end.dispose()
	defer end.settle()
	if !c.acceptor.join(c) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.toServer()
		c.part()
	}()
	c.toClient()
	c.part()
	c.acceptor.leave(c)
	<-done
}

// settlePause is the time between two looks at a socket that has unread messages.
const settlePause = 50 * time.Millisecond

// settle waits until the other end has read all, or hung up: messages that a pod does not read count as memory and
// descriptors of this process.
func (c *relayed) settle() {
	c.shutdown()
	for unread(c.socket) {
		<-time.After(settlePause)
	}
}

// unread reports whether the other end has not read all.
func unread(socket *packetSocket) bool {
	size := 0
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { size, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	return size > 0
}

// dial asks the Broker for the server.
func (c *splicedClient) dial() reached {
	p := c.process
	reply := make(chan reached, 1)
	p.mu.Lock()
	p.dialing[c.number] = reply
	p.mu.Unlock()
	p.tell(note{kind: noteDial, listener: c.acceptor.number, client: c.number})
	select {
	case d := <-reply:
		return d
	case <-c.acceptor.ended: // the Broker does not reply any more
	}
	p.mu.Lock()
	_, waiting := p.dialing[c.number]
	delete(p.dialing, c.number)
	p.mu.Unlock()
	if !waiting {
		p.dispose((<-reply).server)
	}
	return reached{}
}

func (c *splicedClient) refuse(reason string) {
	peer := control{socket: c.socket}
	_ = peer.send(disconnection(refusal(reason)), -1)
}

// part shuts both sockets down. What an end has sent before still reaches the other one.
func (c *splicedClient) part() {
	c.shutdown()
	_ = c.server.CloseWrite()
	_ = c.server.CloseRead()
}

// toServer passes on the client's messages, and translates INIT.
func (c *splicedClient) toServer() {
	peer := control{socket: c.socket}
	initiated := false
	for c.acceptor.messages.wait() {
		m, fd, err := peer.receive()
		if err != nil {
			return
		}
		if reason := c.check(m, initiated); reason != "" {
			_ = unix.Close(fd)
			c.refuse(reason)
			return
		}
		initiated = initiated || m.kind() == initMessage
		if c.process.pass(c.server, m, fd) != nil {
			return
		}
	}
}

// check translates INIT, and returns why the client is refused. Before INIT a client may only decline the server.
func (c *splicedClient) check(m *message, initiated bool) (reason string) {
	switch {
	case m.kind() == initMessage:
		return c.translate(m)
	case !initiated && m.kind() != disconnectMessage:
		c.process.tell(note{kind: noteEarly, listener: c.acceptor.number})
		return "unexpected message before init"
	}
	return ""
}

// translate checks the endpoint that the client states, and replaces it with the one that the server expects.
func (c *splicedClient) translate(m *message) (reason string) {
	i := decodeInitiation(m)
	switch {
	case i.id != c.from.id:
		return "unmatched interface id"
	case c.from.secret != secretField{} && i.secret == secretField{}:
		return "secret required"
	case c.from.secret != secretField{} && subtle.ConstantTimeCompare(i.secret[:], c.from.secret[:]) != 1:
		return "incorrect secret"
	}
	i.id = c.to.id
	i.secret = c.to.secret
	*m = *i.encode()
	return ""
}

// toClient passes on the server's messages, without descriptors: a server sends none.
func (c *splicedClient) toClient() {
	server := control{socket: c.server}
	peer := control{socket: c.socket}
	for c.acceptor.messages.wait() {
		m, fd, err := server.receive()
		if err != nil {
			return
		}
		if fd >= 0 {
			_ = unix.Close(fd)
			return
		}
		if m.kind() == connectedMessage {
			c.acceptor.tell(c)
		}
		if peer.send(m, -1) != nil {
			return
		}
	}
}

// join adds a client that has its server; false: the socket is closing.
func (d *acceptor) join(c *splicedClient) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closing {
		d.spliced[c] = true
	}
	return !d.closing
}

// tell says that a client is connected.
func (d *acceptor) tell(c *splicedClient) {
	if !c.spliced {
		c.spliced = true
		d.process.tell(note{kind: noteSpliced, listener: d.number})
	}
}

// leave removes a client.
func (d *acceptor) leave(c *splicedClient) {
	d.mu.Lock()
	delete(d.spliced, c)
	d.mu.Unlock()
	if c.spliced {
		d.process.tell(note{kind: noteParted, listener: d.number})
	}
}

// part ends the connections of all clients of a Splice.
func (d *acceptor) part() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.spliced {
		c.part()
	}
}
