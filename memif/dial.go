package memif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ClientConfig configures a client's interface.
type ClientConfig struct {
	// Socket is the server's socket path, or "@name".
	Socket string
	// Listen makes the program the server of the interface: it listens at Socket, and a peer connects. For Dial only.
	Listen bool
	// ID is the interface's id on that socket.
	ID     uint32
	Secret Secret
	Mode   Mode
	// Name is the interface's, at most 31 bytes; Program is how the program calls itself, default its file's name.
	Name, Program string
	// RxQueues and TxQueues are how many queues are wanted in each direction as the client sees them; Weft's dataplane
	// refuses more than the interface has, VPP and other servers may allow fewer. Default 1.
	RxQueues, TxQueues int
	// RingSize is the slots of each ring, a power of two; the server may allow fewer. Default 1024.
	RingSize int
	// BufferSize is a slot's bytes; longer packets take several. Default 2048, at least 64. A ring is refused if its
	// slots together hold no packet of the MTU: it would lose these packets, and no others.
	BufferSize int
	// MaxPacket is the longest packet, in bytes; default DefaultMaxPacket.
	MaxPacket int
	// MTU is the interface's, in bytes; default 1500, or MaxPacket if that is less.
	MTU int
	// Timeout bounds the making of a connection; default 5 s.
	Timeout time.Duration
	// Spin is how long a Client polls for packets before it sleeps; default 20 us, negative: no polling.
	Spin time.Duration
}

func (c *ClientConfig) complete() error {
	c.RxQueues = cmp.Or(c.RxQueues, 1)
	c.TxQueues = cmp.Or(c.TxQueues, 1)
	c.RingSize = cmp.Or(c.RingSize, 1024)
	c.BufferSize = cmp.Or(c.BufferSize, 2048)
	c.MaxPacket = cmp.Or(c.MaxPacket, DefaultMaxPacket)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.Spin = cmp.Or(c.Spin, defaultSpin)
	c.Program = cmp.Or(c.Program, filepath.Base(os.Args[0]))
	switch {
	case len(c.Secret) > secretSize:
		return fmt.Errorf("secret longer than %d bytes", secretSize)
	case min(c.RxQueues, c.TxQueues) < 1 || max(c.RxQueues, c.TxQueues) > maxQueues:
		return fmt.Errorf("queues not within 1 and %d", maxQueues)
	case !isRingSize(c.RingSize):
		return fmt.Errorf("ring size %d: not a power of two up to %d", c.RingSize, 1<<maxRingLog2)
	case c.BufferSize < minBuffer || c.BufferSize > maxPacket:
		return fmt.Errorf("buffer size not within %d and %d", minBuffer, maxPacket)
	case c.MaxPacket < 1 || c.MaxPacket > maxPacket:
		return fmt.Errorf("longest packet not within 1 and %d", maxPacket)
	case c.MTU < 0 || c.MTU > maxPacket:
		return fmt.Errorf("MTU not within 1 and %d", maxPacket)
	case c.MTU != 0 && c.MaxPacket < c.needed():
		return fmt.Errorf("longest packet of %d bytes: a packet of MTU %d has %d", c.MaxPacket, c.MTU, c.needed())
	case c.Listen: // the peer chooses its rings and buffers
		return nil
	}
	return c.checkRing(c.RingSize)
}

// Sizes of an interface without a MTU, and of what precedes a packet of the MTU in mode Ethernet, in bytes.
const (
	defaultMTU     = 1500
	ethernetHeader = 14
)

// needed is the size of a packet of the MTU.
func (c *ClientConfig) needed() int {
	packet := cmp.Or(c.MTU, defaultMTU)
	if c.Mode == Ethernet {
		packet += ethernetHeader
	}
	if c.MTU == 0 {
		packet = min(packet, c.MaxPacket)
	}
	return packet
}

// checkRing rejects rings that hold no packet of the MTU.
func (c *ClientConfig) checkRing(slots int) error {
	if held := slots * c.BufferSize; held < c.needed() {
		return fmt.Errorf(
			"ring of %d slots of %d bytes: it holds %d bytes, and a packet of the MTU has %d; set a larger ring or buffer size, or a smaller MTU",
			slots, c.BufferSize, held, c.needed())
	}
	return nil
}

// Connect makes one connection as a client. The queues are the caller's until Conn.Release. A refusal of the server is
// a DisconnectError.
func Connect(ctx context.Context, c ClientConfig) (*Conn, error) {
	if err := c.complete(); err != nil {
		return nil, wrapClient(&c, err)
	}
	_ = Prepare() // without it the client writes to its eventfds
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	conn, err := connect(ctx, &c)
	if err != nil {
		return nil, wrapClient(&c, err)
	}
	go func() {
		err := conn.watch()
		close(conn.gone)
		conn.control.hangUp(reasonOf(err))
	}()
	return conn, nil
}

