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

// Fragmenter cuts an IP packet into fragments (RFC 791 3.2, RFC 8200 4.5). One of IPv4 may be a fragment itself. It
// does not change the frame, and allocates nothing.
type Fragmenter struct {
	frame   []byte
	network int // offset of the IP header
	headers int // length of the Ethernet and IP headers, which each fragment repeats
	size    int // payload of a full fragment
	next    int // offset of the next fragment in the payload

	// Of IPv6:
	extra          int // length of the fragment header
	identification uint32
}

// NewFragmenter returns a Fragmenter for fragments of at most mtu bytes with their IP header; false if the frame has no
// IPv4 packet or DF is set. The L4 checksum must be complete.
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

// NewFragmenter6 returns a Fragmenter for a packet of IPv6 without extension headers: routers do not fragment packets
// of IPv6, but the dataplane does it with its own ones. The identification must not repeat soon.
func NewFragmenter6(b []byte, mtu int, identification uint32) (Fragmenter, bool) {
	var f Fragmenter
	if len(b) < EthernetLen {
		return f, false
	}
	kind, at := Ethernet(b).Network()
	p, err := ParseIPv6(b[at:])
	if kind != TypeIPv6 || err != nil || IsExtension(p[6]) {
		return f, false
	}
	f = Fragmenter{
		frame:          b[:at+len(p)],
		network:        at,
		headers:        at + IPv6Len,
		extra:          FragmentLen,
		identification: identification,
	}
	f.size = (mtu - IPv6Len - FragmentLen) / fragmentUnit * fragmentUnit
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
	copy(room[f.headers+f.extra:], f.frame[at:at+n])
	fragment := room[:f.headers+f.extra+n]
	more := at+n < len(f.frame)
	if f.extra > 0 {
		f.putHeader6(fragment, more)
	} else {
		f.putHeader4(fragment, more)
	}
	f.next += n
	return len(fragment)
}

func (f *Fragmenter) putHeader4(fragment []byte, more bool) {
	header := fragment[f.network:f.headers]
	if f.next > 0 {
		clearFirstOptions(header[IPv4Len:])
	}
	place := binary.BigEndian.Uint16(header[6:]) + uint16(f.next/fragmentUnit)
	if more {
		place |= moreFragments
	}
	binary.BigEndian.PutUint16(header[2:], uint16(len(fragment)-f.network))
	binary.BigEndian.PutUint16(header[6:], place)
	header[10] = 0
	header[11] = 0
	binary.BigEndian.PutUint16(header[10:], Checksum(header))
}

func (f *Fragmenter) putHeader6(fragment []byte, more bool) {
	header := IPv6(fragment[f.network:])
	h := fragment[f.headers:]
	h[0] = header[6]
	h[1] = 0
	place := uint16(f.next)
	if more {
		place |= 1
	}
	binary.BigEndian.PutUint16(h[2:], place)
	binary.BigEndian.PutUint32(h[4:], f.identification)
	header[6] = protocolFragment
	header.SetWhole()
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
