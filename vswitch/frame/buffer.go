// Package frame holds the packet buffers of the dataplane, with views of headers, checksums and segmentation in place.
package frame

import "encoding/binary"

// HeadRoom is the free space before a received frame: VXLAN headers (Ethernet, IPv6, UDP, VXLAN: 70 bytes), the virtio
// header, and padding that aligns the frame to a cache line.
const HeadRoom = 128

// BufferSize is the size of a buffer without head room, for a GSO frame of up to 65,549 bytes.
const BufferSize = 72 << 10

// MaxMTU is the largest MTU of pods' interfaces that the dataplane promises for all paths of a packet.
const MaxMTU = 9600

// JumboSize is the room for a packet of MaxMTU with all headers of a tunnel around it. It limits the copies of packets
// that the dataplane makes outside of buffers: in the slow path, and while their fragments arrive.
const JumboSize = MaxMTU + HeadRoom

// VectorSize is the largest number of frames in a vector.
const VectorSize = 256

// Buffer holds a frame, with room before and after it. It belongs to the worker that owns its pool.
//
// A buffer can borrow the body of its frame from a port's shared memory, so that the body is copied once, from port to
// port:
//
//	owned --Borrow--> borrowed --Bytes: copy the body--> owned
//	                     \--Parts: the transmitting port copies the body
//
// The peer may change shared memory at any time. Therefore the body is read only once, by Bytes or by the transmitting
// port, and every decision is based on private memory: Head or Bytes.
type Buffer struct {
	Virtio Virtio // metadata of the frame
	mem    []byte
	start  int
	end    int
	split  int    // start of the borrowed body in mem; used only if body is set
	body   []byte // borrowed from a port; nil: the whole frame is in mem
	pool   *Pool
}

// HeadLen is the number of bytes that Borrow copies: all headers that the common forwarding paths read.
const HeadLen = 128

// Borrow makes data the frame, after skip bytes that the caller fills. It copies at most HeadLen bytes; the rest stays
// in data, which must be valid until the frame is transmitted or released. It returns false if data exceeds the buffer.
func (b *Buffer) Borrow(skip int, data []byte) bool {
	at := b.start + skip
	n := len(data)
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
		b.split = at + HeadLen
		b.body = data[HeadLen:]
	}
	return true
}

// line is the size of a cache line, and of the smallest Ethernet frame.
const line = 64

// copyLine copies in four moves. The compiler turns copy, and larger moves between arrays that may overlap, into a
// call, which costs twice as much.
func copyLine(to, from *[line]byte) {
	*(*[16]byte)(to[0:16]) = *(*[16]byte)(from[0:16])
	*(*[16]byte)(to[16:32]) = *(*[16]byte)(from[16:32])
	*(*[16]byte)(to[32:48]) = *(*[16]byte)(from[32:48])
	*(*[16]byte)(to[48:64]) = *(*[16]byte)(from[48:64])
}

// Bytes returns the frame with its Ethernet header, valid until Release. It copies a borrowed body first.
func (b *Buffer) Bytes() []byte {
	if b.body != nil {
		b.copyBody()
	}
	return b.mem[b.start:b.end]
}

// copyBody copies the borrowed body into the buffer.
func (b *Buffer) copyBody() {
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

// CopyHead copies the start of the frame, as far as it is in private memory, and returns its length. The bytes of to
// after that are undefined.
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

// EthernetType returns the frame's type, or 0 if the frame is too short.
func (b *Buffer) EthernetType() uint16 {
	if b.end-b.start < EthernetLen {
		return 0
	}
	return binary.BigEndian.Uint16(b.mem[b.start+EthernetLen-2:])
}

// Len returns the frame's length.
func (b *Buffer) Len() int { return b.end - b.start }

// Room returns the memory from the frame's start on, for a reader that then calls SetLen.
func (b *Buffer) Room() []byte { return b.mem[b.start:] }

// SetLen sets the length of the frame, limited to the buffer.
func (b *Buffer) SetLen(n int) {
	end := b.start + min(max(n, 0), len(b.mem)-b.start)
	if b.body != nil && end > b.end {
		b.copyBody()
	}
	b.end = end
}

// WithHead returns the frame with the n bytes before it; n is at most HeadRoom for a received frame.
func (b *Buffer) WithHead(n int) []byte {
	if b.body != nil {
		b.copyBody()
	}
	return b.mem[b.start-n : b.end]
}

// RoomWithHead returns the memory from n bytes before the frame to the end of the buffer.
func (b *Buffer) RoomWithHead(n int) []byte { return b.mem[b.start-n:] }

// Push adds n bytes before the frame; false if there is no room.
func (b *Buffer) Push(n int) bool {
	if n > b.start {
		return false
	}
	b.start -= n
	return true
}

// Pull removes the first n bytes of the frame, or all.
func (b *Buffer) Pull(n int) {
	if b.body != nil {
		b.copyBody()
	}
	b.start += min(max(n, 0), b.Len())
}

// Release returns the buffer to its pool.
func (b *Buffer) Release() { b.pool.put(b) }

// Reset empties buffers for another use by the caller.
func Reset(v []*Buffer) {
	for _, b := range v {
		b.reset()
	}
}

func (b *Buffer) reset() {
	b.start = HeadRoom
	b.end = HeadRoom
	b.body = nil
	b.Virtio = Virtio{}
}
