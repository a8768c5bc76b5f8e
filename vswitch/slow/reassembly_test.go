package slow_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

var toUs = slow.Message{Reason: slow.Received, Interface: 1, Sender: 1}

// ping builds an echo request with a payload of size bytes.
func ping(t *testing.T, v6 bool, size int) []byte {
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte(i*7 + i>>8)
	}
	if !v6 {
		return build(t, ip4(layers.IPProtocolICMPv4, our4),
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 7, Seq: 3}, gopacket.Payload(payload))
	}
	ip := ip6(layers.IPProtocolICMPv6, their6, our6)
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}
	_ = icmp.SetNetworkLayerForChecksum(ip)
	return build(t, ip, icmp, &layers.ICMPv6Echo{Identifier: 7, SeqNumber: 3}, gopacket.Payload(payload))
}

// part returns the fragment of a packet with the data from one offset to another.
func part(raw []byte, id uint16, from, to int) []byte {
	header := frame.EthernetLen + frame.IPv4Len
	if raw[frame.EthernetLen]>>4 == 6 {
		header = frame.EthernetLen + frame.IPv6Len
	}
	return piece(raw[:header], cut{id, from, to < len(raw)-header}, raw[header:][from:to])
}

// cut is the place of a fragment.
type cut struct {
	id     uint16
	offset int
	more   bool
}

// piece returns a fragment with any data behind the headers of a packet.
func piece(header []byte, at cut, data []byte) []byte {
	b := slices.Clone(header)
	id := at.id
	more := at.more
	place := uint16(at.offset)
	if b[frame.EthernetLen]>>4 == 4 {
		place /= 8
		if more {
			place |= 0x2000
		}
		p := b[frame.EthernetLen:]
		binary.BigEndian.PutUint16(p[2:], uint16(len(p)+len(data)))
		binary.BigEndian.PutUint16(p[4:], id)
		binary.BigEndian.PutUint16(p[6:], place)
		p[10] = 0
		p[11] = 0
		binary.BigEndian.PutUint16(p[10:], uint16(^plain(p)))
		return append(b, data...)
	}
	if more {
		place |= 1
	}
	h := []byte{b[frame.EthernetLen+6], 0, byte(place >> 8), byte(place), 0, 0, byte(id >> 8), byte(id)}
	b[frame.EthernetLen+6] = 44
	binary.BigEndian.PutUint16(b[frame.EthernetLen+4:], uint16(len(h)+len(data)))
	return append(append(b, h...), data...)
}

// cutAt returns the fragments of a packet with data of size bytes, a multiple of 8.
func cutAt(raw []byte, id uint16, size int) (list [][]byte) {
	length := len(raw) - frame.EthernetLen - frame.IPv4Len
	if raw[frame.EthernetLen]>>4 == 6 {
		length -= frame.IPv6Len - frame.IPv4Len
	}
	for from := 0; from < length; from += size {
		list = append(list, part(raw, id, from, min(from+size, length)))
	}
	return list
}

// wantReply checks that the frames are the reply to a ping.
func wantReply(t interface{ Fatalf(string, ...any) }, out []sent, request []byte) {
	if len(out) != 1 {
		t.Fatalf("%d replies", len(out))
	}
	upper := frame.EthernetLen + frame.IPv4Len
	got := out[0].raw
	kind := byte(0)
	if request[frame.EthernetLen]>>4 == 6 {
		upper = frame.EthernetLen + frame.IPv6Len
		kind = 129
	}
	if len(got) != len(request) || got[upper] != kind || !bytes.Equal(got[upper+4:], request[upper+4:]) {
		t.Fatalf("the reply has %d bytes of %d, or others", len(got), len(request))
	}
	if upper == frame.EthernetLen+frame.IPv4Len &&
		(plain(got[frame.EthernetLen:upper]) != 0xffff || plain(got[upper:]) != 0xffff) {
		t.Fatalf("checksums of the reply")
	}
}

func TestFragmentsOfAPingAreAnsweredInAnyOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := newDataplane(t)
		request := ping(t, rapid.Bool().Draw(r, "v6"), rapid.IntRange(60, 9000).Draw(r, "size"))
		size := (len(request)/rapid.IntRange(2, 14).Draw(r, "parts") + 8) &^ 7
		list := rapid.Permutation(cutAt(request, 77, size)).Draw(r, "order")
		for n, raw := range list {
			if rapid.Bool().Draw(r, "twice") && n < len(list)-1 {
				if len(d.give(toUs, raw)) != 0 {
					r.Fatalf("answered after %d of %d", n, len(list))
				}
			}
			out := d.give(toUs, raw)
			if n < len(list)-1 && len(out) != 0 {
				r.Fatalf("answered after %d of %d", n, len(list))
			}
			if n == len(list)-1 {
				wantReply(r, out, request)
			}
		}
		if out := d.give(toUs, list[0]); len(out) != 0 {
			r.Fatalf("a late copy was answered")
		}
	})
}

