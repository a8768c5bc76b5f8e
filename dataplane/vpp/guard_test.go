package vpp

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

// wireEnd sends and receives frames by eth1 of a pod.
type wireEnd struct {
	t  *testing.T
	fd int
}

func newWireEnd(t *testing.T, path string) *wireEnd {
	t.Helper()
	e := &wireEnd{t: t}
	netnstest.Do(t, path, func() {
		link, err := net.InterfaceByName("eth1")
		if err != nil {
			t.Fatal(err)
		}
		all := binary.BigEndian.Uint16([]byte{unix.ETH_P_ALL & 0xff, unix.ETH_P_ALL >> 8})
		e.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(e.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptTimeval(e.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = unix.Close(e.fd) })
	return e
}

func (e *wireEnd) put(raw []byte) {
	e.t.Helper()
	if _, err := unix.Write(e.fd, raw); err != nil {
		e.t.Fatal(err)
	}
}

// sees reads frames until one has the bytes end, and reports whether one before it has the bytes mark.
func (e *wireEnd) sees(mark, end []byte) (found bool) {
	e.t.Helper()
	buffer := make([]byte, 4096)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		n, err := unix.Read(e.fd, buffer)
		if err != nil {
			continue
		}
		found = found || bytes.Contains(buffer[:n], mark)
		if bytes.Contains(buffer[:n], end) {
			return found
		}
	}
	e.t.Fatal("the frame behind does not arrive")
	return false
}

// marks numbers frames: eight bytes that occur nowhere else.
type marks uint32

func (m *marks) next() []byte {
	*m++
	return binary.BigEndian.AppendUint32([]byte("mark"), uint32(*m))
}

// arrives sends a frame that ends with a mark and reports whether the other end gets it. Two frames that nothing
// filters are sent after it, the second after the first has arrived: VPP may handle frames of one vector in another
// order.
func (m *marks) arrives(from, to *wireEnd, raw []byte) bool {
	from.t.Helper()
	mark := m.next()
	found := false
	from.put(append(bytes.Clone(raw), mark...))
	for range 2 {
		end := m.next()
		from.put(append(ethernet(0x88b5), end...))
		found = to.sees(mark, end) || found
	}
	return found
}

func ethernet(kind uint16) []byte {
	b := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 9)
	return binary.BigEndian.AppendUint16(b, kind)
}

// ip6Frame is a frame of an IPv6 packet with a header of that protocol and those parts behind it.
func ip6Frame(protocol layers.IPProtocol, parts ...[]byte) []byte {
	payload := bytes.Join(parts, nil)
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: protocol, Length: uint16(len(payload) + markLen),
		SrcIP: net.ParseIP("fe80::9"), DstIP: net.ParseIP("ff02::1")}
	return append(append(ethernet(0x86dd), serialized(ip)...), payload...)
}

// ip4Frame is the same of IPv4, with options and a fragment's offset.
func ip4Frame(protocol layers.IPProtocol, options int, offset uint16, payload []byte) []byte {
	ip := &layers.IPv4{
		Version:    4,
		TTL:        64,
		Protocol:   protocol,
		SrcIP:      net.IPv4(10, 7, 0, 1),
		DstIP:      net.IPv4bcast,
		FragOffset: offset,
	}
	for range options { // no operation
		ip.Options = append(ip.Options, layers.IPv4Option{OptionType: 1})
	}
	header := serialized(ip)
	header[0] |= byte(len(header) / 4)
	binary.BigEndian.PutUint16(header[2:], uint16(len(header)+len(payload)+markLen))
	binary.BigEndian.PutUint16(header[10:], 0)
	binary.BigEndian.PutUint16(header[10:], sum(header))
	return append(append(ethernet(0x0800), header...), payload...)
}

const markLen = 8

func serialized(l gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	if err := l.SerializeTo(b, gopacket.SerializeOptions{FixLengths: false, ComputeChecksums: true}); err != nil {
		panic(err)
	}
	return bytes.Clone(b.Bytes())
}

func icmpOfType(kind byte) []byte { return append([]byte{kind}, make([]byte, 15)...) }

func udpBetween(source, destination uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, source), destination)
}

// udpPart is a UDP header.
func udpPart(source, destination uint16) []byte {
	return append(udpBetween(source, destination), 0, 8+markLen, 0, 0)
}

func optionsBefore(next byte, n int) []byte {
	b := make([]byte, 8*n)
	b[0] = next
	b[1] = byte(n - 1)
	return b
}

func tagged(n int, raw []byte) []byte {
	return bytes.Join([][]byte{raw[:12], bytes.Repeat([]byte{0x81, 0, 0, 0}, n), raw[12:]}, nil)
}

