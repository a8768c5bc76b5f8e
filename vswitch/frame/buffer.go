package frame

// HeadRoom is the free space before a received frame: a VXLAN envelope (Ethernet, IPv6, UDP, VXLAN: 70 bytes), the
// virtio header, and padding that puts the IP header on a 4-byte boundary.
const HeadRoom = 130

// The two sizes of buffers, without head room: one for ordinary frames, one for a GSO frame (up to 65,549 bytes).
const (
	SmallSize = 2 << 10
	LargeSize = 72 << 10
)

// VectorSize is the most frames that are handled together.
const VectorSize = 256

// Buffer holds one frame, with room before and behind it. It belongs to the worker whose pool it is from.
type Buffer struct {
	Virtio Virtio // travels with the frame
	mem    []byte
	start  int
	end    int
	pool   *Pool
}

// Bytes returns the frame, from its Ethernet header on; valid until Release.
func (b *Buffer) Bytes() []byte { return b.mem[b.start:b.end] }

// Len returns the frame's length.
func (b *Buffer) Len() int { return b.end - b.start }

// Room returns all memory from the frame's start on, for a reader to fill; SetLen then says how much it did.
func (b *Buffer) Room() []byte { return b.mem[b.start:] }

// SetLen says how long the frame is; lengths outside the buffer are cut to it.
func (b *Buffer) SetLen(n int) { b.end = b.start + min(max(n, 0), len(b.mem)-b.start) }

// WithHead returns the memory from n bytes before the frame to its end; n is at most HeadRoom for a frame just received.
func (b *Buffer) WithHead(n int) []byte { return b.mem[b.start-n : b.end] }

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
func (b *Buffer) Pull(n int) { b.start += min(max(n, 0), b.Len()) }

// Release gives the buffer back to its pool.
func (b *Buffer) Release() { b.pool.put(b) }

// reset makes it empty again.
func (b *Buffer) reset() {
	b.start, b.end = HeadRoom, HeadRoom
	b.Virtio = Virtio{}
}