// The identification of answers varies: a worker may fragment them.
func TestAnswersHaveIdentificationsOfTheirOwn(t *testing.T) {
	d := newDataplane(t)
	seen := map[string]bool{}
	for range 10 {
		seen[string(d.give(toUs, echo4(t, our4))[0].raw[18:20])] = true
	}
	if len(seen) != 10 {
		t.Errorf("%d identifications of 10 answers", len(seen))
	}
}

func TestFragmentsOfUDPAreRefusedLikeAWholePacket(t *testing.T) {
	for _, to := range []struct {
		name string
		raw  []byte
	}{{"IPv4", udp(t, our4, 2000)}, {"IPv6", udp(t, our6, 2000)}} {
		d := newDataplane(t)
		whole := newDataplane(t)
		want := whole.give(toUs, to.raw)
		var got []sent
		for _, raw := range cutAt(to.raw, 5, 1400) {
			got = d.give(toUs, raw)
		}
		if len(want) != 1 || len(got) != 1 ||
			!bytes.Equal(got[0].raw[frame.EthernetLen+frame.IPv6Len:], want[0].raw[frame.EthernetLen+frame.IPv6Len:]) {
			t.Errorf("%s: %d errors, or others than for the whole packet", to.name, len(got))
		}
	}
}

// No host sends neighbour discovery in fragments, and the dataplane processes none (RFC 6980).
func TestNeighbourDiscoveryInFragmentsIsIgnored(t *testing.T) {
	d := newDataplane(t)
	request := ping(t, true, 24)
	upper := request[frame.EthernetLen+frame.IPv6Len:]
	upper[0] = frame.ICMP6Solicit
	upper[2] = 0
	upper[3] = 0
	copy(upper[8:], our6.AsSlice())
	frame.ICMP(upper).PutChecksum(frame.PseudoHeader(their6, our6, frame.ProtocolICMPv6, len(upper)))
	for _, raw := range cutAt(request, 9, 16) {
		if len(d.give(toUs, raw)) != 0 {
			t.Error("answered")
		}
	}
	if d.drops("slow-path/no listener") != 1 {
		t.Error("not ignored")
	}
}

func TestHostileFragmentsAreRefused(t *testing.T) {
	long := slices.Repeat([]byte{1}, 8)
	for _, v6 := range []bool{false, true} {
		raw := ping(t, v6, 2000)
		header := raw[:len(raw)-2008]
		for _, c := range []struct {
			rule, cause string
			first       [][]byte
		}{
			{
				"an overlap", "overlapping fragments",
				[][]byte{part(raw, 1, 0, 1000), piece(header, cut{1, 992, true}, long)},
			},
			{
				"another end of the same begin", "overlapping fragments",
				[][]byte{part(raw, 1, 0, 1000), part(raw, 1, 0, 992)},
			},
			{
				"a fragment around another one", "overlapping fragments",
				[][]byte{part(raw, 1, 800, 1000), part(raw, 1, 640, 1200)},
			},
			{
				"a length that is no multiple of 8", "fragment with a wrong length",
				[][]byte{piece(header, cut{1, 0, true}, long[:7])},
			},
			{"no data", "fragment with a wrong length", [][]byte{piece(header, cut{1, 16, true}, nil)}},
			{
				"two ends", "fragment with a wrong length",
				[][]byte{part(raw, 1, 1600, 2008), piece(header, cut{1, 1600, false}, long)},
			},
			{
				"data behind the end", "fragment with a wrong length",
				[][]byte{piece(header, cut{1, 1600, false}, long), part(raw, 1, 1800, 1808)},
			},
			{
				"an end before other data", "fragment with a wrong length",
				[][]byte{part(raw, 1, 1800, 1808), piece(header, cut{1, 1600, false}, long)},
			},
			{"the ping of death", "packet too long", [][]byte{piece(header, cut{1, 65528, false}, long)}},
		} {
			d := newDataplane(t)
			for _, f := range c.first {
				d.give(toUs, f)
			}
			if n := d.drops("slow-path/" + c.cause); n != 1 {
				t.Errorf("v6 %v, %s: %d dropped", v6, c.rule, n)
			}
			for _, f := range cutAt(raw, 1, 1000) {
				if len(d.give(toUs, f)) != 0 {
					t.Errorf("v6 %v, %s: answered", v6, c.rule)
				}
			}
			if d.drops("slow-path/fragment of a refused packet") != 3 {
				t.Errorf("v6 %v, %s: the packet is not refused", v6, c.rule)
			}
		}
	}
}

func TestPacketOfTinyFragmentsIsRefused(t *testing.T) {
	d := newDataplane(t)
	raw := ping(t, false, 200)
	for _, f := range cutAt(raw, 1, 8) {
		if len(d.give(toUs, f)) != 0 {
			t.Error("answered")
		}
	}
	if d.drops("slow-path/too many fragments of a packet") != 1 {
		t.Error("not counted")
	}
}