func connect(ctx context.Context, c *ClientConfig) (*Conn, error) {
	var d net.Dialer
	socket, err := d.DialContext(ctx, "unixpacket", c.Socket)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	conn := newConn(&control{socket: &packetSocket{UnixConn: socket.(*net.UnixConn)}})
	stop := context.AfterFunc(ctx, func() { _ = conn.control.socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = (&clientHandshake{config: c, conn: conn}).run()
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.control.socket.Close()
		conn.Release()
		return nil, err
	}
	return conn, nil
}

// clientHandshake is the client's side of the handshake.
type clientHandshake struct {
	config *ClientConfig
	conn   *Conn
}

func (h *clientHandshake) run() error {
	config := h.config
	m, err := h.expect(helloMessage)
	if err != nil {
		return err
	}
	offer := decodeHello(m)
	if offer.minVersion > version || offer.maxVersion < version {
		return h.decline(refusal("incompatible version"))
	}
	l := layout{
		toServer:   min(config.TxQueues, int(offer.maxToServer)+1),
		toClient:   min(config.RxQueues, int(offer.maxToClient)+1),
		log2:       min(uint8(bits.Len(uint(config.RingSize))-1), offer.maxRingLog2, maxRingLog2),
		bufferSize: uint32(config.BufferSize),
	}
	if err := config.checkRing(1 << l.log2); err != nil {
		_ = h.decline(refusal("too few slots for a packet of the MTU"))
		return fmt.Errorf("the server offers a %w", err)
	}
	h.conn.info = Info{ID: config.ID, Mode: config.Mode, Peer: offer.name, BufferSize: config.BufferSize}
	h.conn.info.PID, h.conn.info.UID = h.conn.control.peer()
	start := initiation{
		version: version,
		id:      config.ID,
		mode:    config.Mode,
		secret:  secretFieldOf([]byte(config.Secret)),
		name:    config.Program,
	}
	if err := h.ask(start.encode(), -1); err != nil {
		return err
	}
	if err := h.offer(l); err != nil {
		return err
	}
	if err := h.conn.control.send(named(connectMessage, config.Name), -1); err != nil {
		return err
	}
	if m, err = h.expect(connectedMessage); err != nil {
		return err
	}
	h.conn.info.PeerInterface = m.text(2, nameSize)
	h.conn.describe()
	return nil
}

// offer makes memory and queues and hands them to the server.
func (h *clientHandshake) offer(l layout) error {
	if l.size() > 1<<32 {
		return h.decline(refusal("rings and buffers take more than 4 GiB"))
	}
	region, err := l.allocate(&h.conn.memory)
	if err != nil {
		return err
	}
	h.conn.kept = append(h.conn.kept, region)
	eventfds := make([]int, l.rings())
	for i := range eventfds {
		if eventfds[i], err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return fmt.Errorf("make eventfd: %w", err)
		}
		h.conn.kept = append(h.conn.kept, eventfds[i])
	}
	l.addQueues(h.conn, eventfds, h.config.MaxPacket)
	if err := h.ask(newRegion{size: l.size()}.encode(), region); err != nil {
		return err
	}
	for i, fd := range eventfds {
		r := newRing{toServer: i < l.toServer, index: uint16(i), offset: uint32(l.ringOffset(i)), log2: l.log2}
		if !r.toServer {
			r.index = uint16(i - l.toServer)
		}
		if err := h.ask(r.encode(), fd); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a message and waits for its acknowledgement.
func (h *clientHandshake) ask(m *message, fd int) error {
	if err := h.conn.control.send(m, fd); err != nil {
		// The server may have said why it hung up.
		if _, said := h.expect(ackMessage); errors.As(said, new(*DisconnectError)) {
			return said
		}
		return err
	}
	_, err := h.expect(ackMessage)
	return err
}

func (h *clientHandshake) expect(kind messageType) (*message, error) {
	m, fd, err := h.conn.control.receive()
	if err != nil {
		return nil, err
	}
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	switch m.kind() {
	case kind:
		return m, nil
	case disconnectMessage:
		return nil, decodeDisconnection(m)
	default:
		return nil, h.decline(refusal("unexpected message received"))
	}
}

func (h *clientHandshake) decline(why *DisconnectError) error {
	_ = h.conn.control.send(disconnection(why), -1)
	return why
}

// layout is a client's memory: one region with all rings, those to the server first, then their buffers in the same
// order.
type layout struct {
	toServer, toClient int
	log2               uint8
	bufferSize         uint32
}

func (l layout) rings() int { return l.toServer + l.toClient }

func (l layout) ringOffset(i int) uint64 { return uint64(i) * ringBytes(1<<l.log2) }

func (l layout) bufferOffset(i int) uint64 {
	return l.ringOffset(l.rings()) + uint64(i)<<l.log2*uint64(l.bufferSize)
}

func (l layout) size() uint64 { return l.bufferOffset(l.rings()) }

// allocate makes the region and returns its descriptor, sealed against shrinking.
func (l layout) allocate(m *memory) (int, error) {
	fd, err := unix.MemfdCreate("memif region 0", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("make region: %w", err)
	}
	err = unix.Ftruncate(fd, int64(l.size()))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	if err == nil {
		err = m.add(fd, l.size())
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("make region of %d bytes: %w", l.size(), err)
	}
	return fd, nil
}

// newRing writes ring i into fresh memory at base. What the client receives into is the server's from the beginning.
func (l layout) newRing(base unsafe.Pointer, i int) ring {
	r := newRingAt(unsafe.Add(base, uintptr(l.ringOffset(i))), l.log2)
	*r.cookie() = ringCookie
	for slot := range uint32(r.size) {
		offset := l.bufferOffset(i) + uint64(slot)*uint64(l.bufferSize)
		r.place(uint16(slot), descriptor{length: l.bufferSize, offset: uint32(offset)})
	}
	if i >= l.toServer {
		r.maskInterrupts(true)
		r.setHead(r.size)
	}
	return r
}

// addQueues makes the client's queues over the region.
func (l layout) addQueues(c *Conn, eventfds []int, maxPacket int) {
	base := c.memory.regions[0].base
	for i := range l.rings() {
		q := queue{
			ring: l.newRing(base, i), memory: &c.memory, conn: c, maxPacket: uint32(maxPacket), eventfd: eventfds[i],
			bufferSize: l.bufferSize,
		}
		if i < l.toServer {
			c.tx = append(c.tx, &TxQueue{queue: q, buffers: unsafe.Add(base, uintptr(l.bufferOffset(i)))})
		} else {
			c.rx = append(c.rx, &RxQueue{queue: q, segments: make([][]byte, 0, 1<<l.log2)})
		}
	}
}