// falseFrames are what members of a guarded network must not send. Those whose name begins with "VPP: " only
// weft-vswitch drops.
func falseFrames() map[string][]byte {
	advert := icmpOfType(134)
	redirect := icmpOfType(137)
	const (
		icmpv6   = 58
		options  = 60
		fragment = 44
		udp      = 17
	)
	return map[string][]byte{
		"router advertisement":                    ip6Frame(icmpv6, advert),
		"advertisement behind hop by hop options": ip6Frame(0, optionsBefore(icmpv6, 1), advert),
		"advertisement behind routing header, options": ip6Frame(43, optionsBefore(options, 2),
			optionsBefore(icmpv6, 3), advert),
		"advertisement in an atomic fragment": ip6Frame(fragment, []byte{icmpv6, 0, 0, 0, 0, 0, 0, 7},
			advert),
		"first fragment of an advertisement": ip6Frame(fragment, []byte{icmpv6, 0, 0, 1, 0, 0, 0, 7},
			advert),
		"first fragment without the upper layer": ip6Frame(fragment, []byte{options, 0, 0, 1, 0, 0, 0, 7},
			optionsBefore(icmpv6, 3)[:16]),
		"later fragment of a chain of headers": ip6Frame(fragment, []byte{options, 0, 0, 8, 0, 0, 0, 7},
			advert),
		"redirect of IPv6":                           ip6Frame(icmpv6, redirect),
		"reply of DHCPv6":                            ip6Frame(udp, udpPart(547, 546)),
		"reply of DHCPv6 from another port":          ip6Frame(udp, udpPart(1547, 546)),
		"reply of DHCPv6 behind options":             ip6Frame(options, optionsBefore(udp, 2), udpPart(547, 546)),
		"redirect of IPv4":                           ip4Frame(1, 0, 0, icmpOfType(5)),
		"redirect of IPv4 behind options":            ip4Frame(1, 8, 0, icmpOfType(5)),
		"reply of DHCP":                              ip4Frame(udp, 0, 0, udpPart(67, 68)),
		"reply of DHCP behind options":               ip4Frame(udp, 40, 0, udpPart(67, 68)),
		"advertisement with a priority tag":          tagged(1, ip6Frame(icmpv6, advert)),
		"reply of DHCP with a priority tag":          tagged(1, ip4Frame(udp, 0, 0, udpPart(67, 68))),
		"advertisement with two priority tags":       tagged(2, ip6Frame(icmpv6, advert)),
		"advertisement with three priority tags":     tagged(3, ip6Frame(icmpv6, advert)),
		"VPP: advertisement with four priority tags": tagged(4, ip6Frame(icmpv6, advert)),
		"VPP: reply of DHCPv6 behind two fragment heads": ip6Frame(fragment, []byte{fragment, 0, 0, 0, 0, 0, 0, 7},
			[]byte{udp, 0, 0, 8, 0, 0, 0, 8}, udpPart(547, 546)),
	}
}

// usefulFrames are what members of any network may send.
func usefulFrames() map[string][]byte {
	return map[string][]byte{
		"router solicitation":       ip6Frame(58, icmpOfType(133)),
		"neighbour solicitation":    ip6Frame(58, icmpOfType(135)),
		"echo of IPv6":              ip6Frame(58, icmpOfType(128)),
		"echo of IPv4":              ip4Frame(1, 0, 0, icmpOfType(8)),
		"request of DHCP":           ip4Frame(17, 0, 0, udpPart(68, 67)),
		"request of DHCPv6":         ip6Frame(17, udpPart(546, 547)),
		"UDP of IPv6":               ip6Frame(17, udpPart(5000, 6000)),
		"UDP of IPv6, options":      ip6Frame(60, optionsBefore(17, 1), udpPart(5000, 6000)),
		"later fragment of UDP":     ip6Frame(44, []byte{17, 0, 0, 9, 0, 0, 0, 7}),
		"later fragment of IPv4":    ip4Frame(17, 0, 7, make([]byte, 16)),
		"SCTP of IPv6":              ip6Frame(132, make([]byte, 16)),
		"OSPF of IPv4":              ip4Frame(89, 0, 0, make([]byte, 16)),
		"another Ethernet type":     ethernet(0x88b6),
		"UDP with a tag":            tagged(1, ip6Frame(17, udpPart(5000, 6000))),
		"SCTP over IPv4, with tags": tagged(2, ip4Frame(132, 0, 0, make([]byte, 16))),
	}
}

// TestPodsAreNeitherRoutersNorDHCPServers sends frames from one pod to another, on a network that is guarded as ipnet
// plans it, and on one that is not.
func TestPodsAreNeitherRoutersNorDHCPServers(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	a := netnstest.New(t)
	b := netnstest.New(t)
	objects := append(append(bridgedPodOf(t, a, "a", "10.7.0.1/24"), bridgedPodOf(t, b, "b", "10.7.0.2/24")...),
		bridge("weft:blue", learning(1)))
	l.mustCommit(objects...)
	mustReach(t, a, "10.7.0.2")
	from := newWireEnd(t, a)
	to := newWireEnd(t, b)
	m := new(marks)
	for _, frames := range []map[string][]byte{falseFrames(), usefulFrames()} {
		for name, raw := range frames {
			if !m.arrives(from, to, raw) {
				t.Errorf("%s does not arrive on a network that is not guarded", name)
			}
		}
	}
	guard := plannedACL(t)
	l.mustCommit(guard, aclOn("a", "weft:guard"), aclOn("b", "weft:guard"),
		inBridge("weft:blue", "a", func(v *wire.BridgeMember) { v.Filtered = true }),
		inBridge("weft:blue", "b", func(v *wire.BridgeMember) { v.Filtered = true }))
	l.quiet()
	mustReach(t, a, "10.7.0.2")
	for name, raw := range usefulFrames() {
		if !m.arrives(from, to, raw) {
			t.Errorf("%s does not arrive", name)
		}
	}
	for name, raw := range falseFrames() {
		if m.arrives(from, to, raw) != (dataplane.Prefix() != "" && bytes.HasPrefix([]byte(name), []byte("VPP: "))) {
			t.Errorf("%s: not as it should be", name)
		}
	}
	for _, o := range append(objects, guard, aclOn("a", ""), aclOn("b", "")) {
		l.mustCommit(object{o.key, nil})
	}
	if left := l.ours(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
