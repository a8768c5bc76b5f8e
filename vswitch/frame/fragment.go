package frame

import "encoding/binary"

const (
	moreFragments = 0x2000
	fragmentUnit  = 8 // unit of fragment offsets
	// IP options (RFC 791 3.1). Options with the copied bit are repeated in every fragment.
	optionEnd    = 0
	optionNop    = 1
	optionCopied = 0x80
)

// Fragmenter cuts an IPv4 packet, which may be a fragment itself, into fragments (RFC 791 3.2). It does not change the frame, and
// allocates nothing.
type Fragmenter struct {
	frame   []byte
	network int // offset of the IP header
	headers int // length of the Ethernet and IP headers, which each fragment repeats
	size    int // payload of a full fragment
	next    int // offset of the next fragment in the payload
}

// NewFragmenter returns a Fragmenter for fragments of at most mtu bytes with their IP header; false if the frame has no IPv4
// packet or DF is set. The L4 checksum must be complete.
func NewFragmenter(b []byte, mtu int) (Fragmenter, bool) {
	var f Fragmenter
	if len(b) < EthernetLen {
		return f, false
	}
	kind, at := Ethernet(b).Network()
	p, err := ParseIPv4(b[at:])
	if kind != TypeIPv4 || err != nil || p.DontFragment() {
		return f, false
	}
	f = Fragmenter{frame: b[:at+len(p)], network: at, headers: at + p.HeaderLen()}
	f.size = (mtu - p.HeaderLen()) / fragmentUnit * fragmentUnit
	return f, f.size > 0
}

// Next writes the next fragment into room and returns its length, or 0 at the end.
func (f *Fragmenter) Next(room []byte) int {
	at := f.headers + f.next
	n := min(f.size, len(f.frame)-at)
	if n <= 0 {
		return 0
	}
	copy(room, f.frame[:f.headers])
	copy(room[f.headers:], f.frame[at:at+n])
	fragment := room[:f.headers+n]
	header := fragment[f.network:f.headers]
	if f.next > 0 {
		clearFirstOptions(header[IPv4Len:])
	}
	place := binary.BigEndian.Uint16(header[6:]) + uint16(f.next/fragmentUnit)
	if at+n < len(f.frame) {
		place |= moreFragments
	}
	binary.BigEndian.PutUint16(header[2:], uint16(len(header)+n))
	binary.BigEndian.PutUint16(header[6:], place)
	header[10], header[11] = 0, 0
	binary.BigEndian.PutUint16(header[10:], Checksum(header))
	f.next += n
	return len(fragment)
}

// clearFirstOptions replaces options without the copied bit by no-operations, which keeps the header's length.
func clearFirstOptions(options []byte) {
	for len(options) > 0 && options[0] != optionEnd {
		if options[0] == optionNop {
			options = options[1:]
			continue
		}
		if len(options) < 2 || int(options[1]) < 2 || int(options[1]) > len(options) {
			return
		}
		n := int(options[1])
		if options[0]&optionCopied == 0 {
			for i := range n {
				options[i] = optionNop
			}
		}
		options = options[n:]
	}
}
