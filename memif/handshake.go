package memif

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// handshake is the server's side of the handshake:
//
//	hello -> INIT -> (ADD_REGION | ADD_RING)* -> CONNECT -> connected
//
// Any other message ends it. Each message except CONNECT is acknowledged.
type handshake struct {
	listener *Listener
	control  *control
	conn     *Conn
	attached *Interface // from INIT on
	rings    [2][]newRing
	eventfds [2][]int
	refusal  Refusal
	sparse   uint64 // bytes of the regions without pages
}

const (
	fromClient = iota
	fromServer
)

func (h *handshake) run() error {
	h.refusal.PID, h.refusal.UID = h.control.peer()
	if err := h.control.receiveUntil(time.Now().Add(h.listener.options.HandshakeTimeout)); err != nil {
		return fmt.Errorf("start handshake: %w", err)
	}
	if err := h.control.send(h.listener.hello().encode(), -1); err != nil {
		return err
	}
	for {
		m, fd, err := h.control.receive()
		if err != nil {
			return err
		}
		err = h.handle(m, &fd)
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		if err != nil {
			return err
		}
		if m.kind() == connectMessage {
			return h.connected()
		}
		if err := h.control.send(newMessage(ackMessage), -1); err != nil {
			return err
		}
	}
}

// handle never closes fd. It sets fd to -1 if it keeps the descriptor.
func (h *handshake) handle(m *message, fd *int) error {
	kind := m.kind()
	if (h.attached == nil) != (kind == initMessage) && kind != disconnectMessage {
		return refusal("unexpected message received")
	}
	switch kind {
	case initMessage:
		return h.initiate(decodeInitiation(m))
	case addRegionMessage:
		return h.addRegion(decodeNewRegion(m), fd)
	case addRingMessage:
		return h.addRing(decodeNewRing(m), fd)
	case connectMessage:
		h.conn.info.PeerInterface = m.text(2, nameSize)
		return h.layOut()
	case disconnectMessage:
		return decodeDisconnection(m)
	default:
		return refusal("unexpected message received")
	}
}

func (h *handshake) initiate(i initiation) error {
	h.refusal.ID = i.id
	h.refusal.IDKnown = true
	h.refusal.Peer = i.name
	if i.version != version {
		return refusal("unsupported version")
	}
	found := h.listener.find(i.id)
	if found == nil {
		return refusal("unmatched interface id")
	}
	c := &found.config
	switch { // in the order of VPP (memif_msg_receive_init)
	case found.notified.isExceeded(time.Now()):
		return refusal(ErrNotifications.Error())
	case found.taken():
		return errTaken
	case Prepare() != nil: // a write to an eventfd of the client's could block
		return refusal("no asynchronous I/O to notify with (fs.aio-max-nr)")
	case i.mode != c.Mode:
		return refusal("mode mismatch")
	case c.Secret != "" && i.secret == (secretField{}):
		return refusal("secret required")
	case c.Secret != "" && !c.Secret.matches(i.secret):
		return refusal("incorrect secret")
	}
	h.conn.info = Info{ID: c.ID, Mode: c.Mode, Peer: i.name, PID: h.refusal.PID, UID: h.refusal.UID}
	h.conn.released = found.vacate
	h.conn.notified = &found.notified
	if err := found.claim(h.conn); err != nil {
		return err
	}
	h.attached = found
	return nil
}

func (h *handshake) addRegion(r newRegion, fd *int) error {
	memory := &h.conn.memory
	o := &h.listener.options
	switch {
	case *fd < 0:
		return refusal("missing memory region fd")
	case int(r.index) != len(memory.regions) || len(memory.regions) >= o.MaxRegions:
		return refusal("unexpected region index")
	case r.size == 0 || r.size > o.MaxMemory || memory.size()+r.size > o.MaxMemory:
		return refusal("too much memory")
	}
	sealed, sparse, err := checkRegion(*fd, r.size)
	if err != nil {
		return err
	}
	if h.sparse += sparse; h.sparse > h.attached.config.maxSparse() {
		return refusal("too much memory without pages")
	}
	memory.guarded = memory.guarded || !sealed
	if err := memory.add(*fd, r.size); err != nil {
		return err
	}
	memory.regions[len(memory.regions)-1].sparse = sparse > 0
	h.conn.kept = append(h.conn.kept, *fd)
	*fd = -1
	return nil
}

func (h *handshake) addRing(r newRing, fd *int) error {
	direction := fromServer
	limit := h.attached.config.TxQueues
	to := "client"
	if r.toServer {
		direction = fromClient
		limit = h.attached.config.RxQueues
		to = "server"
	}
	switch {
	case *fd < 0:
		return refusal("missing ring interrupt fd")
	case !isEventfd(*fd):
		return refusal("interrupt fd is not an eventfd")
	case int(r.index) != len(h.rings[direction]):
		return refusal("unexpected ring index")
	case int(r.index) >= limit:
		return refusal(fmt.Sprintf("too many rings to the %s: this interface has at most %d", to, limit))
	case r.log2 > maxRingLog2 || 1<<r.log2 > h.attached.config.RingSize:
		return refusal("ring too large")
	case r.privateHeaderSize != 0:
		return refusal("private headers are not supported")
	}
	h.rings[direction] = append(h.rings[direction], r)
	h.eventfds[direction] = append(h.eventfds[direction], *fd)
	h.conn.kept = append(h.conn.kept, *fd)
	*fd = -1
	return nil
}

// layOut creates the queues after the handshake named all rings.
func (h *handshake) layOut() error {
	if len(h.rings[fromClient]) == 0 && len(h.rings[fromServer]) == 0 {
		return refusal("no rings")
	}
	// First access to the memory: a fault in it ends this connection only.
	return h.conn.touch(func() error {
		for i, r := range h.rings[fromClient] {
			if err := h.conn.addRx(r, h.eventfds[fromClient][i], h.attached.config.MaxPacket); err != nil {
				return err
			}
		}
		for i, r := range h.rings[fromServer] {
			if err := h.conn.addTx(r, h.eventfds[fromServer][i], h.attached.config.MaxPacket); err != nil {
				return err
			}
		}
		h.conn.describe()
		return nil
	})
}

func (h *handshake) connected() error {
	if err := h.control.receiveUntil(time.Time{}); err != nil {
		return fmt.Errorf("end handshake: %w", err)
	}
	if err := h.control.send(named(connectedMessage, h.attached.config.Name), -1); err != nil {
		return err
	}
	return h.control.established()
}

// refuse ends a failed handshake.
func (h *handshake) refuse(why error) {
	var known *DisconnectError
	if !errors.As(why, &known) {
		known = &DisconnectError{Reason: "handshake failed", Err: why}
	}
	if known.Remote {
		h.control.hangUp(nil)
	} else {
		h.control.hangUp(known)
	}
	if h.attached != nil {
		h.attached.abandon(h.conn)
	}
	if h.listener.options.Refused != nil {
		h.refusal.Err = known
		h.listener.options.Refused(h.refusal)
	}
}
