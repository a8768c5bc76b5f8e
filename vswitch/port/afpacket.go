package port

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

// Errors of OpenAFPacket.
var (
	ErrNoLink   = errors.New("no such Ethernet link")
	ErrLinkDown = errors.New("the link is down")
)

// AFPacketConfig selects the link.
type AFPacketConfig struct {
	Name        string // of a link in the process's network namespace
	Offload     bool   // transmit GSO frames and partial checksums; the kernel or the link completes them
	QdiscBypass bool   // transmitted frames skip the queueing discipline
	SetUp       bool   // set the link up if it is down, in place of ErrLinkDown
}

// AFPacketInfo describes the link when it was opened.
type AFPacketInfo struct {
	Ifindex int
	MAC     frame.MAC // of the link
	MTU     int
}

// afPacketBuffer is the size of the receive and the send buffer of a socket: some sixty frames of 64 KiB.
const afPacketBuffer = 4 << 20

// AFPacket is a packet socket on a network link. It receives what the link receives, and the link transmits what it
// transmits. The link stays when the socket is closed; if the link goes down or is deleted, calls fail. One goroutine
// receives, any goroutine may transmit, and Close must come last.
//
// Frames are moved by recvmmsg and sendmmsg on a plain socket. CPU time for a frame of 64 bytes (1,500 bytes) from a
// veth on a shared 2-core EPYC: to receive, 590 ns (770 ns) in batches of 64 and 780 ns (970 ns) one by one; to send,
// 1310 ns (1360 ns) and 1580 ns (1750 ns). A TPACKET_V2 ring takes 20 ns (105 ns), because the sender's CPU copies; but
// each slot must hold a GSO frame, so 256 slots pin 17 MiB of kernel memory per port, and the next frame is lost.
// TPACKET_V3 shares its blocks, and adds up to 2 ms to each round trip.
type AFPacket struct {
	fd      int
	info    AFPacketInfo
	offload Offload
	bypass  atomic.Bool // skip the queueing discipline
	receive afPacketBatch

	inexpressible uint64 // frames that the kernel dropped
	closing       sync.WaitGroup
}

// OpenAFPacket attaches to a link. Errors are ErrNoLink, ErrLinkDown and system errors.
func OpenAFPacket(c AFPacketConfig) (*AFPacket, error) {
	link, err := findLink(c)
	if err != nil {
		return nil, fmt.Errorf("open link %q: %w", c.Name, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	mac, _ := frame.MACOf(link.HardwareAddr)
	p := &AFPacket{fd: fd, info: AFPacketInfo{Ifindex: link.Index, MAC: mac, MTU: link.MTU}}
	if c.Offload {
		p.offload = Offload{Checksum: true, TCP: true, UDP: kernelSupportsUSO()}
	}
	if err := p.setUp(c); err != nil {
		defer p.Wait()
		return nil, errors.Join(fmt.Errorf("attach to link %s: %w", c.Name, err), p.Close())
	}
	p.receive.prepare()
	return p, nil
}

// findLink finds the link, and sets it up if the configuration asks for that.
func findLink(c AFPacketConfig) (*netlink.LinkAttrs, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	link, err := h.LinkByName(c.Name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLink, err)
	}
	a := link.Attrs()
	if a.EncapType != "ether" {
		return nil, fmt.Errorf("%w: it is of type %s", ErrNoLink, a.EncapType)
	}
	if a.RawFlags&unix.IFF_UP != 0 {
		return a, nil
	}
	if !c.SetUp {
		return nil, ErrLinkDown
	}
	if err := h.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	return a, nil
}

// setUp sets the socket's options and binds it. The socket receives from then on.
func (p *AFPacket) setUp(c AFPacketConfig) error {
	options := []struct {
		name          string
		option, value int
	}{
		{"PACKET_VNET_HDR", unix.PACKET_VNET_HDR, 1},
		{"PACKET_AUXDATA", unix.PACKET_AUXDATA, 1},
		{"PACKET_IGNORE_OUTGOING", unix.PACKET_IGNORE_OUTGOING, 1},
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, o.option, o.value); err != nil {
			return fmt.Errorf("set %s: %w", o.name, err)
		}
	}
	if err := p.setBypass(c.QdiscBypass); err != nil {
		return err
	}
	// Without CAP_NET_ADMIN in the initial user namespace the system's limit applies, which is acceptable.
	for _, o := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE, unix.SO_RCVBUF, unix.SO_SNDBUF} {
		_ = unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, o, afPacketBuffer)
	}
	if err := p.setPromiscuous(unix.PACKET_ADD_MEMBERSHIP); err != nil {
		return fmt.Errorf("set promiscuous: %w", err)
	}
	all := uint16(unix.ETH_P_ALL)
	address := unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: p.info.Ifindex}
	if err := unix.Bind(p.fd, &address); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

func (p *AFPacket) setBypass(on bool) error {
	value := 0
	if on {
		value = 1
	}
	if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, value); err != nil {
		return fmt.Errorf("set PACKET_QDISC_BYPASS: %w", err)
	}
	p.bypass.Store(on)
	return nil
}

// Info describes the link when it was opened.
func (p *AFPacket) Info() AFPacketInfo { return p.info }

// Offload returns the work that the kernel completes in transmitted frames.
func (p *AFPacket) Offload() Offload { return p.offload }

// Descriptor is readable when frames wait.
func (p *AFPacket) Descriptor() int { return p.fd }

// Arm is not needed: readiness is level triggered.
func (p *AFPacket) Arm(bool) bool { return false }

func (p *AFPacket) setPromiscuous(option int) error {
	membership := unix.PacketMreq{Ifindex: int32(p.info.Ifindex), Type: unix.PACKET_MR_PROMISC}
	return unix.SetsockoptPacketMreq(p.fd, unix.SOL_PACKET, option, &membership)
}

// Close detaches from the link and restores its state. The kernel then waits for an RCU grace period, some 10 ms,
// before it frees the socket; Wait waits for that.
func (p *AFPacket) Close() error {
	_ = p.setPromiscuous(unix.PACKET_DROP_MEMBERSHIP) // a deleted link has no memberships
	p.closing.Go(func() { _ = unix.Close(p.fd) })     // fails for an invalid descriptor only
	return nil
}

// Wait waits for the end of Close.
func (p *AFPacket) Wait() { p.closing.Wait() }
