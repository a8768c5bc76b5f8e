package forward_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// stormMembers is the number of members in the network that finding 9 of issue 12 was measured on.
const stormMembers = 57

// BenchmarkStorm measures the round trip time of two members before and during a broadcast storm of a third one, with
// b.N round trips during the storm. In the last case the third one sends to a MAC that is dropped: that is the cost of
// sender and frames without flooding.
func BenchmarkStorm(b *testing.B) {
	sender := frame.MAC{2, 0, 0, 0, 1, 3}
	for _, c := range []struct {
		name  string
		limit int
		to    frame.MAC
	}{{"no limit", -1, frame.Broadcast}, {"default limit", 0, frame.Broadcast}, {"no broadcasts", 0, sender}} {
		b.Run(c.name, func(b *testing.B) {
			netnstest.RequireTap(b)
			e, end := startEngineOf(b, forward.Config{StormLimit: c.limit})
			defer end()
			pods := bridgeTaps(b, e)
			trip := echoBetween(b, pods[0], pods[1])
			measure := func(n int) (median, p99 float64) {
				trips := make([]time.Duration, n)
				for i := range trips {
					trips[i] = trip()
				}
				slices.Sort(trips)
				return float64(trips[n/2].Nanoseconds()) / 1000, float64(trips[n*99/100].Nanoseconds()) / 1000
			}
			measure(1000)
			quiet, quiet99 := measure(10_000)
			stop := sendFrom(b, pods[2], sender, c.to)
			b.ResetTimer()
			median, p99 := measure(b.N)
			b.StopTimer()
			stop()
			b.ReportMetric(quiet, "µs-before")
			b.ReportMetric(quiet99, "µs-before-p99")
			b.ReportMetric(median, "µs-during")
			b.ReportMetric(p99, "µs-during-p99")
			errors := e.Errors()
			b.ReportMetric(float64(errors["l2-flood/L2 flood packets"])/b.Elapsed().Seconds(), "flooded/s")
			b.ReportMetric(float64(errors["l2-flood/storm limit exceeded"])/b.Elapsed().Seconds(), "dropped/s")
		})
	}
}

// bridgeTaps adds taps to a bridge domain, and returns the namespaces of the first three.
func bridgeTaps(b *testing.B, e *forward.Engine) (pods []string) {
	b.Helper()
	others := netnstest.New(b)
	br := forward.Bridge{ID: 1, Learn: true, Forward: true, Flood: true, UUFlood: true, BVI: forward.NoInterface}
	for n := range stormMembers {
		index := uint32(n + 1)
		c := port.TapConfig{
			Namespace: others,
			Name:      fmt.Sprint("m", n),
			HostMAC:   frame.MAC{2, 0, 0, 0, 1, byte(index)},
			Up:        true,
		}
		if n < 3 {
			c.Namespace = netnstest.New(b)
			c.Name = "eth0"
			c.HostAddresses = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 1, byte(index)}), 24)}
			pods = append(pods, c.Namespace)
		}
		if _, err := e.OpenTap(index, c); err != nil {
			b.Fatal(err)
		}
		if err := e.SetInterface(index, forward.Interface{
			Up:  true,
			MAC: frame.MAC{2, 0, 0, 0, 0, byte(index)},
		}); err != nil {
			b.Fatal(err)
		}
		br.Members = append(br.Members, forward.BridgeMember{Interface: index})
	}
	if err := e.SetBridge(br); err != nil {
		b.Fatal(err)
	}
	e.Publish()
	return pods
}

// echoBetween returns a function that makes a UDP round trip from the second pod to the first.
func echoBetween(b *testing.B, server, client string) (trip func() time.Duration) {
	b.Helper()
	at := netip.MustParseAddrPort("10.1.1.1:7")
	open := func(namespace string, f func() (*net.UDPConn, error)) (c *net.UDPConn) {
		netnstest.Do(b, namespace, func() {
			opened, err := f()
			if err != nil {
				b.Fatal(err)
			}
			c = opened
		})
		return c
	}
	echo := open(server, func() (*net.UDPConn, error) { return net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)) })
	asks := open(client, func() (*net.UDPConn, error) { return net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at)) })
	var serving sync.WaitGroup
	serving.Go(func() {
		for raw := make([]byte, 64); ; {
			n, from, err := echo.ReadFromUDPAddrPort(raw)
			if err != nil {
				return // closed
			}
			_, _ = echo.WriteToUDPAddrPort(raw[:n], from) // the client repeats a lost request
		}
	})
	b.Cleanup(func() {
		_ = echo.Close()
		_ = asks.Close()
		serving.Wait()
	})
	raw := make([]byte, 64)
	return func() time.Duration {
		began := time.Now()
		if err := asks.SetDeadline(began.Add(20 * time.Second)); err != nil {
			b.Fatal(err)
		}
		if _, err := asks.Write(raw[:1]); err != nil {
			b.Fatal(err)
		}
		if _, err := asks.Read(raw); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
}

// sendFrom makes a pod send frames as fast as it can until stop is called.
func sendFrom(b *testing.B, pod string, source, destination frame.MAC) (stop func()) {
	b.Helper()
	var fd int
	to := &unix.SockaddrLinklayer{Halen: 6}
	netnstest.Do(b, pod, func() {
		link, err := net.InterfaceByName("eth0")
		if err == nil {
			to.Ifindex = link.Index
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		}
		if err != nil {
			b.Fatal(err)
		}
	})
	raw := make([]byte, 60)
	frame.PutEthernet(raw, destination, source, 0x88b5)
	done := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Sendto(fd, raw, 0, to) // lost if the queue is full
			}
		}
	})
	return func() {
		close(done)
		sending.Wait()
		_ = unix.Close(fd)
	}
}
