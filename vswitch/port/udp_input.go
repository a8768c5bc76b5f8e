package port

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

// udpBurst is how many datagrams, or bundles of them, one system call moves.
const udpBurst = 64

// udpControl is the control message of one received bundle, or of one to send: the length of its datagrams.
type udpControl struct {
	header unix.Cmsghdr
	size   int32
	_      int32
}

// udpBatch is the receiver's memory.
type udpBatch struct {
	messages [udpBurst]unix.Mmsghdr
	memory   [udpBurst]unix.Iovec
	names    [udpBurst]unix.RawSockaddrInet6 // has room for IPv4's
	control  [udpBurst]udpControl
}

func (r *udpBatch) prepare() {
	for i := range r.messages {
		h := &r.messages[i].Hdr
		h.Iov = &r.memory[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Control = (*byte)(unsafe.Pointer(&r.control[i]))
	}
}

// Receive fills v's buffers, in order, as far as there are datagrams. What is longer than a buffer comes as an empty one. An
// error says that the socket is of no use any more.
func (u *UDP) Receive(v []*frame.Buffer) (int, error) {
	n := min(len(v), udpBurst)
	r := u.receive
	for i, b := range v[:n] {
		room := b.Room()
		r.memory[i].Base = unsafe.SliceData(room)
		r.memory[i].SetLen(len(room))
		h := &r.messages[i].Hdr
		h.Namelen = uint32(unsafe.Sizeof(r.names[i]))
		h.SetControllen(int(unsafe.Sizeof(udpControl{})))
	}
	n, errno := u.call(unix.SYS_RECVMMSG, unsafe.Pointer(&r.messages), n)
	switch errno {
	case 0:
	case unix.EBADF, unix.ENOTSOCK:
		return 0, errno
	default:
		return 0, nil // nothing waits, or the kernel tells of something that we sent
	}
	for i, b := range v[:n] {
		b.SetLen(int(r.messages[i].Len))
		if r.messages[i].Hdr.Flags&unix.MSG_TRUNC != 0 {
			b.SetLen(0)
		}
	}
	return n, nil
}

// Sender returns who sent what the last Receive put into buffer i, and the length of each datagram in it but the last; zero:
// it is a single one.
func (u *UDP) Sender(i int) (from netip.Addr, size int) {
	name := &u.receive.names[i]
	if name.Family == unix.AF_INET {
		from = netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr)
	} else {
		from = netip.AddrFrom16(name.Addr)
	}
	c := &u.receive.control[i]
	if u.receive.messages[i].Hdr.Controllen > 0 && c.header.Level == unix.SOL_UDP && c.header.Type == unix.UDP_GRO {
		size = int(c.size)
	}
	return from, size
}

// call is a raw system call, as for a packet socket.
func (u *UDP) call(number uintptr, messages unsafe.Pointer, count int) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(number, uintptr(u.fd), uintptr(messages), uintptr(count), unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}
