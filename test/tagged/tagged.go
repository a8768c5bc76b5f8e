// Package tagged sends and receives frames with VLAN tags on links, without Linux's driver for VLANs.
package tagged

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
)

// Tag is a VLAN tag of a frame.
type Tag struct{ kind, vlan uint16 }

// Dot1Q returns a tag of 802.1Q.
func Dot1Q(vlan uint16) Tag { return Tag{unix.ETH_P_8021Q, vlan} }

// Dot1AD returns a tag of 802.1ad.
func Dot1AD(vlan uint16) Tag { return Tag{unix.ETH_P_8021AD, vlan} }

// Link sends and receives frames of a test's own type on a link of a namespace, with all their tags. No driver for
// VLANs is needed.
type Link struct {
	t  *testing.T
	fd int
}

// testType is the type of frames for local experiments (IEEE 802).
const testType = 0x88b5

// Open opens a link of a namespace, and sets it up.
func Open(t *testing.T, netns, link string) *Link {
	t.Helper()
	r := &Link{t: t}
	netnstest.Do(t, netns, func() {
		of, err := netlink.LinkByName(link)
		if err == nil {
			err = netlink.LinkSetUp(of)
		}
		if err != nil {
			t.Fatal(err)
		}
		const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8
		r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
		if err == nil {
			err = unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: of.Attrs().Index})
		}
		if err == nil {
			err = unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = unix.Close(r.fd) })
	return r
}

// Send broadcasts a text from a MAC.
func (r *Link) Send(text string, tags ...Tag) {
	r.t.Helper()
	frame := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 7, byte(r.fd))
	for _, g := range tags {
		frame = binary.BigEndian.AppendUint16(frame, g.kind)
		frame = binary.BigEndian.AppendUint16(frame, g.vlan)
	}
	frame = binary.BigEndian.AppendUint16(frame, testType)
	frame = append(frame, text...)
	frame = append(frame, make([]byte, max(0, 60-len(frame)))...)
	if _, err := unix.Write(r.fd, frame); err != nil {
		r.t.Fatal(err)
	}
}

// Received lists the texts that have arrived, with their tags: "text [8100:100]".
func (r *Link) Received() (texts []string) {
	r.t.Helper()
	for {
		frame := make([]byte, 2048)
		control := make([]byte, 256)
		n, size, _, from, err := unix.Recvmsg(r.fd, frame, control, 0)
		if err != nil {
			return texts
		}
		if link, is := from.(*unix.SockaddrLinklayer); is && link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		frame = withStrippedTag(frame[:n], control[:size])
		var tags []string
		at := 12
		for kind := binary.BigEndian.Uint16(frame[at:]); kind == unix.ETH_P_8021Q || kind == unix.ETH_P_8021AD; {
			tags = append(tags, Tag{kind, binary.BigEndian.Uint16(frame[at+2:])}.String())
			at += 4
			kind = binary.BigEndian.Uint16(frame[at:])
		}
		if binary.BigEndian.Uint16(frame[at:]) == testType {
			texts = append(texts, fmt.Sprintf("%s %v", bytes.TrimRight(frame[at+2:], "\x00"), tags))
		}
	}
}

// withStrippedTag returns a frame with the tag that the kernel reports beside it.
func withStrippedTag(frame, control []byte) []byte {
	messages, _ := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA {
			continue
		}
		status := binary.NativeEndian.Uint32(m.Data)
		if status&unix.TP_STATUS_VLAN_VALID != 0 {
			tagged := binary.BigEndian.AppendUint16(slices.Clone(frame[:12]), binary.NativeEndian.Uint16(m.Data[18:]))
			tagged = binary.BigEndian.AppendUint16(tagged, binary.NativeEndian.Uint16(m.Data[16:]))
			return append(tagged, frame[12:]...)
		}
	}
	return frame
}

// String has the form of Received.
func (g Tag) String() string { return fmt.Sprintf("%x:%d", g.kind, g.vlan) }

// Crossing is a frame that arrives: with the tags in at the one end, and out, in the form of Received, at the other.
type Crossing struct {
	from *Link
	to   *Link
	in   []Tag
	out  string
}

// To returns the crossing to a link of a frame with tags, which are out at the other end, in the form of Received.
func (r *Link) To(to *Link, out string, in ...Tag) Crossing { return Crossing{r, to, in, out} }

// Await fails the test if the frame does not arrive within a minute.
func (c Crossing) Await() {
	l := c.from.t
	l.Helper()
	var seen []string
	deadline := time.Now().Add(time.Minute)
	for try := 0; time.Now().Before(deadline); try++ {
		text := fmt.Sprintf("%v-%d", c.in, try)
		c.from.Send(text, c.in...)
		for range 20 {
			seen = append(seen, c.to.Received()...)
			if slices.Contains(seen, text+" "+c.out) {
				return
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	l.Errorf("frame with tags %v did not arrive with %s: %v", c.in, c.out, seen)
}

// Drops sends a frame with tags before one that crosses, and fails the test if it arrives anywhere.
func Drops(in []Tag, before Crossing, others ...*Link) {
	l := before.from.t
	l.Helper()
	before.from.Send("forbidden", in...)
	before.Await()
	for n, o := range others {
		for _, text := range o.Received() {
			if strings.HasPrefix(text, "forbidden") {
				l.Errorf("link %d received %s", n, text)
			}
		}
	}
}
