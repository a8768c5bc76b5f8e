package probe_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/internal/probe"
	"github.com/weftnet/weft/memif"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server on a free port until the test ends.
func serve(t *testing.T) uint16 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- probe.Serve(ctx, 0, w); _ = w.Close() }()
	t.Cleanup(func() {
		cancel()
		_, _ = io.Copy(io.Discard, r)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	line := make([]byte, 200)
	n, err := r.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(strings.TrimSpace(string(line[strings.LastIndexByte(string(line[:n]), ':')+1:n])),
		10, 16)
	if err != nil {
		t.Fatalf("%q: %v", line[:n], err)
	}
	return uint16(port)
}

// send returns the outcome of one probe.
func send(t *testing.T, p probe.Probe) (got probe.Outcome) {
	t.Helper()
	probe.Send(t.Context(), []probe.Probe{p}, func(o probe.Outcome) { got = o })
	return got
}

func TestEachProbeIsAnswered(t *testing.T) {
	port := serve(t)
	for _, text := range []string{"127.0.0.1", "::1"} {
		to := netip.MustParseAddr(text)
		for _, kind := range []string{probe.TCP, probe.UDP, probe.Full, probe.Connect} {
			o := send(t, probe.Probe{ID: 7, Kind: kind, To: to, Port: port, Via: "lo", Timeout: 3 * time.Second})
			if o.Error != "" || o.ID != 7 || o.Took <= 0 || kind == probe.Full && o.Size != 65535 {
				t.Errorf("%s to %s: %+v", kind, to, o)
			}
		}
	}
}

// echoShort echoes datagrams of at most a number of bytes, as a path with a small MTU does that sends no ICMP error.
func echoShort(t *testing.T, address string, most int) (port uint16) {
	t.Helper()
	server, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		data := make([]byte, 65535)
		for {
			n, from, err := server.ReadFrom(data)
			if err != nil {
				return
			}
			if n <= most {
				_, _ = server.WriteTo(data[:n], from)
			}
		}
	}()
	return server.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

func TestALostPacketIsFollowedByTheSearchForTheLongestThatFits(t *testing.T) {
	for _, tt := range []struct {
		address string
		most    int // bytes of data
		headers int
		least   int // of the result
	}{
		{"127.0.0.1", 40000, 28, 40028 - 128}, // the search from 65535 bytes is coarse
		{"::1", 1400, 48, 576},
		{"127.0.0.1", 100, 28, 0},
	} {
		to := netip.MustParseAddr(tt.address)
		p := probe.Probe{
			Kind: probe.Full, To: to, Port: echoShort(t, netip.AddrPortFrom(to, 0).String(), tt.most), Via: "lo",
			Timeout: 300 * time.Millisecond,
		}
		o := send(t, p)
		if o.Error == "" || o.Size != 65535 || o.Fits < tt.least || o.Fits > max(tt.most+tt.headers, tt.least) {
			t.Errorf("%s, at most %d bytes of data: %+v", tt.address, tt.most, o)
		}
		if tt.least == 0 && o.Fits != 0 {
			t.Errorf("no packet is answered, but %d bytes fit", o.Fits)
		}
	}
}

func TestPingsAreAnswered(t *testing.T) {
	if raw, err := os.ReadFile("/proc/sys/net/ipv4/ping_group_range"); err != nil ||
		strings.HasPrefix(string(raw), "1\t0") {
		t.Skip("needs a net.ipv4.ping_group_range with this group")
	}
	for _, text := range []string{"127.0.0.1", "::1"} {
		if o := send(t, probe.Probe{
			Kind:    probe.Ping,
			To:      netip.MustParseAddr(text),
			Timeout: 3 * time.Second,
		}); o.Error != "" {
			t.Errorf("%s: %+v", text, o)
		}
	}
}

func TestFailuresHaveAReason(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := other.Addr().(*net.TCPAddr).AddrPort().Port()
	_ = other.Close()
	here := netip.MustParseAddr("127.0.0.1")
	for want, p := range map[string]probe.Probe{
		"no reply within 90ms": {
			Kind: probe.UDP,
			To:   here,
			Port: silent.LocalAddr().(*net.UDPAddr).AddrPort().Port(),
		},
		"connection refused":       {Kind: probe.TCP, To: here, Port: closed},
		"interface nope: ":         {Kind: probe.Full, To: here, Port: closed, Via: "nope"},
		`unknown probe "frob"`:     {Kind: "frob"},
		"lookup name.invalid[ .:]": {Kind: probe.DNS, Name: "name.invalid"},
	} {
		p.Timeout = 90 * time.Millisecond
		o := send(t, p)
		if p.Kind == probe.DNS && o.Error == fmt.Sprintf("no reply within %s", p.Timeout) {
			continue // of a name server
		}
		if !regexp.MustCompile("^" + want).MatchString(o.Error) {
			t.Errorf("%s: %q, want %q", p.Kind, o.Error, want)
		}
	}
}

// A refusal is an answer of the host.
func TestRefusedConnectionReachesTheHost(t *testing.T) {
	if o := send(t, probe.Probe{
		Kind:    probe.Connect,
		To:      netip.MustParseAddr("127.0.0.1"),
		Port:    1,
		Timeout: time.Second,
	}); o.Error != "" {
		t.Errorf("%+v", o)
	}
}

func TestInterfacesIncludeMemifs(t *testing.T) {
	directory := t.TempDir()
	t.Setenv(memif.SocketVariable, filepath.Join(directory, "memif.sock"))
	t.Setenv(memif.SecretVariable, "open sesame")
	description := `{"version":1,"interfaces":[{"name":"m1","id":1,"role":"client","mode":"ethernet","mtu":1450,
		"mac":"02:00:00:00:00:01","addresses":["10.5.0.7/32"]}]}`
	if err := os.WriteFile(filepath.Join(directory, memif.DescriptionFile), []byte(description), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := probe.Interfaces()
	if err != nil || len(found) == 0 {
		t.Fatalf("%v (%v)", found, err)
	}
	last := found[len(found)-1]
	if last.Name != "m1" || !last.Memif || last.MTU != 1450 || len(last.Addresses) != 1 ||
		last.Addresses[0].String() != "10.5.0.7" {
		t.Errorf("%+v", last)
	}
}