// A pod that never completes its packets takes neither memory nor the reassembly of other pods.
func TestFloodOfFirstFragmentsConcernsItsSenderOnly(t *testing.T) {
	d := newDataplane(t)
	neighbour := toUs
	evil := toUs
	evil.Sender = 2
	mine := cutAt(ping(t, false, 2000), 1, 1400)
	d.give(neighbour, mine[0])
	flood := ping(t, false, 2000)
	for id := range 1000 {
		d.give(evil, part(flood, uint16(id+100), 0, 1400))
	}
	if n := d.drops("slow-path/fragmented packets of the interface at limit"); n != 1000-8 {
		t.Errorf("%d packets were displaced", n)
	}
	wantReply(t, d.give(neighbour, mine[1]), ping(t, false, 2000))
	// Its last packets can be completed, and a new one too.
	wantReply(t, d.give(evil, part(flood, 1099, 1400, 2008)), flood)
	d.step(3 * time.Second)
	if n := d.drops("slow-path/fragments missing"); n != 7 {
		t.Errorf("%d packets expired", n)
	}
}

func TestFragmentsThatComeTooLateAreNotJoined(t *testing.T) {
	d := newDataplane(t)
	raw := ping(t, true, 2000)
	list := cutAt(raw, 1, 1400)
	d.give(toUs, list[0])
	d.step(2100 * time.Millisecond)
	if out := d.give(toUs, list[1]); len(out) != 0 {
		t.Error("answered")
	}
	wantReply(t, d.give(toUs, list[0]), raw)
}

// The slow path must wake for it: else the memory of the last packet would be held until the next packet.
func TestStepReturnsWhenAReassemblyExpires(t *testing.T) {
	d := newDataplane(t)
	d.give(toUs, part(ping(t, false, 2000), 1, 0, 1400))
	due := d.path.Step(d.now)
	if due.IsZero() || due.After(d.now.Add(2*time.Second)) {
		t.Fatalf("due at %v", due)
	}
	d.now = due
	if due = d.path.Step(d.now); !due.IsZero() || d.drops("slow-path/fragments missing") != 1 {
		t.Errorf("due at %v, %d expired", due, d.drops("slow-path/fragments missing"))
	}
}

// Each packet has a time of its own, also behind one of the same sender that expires before it.
func TestEachReassemblyExpiresByItself(t *testing.T) {
	d := newDataplane(t)
	raw := ping(t, false, 2000)
	began := d.now
	d.give(toUs, part(raw, 1, 0, 1400))
	d.step(time.Second)
	d.give(toUs, part(raw, 2, 0, 1400))
	d.now = began.Add(2 * time.Second)
	due := d.path.Step(d.now)
	if n := d.drops("slow-path/fragments missing"); n != 1 || !due.Equal(began.Add(3*time.Second)) {
		t.Fatalf("%d expired, due %v after the first fragment", n, due.Sub(began))
	}
	d.now = due
	if due = d.path.Step(d.now); !due.IsZero() || d.drops("slow-path/fragments missing") != 2 {
		t.Errorf("due at %v, %d expired", due, d.drops("slow-path/fragments missing"))
	}
}

// FuzzReassembly sends fragments of a UDP packet whose bytes tell their place. An error that quotes the packet has each
// byte where a fragment put it.
func FuzzReassembly(f *testing.F) {
	f.Add([]byte{0, 2, 1, 2, 2, 0}, false)
	f.Add([]byte{2, 2, 0, 0, 2, 1, 1, 4, 1}, true)
	f.Fuzz(func(t *testing.T, script []byte, v6 bool) {
		d := newDataplane(t)
		raw := udp(t, our4, 10)
		header := frame.EthernetLen + frame.IPv4Len
		if v6 {
			raw = udp(t, our6, 10)
			header = frame.EthernetLen + frame.IPv6Len
		}
		answers := 0
		for ; len(script) >= 3; script = script[3:] {
			offset := int(script[0]) * 8
			length := int(script[1]) * 4
			more := script[2]&1 != 0
			if offset == 0 && !more {
				continue // no fragment
			}
			data := make([]byte, length)
			for i := range data {
				data[i] = byte((offset + i) * 5 >> 1)
			}
			for _, out := range d.give(toUs, piece(raw[:header], cut{uint16(script[2] >> 1), offset, more}, data)) {
				answers++
				quote := out.raw[header+frame.ICMPLen:]
				for i, x := range quote[header-frame.EthernetLen:] {
					if x != byte(i*5>>1) {
						t.Fatalf("byte %d of the packet is %x", i, x)
					}
				}
			}
		}
		if answers > 50 {
			t.Fatal("no rate limit")
		}
	})
}
