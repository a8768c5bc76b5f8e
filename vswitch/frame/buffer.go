package frame

import "encoding/binary"

// HeadRoom is the free space before a received frame: a VXLAN envelope (Ethernet, IPv6, UDP, VXLAN: 70 bytes), the
// virtio header, and padding that starts the frame on a cache line: a 64-byte frame occupies a single line.
const HeadRoom = 128

// The two sizes of buffers, without head room: one for ordinary frames, one for a GSO frame (up to 65,549 bytes).
const (
	SmallSize = 2 << 10
	LargeSize = 72 << 10
)

// VectorSize is the most frames that are handled together.
const VectorSize = 256

// Buffer holds one frame, with room before and behind it. It belongs to the worker whose pool it is from.
//
// A buffer can borrow the body of its frame from a port's shared memory, so that the body is copied once, from port to
// port:
//
//	owned --Borrow--> borrowed --Bytes: copy the body--> owned
//	                     \--Parts: the port that transmits copies the body
//
// The peer may change shared memory at any time. Therefore the body is read only once, by Bytes or by the transmitting
// port, and every decision is based on private memory: Head or Bytes.
type Buffer struct {
	Virtio Virtio // travels with the frame
	mem    []byte
	start  int
	end    int
	split  int    // where the borrowed body begins in mem; used only if body is set
	body   []byte // borrowed from a port; nil: the whole frame is in mem
	pool   *Pool
}

// HeadLen is the number of bytes that Borrow copies: all headers that the common forwarding paths read.
const HeadLen = 128

// Borrow makes data the frame, after skip bytes that the caller fills. At most HeadLen bytes of data are copied; the
// remainder stays in data, which must be valid until the frame is transmitted or released. False: data exceeds the
// buffer.
func (b *Buffer) Borrow(skip int, data []byte) bool {
	at, n := b.start+skip, len(data)
	if at+n > len(b.mem) {
		return false
	}
	b.end = at + n
	switch {
	case n < line:
		copy(b.mem[at:], data)
	case n <= HeadLen:
		copyLine((*[line]byte)(b.mem[at:]), (*[line]byte)(data))
		if n > line {
			copyLine((*[line]byte)(b.mem[at+n-line:]), (*[line]byte)(data[n-line:]))
		}
	default:
		copyLine((*[line]byte)(b.mem[at:]), (*[line]byte)(data))
		copyLine((*[line]byte)(b.mem[at+line:]), (*[line]byte)(data[line:]))
		b.split, b.body = at+HeadLen, data[HeadLen:]
	}
	return true
}

// line is the size of a cache line, and of the smallest Ethernet frame.
const line = 64

// copyLine copies in four moves. The compiler turns larger ones between arrays that may overlap, and copy, into a call,
// which costs twice as much.
func copyLine(to, from *[line]byte) {
	*(*[16]byte)(to[0:16]) = *(*[16]byte)(from[0:16])
	*(*[16]byte)(to[16:32]) = *(*[16]byte)(from[16:32])
	*(*[16]byte)(to[32:48]) = *(*[16]byte)(from[32:48])
	*(*[16]byte)(to[48:64]) = *(*[16]byte)(from[48:64])
}

// Bytes returns the frame, from its Ethernet header on; valid until Release. It copies a borrowed body first.
func (b *Buffer) Bytes() []byte {
	if b.body != nil {
		b.own()
	}
	return b.mem[b.start:b.end]
}

// own copies the borrowed body into the buffer.
func (b *Buffer) own() {
	if b.split < b.end {
		copy(b.mem[b.split:b.end], b.body)
	}
	b.body = nil
}

// Head returns the part of the frame that is in private memory: the whole frame, or its first HeadLen bytes.
func (b *Buffer) Head() []byte {
	if b.body != nil {
		return b.mem[b.start:min(b.split, b.end)]
	}
	return b.mem[b.start:b.end]
}

// CopyHead copies the beginning of the frame, as far as it is in private memory, and returns how many bytes of to are the
// frame's; what is behind them means nothing.
func (b *Buffer) CopyHead(to []byte) int {
	h := b.Head()
	if len(h) > line || len(to) < line || cap(h) < line {
		return copy(to, h)
	}
	copyLine((*[line]byte)(to), (*[line]byte)(h[:line]))
	return len(h)
}

// Parts returns the frame in two parts for a port to copy; body is empty unless it is borrowed. The body must be read
// only once.
func (b *Buffer) Parts() (head, body []byte) {
	if b.body == nil {
		return b.mem[b.start:b.end], nil
	}
	return b.mem[b.start:min(b.split, b.end)], b.body[:max(b.end-b.split, 0)]
}

// EthernetType returns the frame's type, or 0 where the frame is too short for one.
func (b *Buffer) EthernetType() uint16 {
	if b.end-b.start < EthernetLen {
		return 0
	}
	return binary.BigEndian.Uint16(b.mem[b.start+EthernetLen-2:])
}

// Len returns the frame's length.
func (b *Buffer) Len() int { return b.end - b.start }

// Room returns all memory from the frame's start on, for a reader to fill; SetLen then says how much it did.
func (b *Buffer) Room() []byte { return b.mem[b.start:] }

// SetLen says how long the frame is; lengths outside the buffer are cut to it.
func (b *Buffer) SetLen(n int) {
	end := b.start + min(max(n, 0), len(b.mem)-b.start)
	if b.body != nil && end > b.end {
		b.own()
	}
	b.end = end
}

// WithHead returns the memory from n bytes before the frame to its end; n is at most HeadRoom for a frame just received.
func (b *Buffer) WithHead(n int) []byte {
	if b.body != nil {
		b.own()
	}
	return b.mem[b.start-n : b.end]
}

// RoomWithHead is WithHead to the end of the buffer.
func (b *Buffer) RoomWithHead(n int) []byte { return b.mem[b.start-n:] }

// Push moves the frame's start n bytes towards the head; false: there is no room.
func (b *Buffer) Push(n int) bool {
	if n > b.start {
		return false
	}
	b.start -= n
	return true
}

// Pull takes the frame's first n bytes off, at most all of them.
func (b *Buffer) Pull(n int) {
	if b.body != nil {
		b.own()
	}
	b.start += min(max(n, 0), b.Len())
}

// Release gives the buffer back to its pool.
func (b *Buffer) Release() { b.pool.put(b) }

// Reset makes buffers empty again whose holder keeps them.
func Reset(v []*Buffer) {
	for _, b := range v {
		b.reset()
	}
}

// reset makes it empty again.
func (b *Buffer) reset() {
	b.start, b.end = HeadRoom, HeadRoom
	b.body = nil
	b.Virtio = Virtio{}
}
