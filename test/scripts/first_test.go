package scripts_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// firstCommand: first NAME TO sends one echo request from the sandbox to each address of TO, which must answer, and
// prints the frames of eth0 up to the reply, one per line: "ARP", "ND", or the IP addresses.
func firstCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		usage(ts, "first NAME TO")
	}
	s := on(ts)
	b := s.sandbox(ts, args[0])
	addresses, err := s.addresses(args[1])
	ts.Check(err)
	for _, to := range addresses {
		tap, err := listen(b.path)
		ts.Check(err)
		answered, err := pings(b.path, to, 1, false)
		ts.Check(err)
		if answered == 0 {
			ts.Fatalf("no reply to the first echo request to %s", to)
		}
		lines, err := framesUntilAnswer(tap, to)
		ts.Check(err)
		_, _ = fmt.Fprintln(ts.Stdout(), strings.Join(lines, "\n"))
	}
}

// listen opens a packet socket for all frames of eth0 in the namespace.
func listen(path string) (*os.File, error) {
	var socket int
	err := netns.Do(path, func() (err error) {
		socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			int(bigEndian(unix.ETH_P_ALL)))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return os.NewFile(uintptr(socket), "frames of "+path), nil
}

func bigEndian(v uint16) uint16 { return v<<8 | v>>8 }

// framesUntilAnswer describes the frames up to the reply of an address, and closes the socket.
func framesUntilAnswer(tap *os.File, from netip.Addr) (lines []string, err error) {
	defer tap.Close()
	if err := tap.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	for frame := make([]byte, 1<<16); ; {
		n, err := tap.Read(frame)
		if err != nil {
			return nil, fmt.Errorf("wait for the reply of %s: %w; received %q", from, err, lines)
		}
		line := describe(gopacket.NewPacket(frame[:n], layers.LayerTypeEthernet, gopacket.Default))
		lines = append(lines, line)
		if strings.HasPrefix(line, from.String()+" -> ") {
			return lines, nil
		}
	}
}

func describe(p gopacket.Packet) string {
	ip := p.NetworkLayer()
	switch {
	case p.Layer(layers.LayerTypeARP) != nil:
		return "ARP"
	case ip == nil:
		return p.String()
	case p.Layer(layers.LayerTypeICMPv6NeighborSolicitation) != nil && ip.NetworkFlow().Src().String() != "::":
		return "ND" // from ::, duplicate address detection
	}
	return fmt.Sprintf("%s -> %s", ip.NetworkFlow().Src(), ip.NetworkFlow().Dst())
}
