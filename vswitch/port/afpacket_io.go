package port

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

const (
	// packetVirtioLen is the length of a packet socket's virtio header, which lacks the number of buffers.
	packetVirtioLen = 10
	// afPacketBurst is the number of frames of a system call.
	afPacketBurst = 64
	// maxSkips limits the frames that Receive skips because the socket cannot deliver them.
	maxSkips = afPacketBurst
)

// auxiliary is the control message of a frame: tpacket_auxdata.
type auxiliary struct {
	header unix.Cmsghdr
	data   unix.TpacketAuxdata
}

// afPacketBatch is the memory for a recvmmsg call.
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

// assign makes the first messages refer to the buffers of v.
func (r *afPacketBatch) assign(v []*frame.Buffer) {
	for i, b := range v {
		room := b.RoomWithHead(packetVirtioLen)
		r.memory[i].Base = unsafe.SliceData(room)
		r.memory[i].SetLen(len(room))
		r.messages[i].Hdr.SetControllen(int(unsafe.Sizeof(auxiliary{})))
	}
}

// Receive fills the buffers of v in order and returns their number. A frame longer than a buffer results in an empty
// one. An error means that the link is down or deleted.
func (p *AFPacket) Receive(v []*frame.Buffer) (int, error) {
	done := 0
	refusals := 0
	for done < len(v) {
		want := min(len(v)-done, afPacketBurst)
		p.receive.assign(v[done : done+want])
		n, errno := p.call(unix.SYS_RECVMMSG, &p.receive.messages, 0, want)
		switch {
		case errno == unix.EAGAIN:
			return done, nil
		case errno == unix.EINVAL && refusals < maxSkips:
			// The kernel dropped a GSO frame of a type that virtio cannot express.
			refusals++
			p.inexpressible++
			continue
		case errno != 0:
			return done, errno
		}
		for i := range n {
			p.receive.decode(i, v[done+i])
		}
		if done += n; n < want {
			return done, nil
		}
	}
	return done, nil
}

// Inexpressible returns the number of frames since the last call that the kernel dropped because a virtio header cannot
// express their segmentation. Only the receiver calls it.
func (p *AFPacket) Inexpressible() (n uint64) {
	n = p.inexpressible
	p.inexpressible = 0
	return n
}

// decode completes a buffer from message i.
func (r *afPacketBatch) decode(i int, b *frame.Buffer) {
	m := &r.messages[i]
	length := int(m.Len) - packetVirtioLen
	if length < 0 || m.Hdr.Flags&unix.MSG_TRUNC != 0 {
		b.SetLen(0)
		return
	}
	b.SetLen(length)
	b.Virtio = frame.ReadVirtio(b.RoomWithHead(packetVirtioLen))
	b.Virtio.Buffers = 0 // not part of the shorter header
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

// Transmit sends the frames of v and returns how many the kernel accepted. It empties refused frames: the queue is
// full, the link has no carrier, or the frame exceeds the link's MTU. An error means that the link is down or deleted.
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

// transmit sends up to afPacketBurst frames. Its messages are on the stack, because any worker may call it.
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
			sent = sent + n
			i = i + n
		case errno == unix.ENETDOWN, errno == unix.ENXIO, errno == unix.EBADF:
			return sent, errno
		case errno == unix.ENOBUFS && v[i].Virtio.IsGSO() && p.bypass.Load():
			// Software segmentation is skipped along with the queueing discipline, so a link without that offload must
			// not bypass it.
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

// call makes a raw system call for messages from first on: the socket never blocks, and the Go scheduler's accounting
// would cost more. Preemption signals of the runtime interrupt it.
func (p *AFPacket) call(number uintptr, messages *[afPacketBurst]unix.Mmsghdr, first, count int) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(number, uintptr(p.fd), uintptr(unsafe.Pointer(&messages[first])),
			uintptr(count),
			unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}
