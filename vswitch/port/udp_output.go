package port

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

const (
	// bundleFrames is how many datagrams the kernel cuts from one buffer (UDP_MAX_SEGMENTS of Linux before 6.9).
	bundleFrames = 64
	// bundleBytes leaves room for the headers in an IP packet's 65,535 bytes.
	bundleBytes = 65000
)

// udpOutput is what is told the kernel of a vector: bundles of datagrams. It is on its caller's stack, as any worker may
// transmit.
type udpOutput struct {
	names   [udpBurst]unix.RawSockaddrInet6
	control [udpBurst]udpControl
	frames  [udpBurst]int // of each bundle
	first   [udpBurst]int // of memory, of each bundle
	memory  [frame.VectorSize]unix.Iovec
	bundles int
	used    int // of memory
}

// Transmit sends v's packets and returns how many the kernel took. One that it refuses, as there is no route, no room, or no
// fragmenting it, is left empty; an error says that the socket is of no use any more.
func (u *UDP) Transmit(v []*frame.Buffer) (int, error) {
	sent := 0
	for len(v) > 0 {
		n, k, err := u.transmit(v, u.segments.Load())
		sent += k
		if err != nil {
			return sent, err
		}
		v = v[n:]
	}
	return sent, nil
}

// transmit sends the first of v, and says how many it has dealt with.
func (u *UDP) transmit(v []*frame.Buffer, bundle bool) (dealt, sent int, err error) {
	var o udpOutput
	var messages [udpBurst]unix.Mmsghdr
	dealt = o.pack(v, bundle)
	for i := range o.bundles { // not by a pointer to a message: o would not stay on the stack
		messages[i].Hdr.Iov = &o.memory[o.first[i]]
		messages[i].Hdr.SetIovlen(o.frames[i])
		messages[i].Hdr.Name = (*byte)(unsafe.Pointer(&o.names[i]))
		messages[i].Hdr.Namelen = unix.SizeofSockaddrInet6
		if o.frames[i] > 1 {
			messages[i].Hdr.Control = (*byte)(unsafe.Pointer(&o.control[i]))
			messages[i].Hdr.SetControllen(unix.CmsgSpace(2))
		}
	}
	for first, at := 0, 0; first < o.bundles; {
		n, errno := u.call(unix.SYS_SENDMMSG, unsafe.Pointer(&messages[first]), o.bundles-first)
		if errno == 0 {
			for range n {
				at, sent, first = at+o.frames[first], sent+o.frames[first], first+1
			}
			continue
		}
		bundle := v[at : at+o.frames[first]]
		at, first = at+len(bundle), first+1
		k, err := u.refused(bundle, errno)
		if sent += k; err != nil {
			return dealt, sent, err
		}
	}
	return dealt, sent, nil
}

// refused deals with a bundle that the kernel did not take: one by one, where it is the bundle that is wrong.
func (u *UDP) refused(bundle []*frame.Buffer, errno unix.Errno) (sent int, err error) {
	if len(bundle) > 1 && (errno == unix.EINVAL || errno == unix.EMSGSIZE || errno == unix.EIO) {
		if errno == unix.EIO {
			u.segments.Store(false) // the link has no checksum offload
		}
		for i := range bundle {
			_, n, err := u.transmit(bundle[i:i+1], false)
			if sent += n; err != nil {
				return sent, err
			}
		}
		return sent, nil
	}
	if u.lost(errno) {
		return 0, errno
	}
	for _, b := range bundle {
		b.SetLen(0)
	}
	return 0, nil
}

// pack prepares as many packets as fit, and returns how many.
func (o *udpOutput) pack(v []*frame.Buffer, bundle bool) int {
	var last []byte // the first packet of the last bundle
	open, bytes := false, 0
	for i, b := range v {
		raw := b.Bytes()
		headers := headersOf(raw)
		fits := open && bundle && len(raw) <= len(last) && sameEnd(last, raw) && o.frames[o.bundles-1] < bundleFrames &&
			bytes+len(raw) <= bundleBytes
		if !fits {
			if o.bundles == udpBurst {
				return i
			}
			o.begin(raw)
			last, bytes = raw, 0
		}
		o.memory[o.used].Base = &raw[headers]
		o.memory[o.used].SetLen(len(raw) - headers)
		o.used++
		bytes += len(raw)
		o.frames[o.bundles-1]++
		if o.frames[o.bundles-1] == 2 {
			o.announce(o.bundles-1, len(last)-headers)
		}
		open = len(raw) == len(last) // a shorter one is the last
		if o.used == len(o.memory) {
			return i + 1
		}
	}
	return len(v)
}

// begin starts a bundle to where a packet goes.
func (o *udpOutput) begin(raw []byte) {
	name := &o.names[o.bundles]
	o.first[o.bundles] = o.used
	at := headersOf(raw) - frame.UDPLen
	port := binary.NativeEndian.Uint16(raw[at+2:]) // big endian there and here
	if raw[0]>>4 == 4 {
		four := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		four.Family, four.Port = unix.AF_INET, port
		copy(four.Addr[:], raw[16:20])
	} else {
		name.Family, name.Port = unix.AF_INET6, port
		copy(name.Addr[:], raw[24:40])
	}
	o.bundles++
}

// announce tells the kernel where to cut.
func (o *udpOutput) announce(bundle, size int) {
	c := &o.control[bundle]
	c.header.Level, c.header.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	c.header.SetLen(unix.CmsgLen(2))
	*(*uint16)(unsafe.Pointer(&c.size)) = uint16(size)
}

// headersOf is the length of a packet's IP and UDP headers: an envelope's, without options.
func headersOf(raw []byte) int {
	if raw[0]>>4 == 4 {
		return frame.IPv4Len + frame.UDPLen
	}
	return frame.IPv6Len + frame.UDPLen
}

// sameEnd says that two packets of one family go to the same address and port.
func sameEnd(a, b []byte) bool {
	if a[0]>>4 == 4 {
		return string(a[16:20]) == string(b[16:20]) && string(a[22:24]) == string(b[22:24])
	}
	return string(a[24:40]) == string(b[24:40]) && string(a[42:44]) == string(b[42:44])
}
