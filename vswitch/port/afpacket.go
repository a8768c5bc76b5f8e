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

// afPacketQueue bounds the kernel's memory for received frames that were not read, and for sent frames that were not transmitted: some
// sixty frames of 64 KiB.
const afPacketQueue = 4 << 20

// AFPacket is a packet socket on a link: what the link receives we receive too, what we transmit the link transmits. The
// link is not ours: it stays when the socket is closed, and the socket errs when the link goes down or away. One goroutine
// receives; any may transmit; Close is for when none does any more.
//
// Frames are moved by recvmmsg and sendmmsg on a plain socket. Of this thread's time a frame of 64 bytes from a veth (1,500
// bytes) takes, on a shared 2-core EPYC: 590 ns (770) received 64 at a time and 780 (970) one at a time, 1310 (1360) and
// 1580 (1750) sent so. From a TPACKET_V2 ring it takes 20 ns (105), as the sender's processor has copied it there; but each
// slot of a ring must hold a GSO frame, so that 256 of them pin 17 MiB of kernel memory for every port, used or not, and the
// next frame is lost. TPACKET_V3 shares its blocks, and adds up to 2 ms to each round trip.
type AFPacket struct {
	fd      int
	info    AFPacketInfo
	takes   Offload
	bypass  atomic.Bool // frames skip the queueing discipline
	receive afPacketBatch
	closing sync.WaitGroup
}

// OpenAFPacket attaches to the link. Errors: ErrNoLink, ErrLinkDown, and the kernel's.
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
		p.takes = Offload{Checksum: true, TCP: true, UDP: kernelTakesUSO()}
	}
	if err := p.setUp(c); err != nil {
		defer p.Wait()
		return nil, errors.Join(fmt.Errorf("attach to link %s: %w", c.Name, err), p.Close())
	}
	p.receive.prepare()
	return p, nil
}

// findLink looks the link up, and sets it up where that is asked for.
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

// setUp sets the socket's options and binds it, which comes last: from then on it fills.
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
	// Without CAP_NET_ADMIN in the first user namespace the system's limit holds, which will do.
	for _, o := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE, unix.SO_RCVBUF, unix.SO_SNDBUF} {
		_ = unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, o, afPacketQueue)
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

// Info describes the link as it was when it was opened.
func (p *AFPacket) Info() AFPacketInfo { return p.info }

// Takes says what the kernel finishes for us.
func (p *AFPacket) Takes() Offload { return p.takes }

// Descriptor becomes readable when there is something to receive.
func (p *AFPacket) Descriptor() int { return p.fd }

// Arm is not needed: the kernel's readiness is level triggered.
func (p *AFPacket) Arm(bool) bool { return false }

func (p *AFPacket) setPromiscuous(option int) error {
	membership := unix.PacketMreq{Ifindex: int32(p.info.Ifindex), Type: unix.PACKET_MR_PROMISC}
	return unix.SetsockoptPacketMreq(p.fd, unix.SOL_PACKET, option, &membership)
}

// Close detaches from the link: that is as it was before when Close returns. The kernel then waits for an RCU grace period, some 10 ms,
// before it frees the socket, and Wait waits for that.
func (p *AFPacket) Close() error {
	_ = p.setPromiscuous(unix.PACKET_DROP_MEMBERSHIP) // a link that is gone has no members
	p.closing.Go(func() { _ = unix.Close(p.fd) })     // which fails for a descriptor that is not open only
	return nil
}

// Wait waits for the end of what Close began.
func (p *AFPacket) Wait() { p.closing.Wait() }
