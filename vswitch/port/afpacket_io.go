package port

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

const (
	// packetVirtioLen is the length of the virtio header that a packet socket has: that without the number of buffers.
	packetVirtioLen = 10
	// afPacketBurst is how many frames one system call moves.
	afPacketBurst = 64
	// maxRefusals bounds how often Receive steps over a frame that the socket cannot hand over.
	maxRefusals = afPacketBurst
)

// auxiliary is the control message of one frame: tpacket_auxdata.
type auxiliary struct {
	header unix.Cmsghdr
	data   unix.TpacketAuxdata
}

// afPacketBatch is the receiver's memory.
type afPacketBatch struct {
	messages [afPacketBurst]unix.Mmsghdr
	memory   [afPacketBurst]unix.Iovec
	control  [afPacketBurst]auxiliary
}

func (r *afPacketBatch) prepare() {
	for i := range r.messages {
		h := &r.messages[i].Hdr
		h.Iov = &r.memory[i]
		h.SetIovlen(1)
		h.Control = (*byte)(unsafe.Pointer(&r.control[i]))
	}
}

// point lets the batch's first messages fill v's buffers.
func (r *afPacketBatch) point(v []*frame.Buffer) {
	for i, b := range v {
		room := b.RoomWithHead(packetVirtioLen)
		r.memory[i].Base = unsafe.SliceData(room)
		r.memory[i].SetLen(len(room))
		r.messages[i].Hdr.SetControllen(int(unsafe.Sizeof(auxiliary{})))
	}
}

// Receive fills v's buffers, in order, as far as there are frames. A frame that is longer than a buffer comes as an empty
// one. An error says that the link is down or gone.
func (p *AFPacket) Receive(v []*frame.Buffer) (int, error) {
	done, refusals := 0, 0
	for done < len(v) {
		want := min(len(v)-done, afPacketBurst)
		p.receive.point(v[done : done+want])
		n, errno := p.call(unix.SYS_RECVMMSG, &p.receive.messages, 0, want)
		switch {
		case errno == unix.EAGAIN:
			return done, nil
		case errno == unix.EINVAL && refusals < maxRefusals:
			// A GSO frame of a kind that a virtio header cannot tell: the kernel has dropped it.
			refusals++
			continue
		case errno != 0:
			return done, errno
		}
		for i := range n {
			p.receive.finish(i, v[done+i])
		}
		if done += n; n < want {
			return done, nil
		}
	}
	return done, nil
}

// finish makes a frame of what message i has put into b.
func (r *afPacketBatch) finish(i int, b *frame.Buffer) {
	m := &r.messages[i]
	length := int(m.Len) - packetVirtioLen
	if length < 0 || m.Hdr.Flags&unix.MSG_TRUNC != 0 {
		b.SetLen(0)
		return
	}
	b.SetLen(length)
	b.Virtio = frame.ReadVirtio(b.RoomWithHead(packetVirtioLen))
	b.Virtio.Buffers = 0 // read from behind the shorter header
	aux := &r.control[i]
	if aux.header.Level != unix.SOL_PACKET || aux.header.Type != unix.PACKET_AUXDATA || m.Hdr.Controllen == 0 {
		return
	}
	if aux.data.Status&unix.TP_STATUS_VLAN_VALID != 0 && length >= frame.EthernetLen {
		kind := uint16(frame.TypeVLAN)
		if aux.data.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			kind = aux.data.Vlan_tpid
		}
		b.PushVLAN(kind, aux.data.Vlan_tci)
	}
}

// Transmit sends v's frames and returns how many the kernel took. A frame that it refuses, because its queue is full, the
// link has no carrier, or the frame is longer than the link's MTU, is left empty; an error says that the link is down or
// gone.
func (p *AFPacket) Transmit(v []*frame.Buffer) (int, error) {
	sent := 0
	for len(v) > 0 {
		n := min(len(v), afPacketBurst)
		k, err := p.transmit(v[:n])
		sent += k
		if err != nil {
			return sent, err
		}
		v = v[n:]
	}
	return sent, nil
}

// transmit sends up to afPacketBurst frames. What it tells the kernel is on its own stack, as any worker may call it.
func (p *AFPacket) transmit(v []*frame.Buffer) (int, error) {
	var messages [afPacketBurst]unix.Mmsghdr
	var memory [afPacketBurst]unix.Iovec
	for i, b := range v {
		b.Virtio.Put(b.WithHead(frame.VirtioLen))
		whole := b.WithHead(frame.VirtioLen)
		copy(whole[frame.VirtioLen-packetVirtioLen:], whole[:packetVirtioLen])
		memory[i].Base = &whole[frame.VirtioLen-packetVirtioLen]
		memory[i].SetLen(packetVirtioLen + b.Len())
		messages[i].Hdr.Iov = &memory[i]
		messages[i].Hdr.SetIovlen(1)
	}
	sent := 0
	for i := 0; i < len(v); {
		n, errno := p.call(unix.SYS_SENDMMSG, &messages, i, len(v)-i)
		switch {
		case errno == 0:
			sent, i = sent+n, i+n
		case errno == unix.ENETDOWN, errno == unix.ENXIO, errno == unix.EBADF:
			return sent, errno
		case errno == unix.ENOBUFS && v[i].Virtio.IsGSO() && p.bypass.Load():
			// Frames that bypass the queueing discipline are not segmented in software: a link without segmentation needs the longer path.
			if err := p.setBypass(false); err != nil {
				return sent, err
			}
		default:
			v[i].SetLen(0)
			i++
		}
	}
	return sent, nil
}

// call is a raw system call on messages from first on: the socket never blocks, and the scheduler's bookkeeping would cost
// more. The runtime's preemption signals interrupt it.
func (p *AFPacket) call(number uintptr, messages *[afPacketBurst]unix.Mmsghdr, first, count int) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(number, uintptr(p.fd), uintptr(unsafe.Pointer(&messages[first])), uintptr(count),
			unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}
