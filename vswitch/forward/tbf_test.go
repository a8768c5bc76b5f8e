package forward_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

const (
	tbfPayload = 1000
	tbfHeaders = 14 + 20 + 8
	tbfPort    = 9000
)

// BenchmarkPolicerAgainstTBF sends UDP faster than a rate for some seconds, through a policer and through the kernel's
// token bucket filter, which the plugin bandwidth uses. The metrics are the bytes that arrived after the first burst,
// with headers, as a part of what the rate permits: 1 is exact.
func BenchmarkPolicerAgainstTBF(b *testing.B) {
	for _, kilobits := range []uint32{1000, 100_000} {
		b.Run(fmt.Sprintf("%d kbit", kilobits), func(b *testing.B) {
			burst := max(20_000, kilobits*1000/8/20)
			for range b.N {
				b.ReportMetric(throughPolicer(b, kilobits, burst), "policer/rate")
				b.ReportMetric(throughTBF(b, kilobits, burst), "tbf/rate")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func throughPolicer(b *testing.B, kilobits, burst uint32) float64 {
	l := newLab(b)
	from := l.pod()
	to := l.pod()
	err := l.engine.SetInterface(from.index, forward.Interface{
		Up: true, MAC: frame.MAC{2, 0, 0, 0, 0, byte(from.index)},
		Addresses: []netip.Addr{gateway4}, LinkLocal: gateway6, IP6Enabled: true,
		PoliceInput: forward.NewPolicer(forward.PolicerConfig{Rate: kilobits, Burst: burst}),
	})
	if err != nil {
		b.Fatal(err)
	}
	l.engine.Publish()
	return measure(b, from.namespace, to.namespace, to.v4) / (float64(kilobits) * 1000 / 8)
}

// throughTBF joins two namespaces by a veth with a token bucket filter on the sender's end.
func throughTBF(b *testing.B, kilobits, burst uint32) float64 {
	namespaces := []string{netnstest.New(b), netnstest.New(b)}
	addresses := []string{"10.9.0.1/24", "10.9.0.2/24"}
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	netnstest.Do(b, namespaces[0], func() {
		handle, err := netlink.NewHandle()
		must(err)
		defer handle.Close()
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0"}, PeerName: "v1"}
		must(handle.LinkAdd(veth))
		peer, err := handle.LinkByName("v1")
		must(err)
		file, err := os.Open(namespaces[1])
		must(err)
		defer file.Close()
		must(handle.LinkSetNsFd(peer, int(file.Fd())))
		must(handle.QdiscAdd(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: veth.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
			},
			Rate: uint64(kilobits) * 1000 / 8, Limit: burst,
			Buffer: uint32(float64(burst) * 1e9 / (float64(kilobits) * 1000 / 8) / 64), // ticks of 64 ns
		}))
	})
	for n, name := range []string{"v0", "v1"} {
		netnstest.Do(b, namespaces[n], func() {
			link, err := netlink.LinkByName(name)
			must(err)
			address, err := netlink.ParseAddr(addresses[n])
			must(err)
			must(netlink.AddrAdd(link, address))
			must(netlink.LinkSetUp(link))
		})
	}
	return measure(b, namespaces[0], namespaces[1], netip.MustParseAddr("10.9.0.2")) / (float64(kilobits) * 1000 / 8)
}

// measure sends UDP datagrams as fast as it can, and returns the bytes per second that arrive, with headers, after the
// first second.
func measure(b *testing.B, from, to string, address netip.Addr) float64 {
	var in, out *net.UDPConn
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, tbfPort))
	var err error
	netnstest.Do(b, to, func() { in, err = net.ListenUDP("udp", at) })
	if err != nil {
		b.Fatal(err)
	}
	netnstest.Do(b, from, func() { out, err = net.DialUDP("udp", nil, at) })
	if err != nil {
		b.Fatal(err)
	}
	_ = in.SetReadBuffer(4 << 20)
	var received atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		room := make([]byte, 2*tbfPayload)
		for {
			n, err := in.Read(room)
			if err != nil {
				return
			}
			received.Add(int64(n + tbfHeaders))
		}
	})
	stop := make(chan struct{})
	all.Go(func() {
		payload := make([]byte, tbfPayload)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			for range 20 { // 160 Mbit/s
				_, _ = out.Write(payload)
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	<-time.After(time.Second)
	before := received.Load()
	began := time.Now()
	<-time.After(4 * time.Second)
	rate := float64(received.Load()-before) / time.Since(began).Seconds()
	close(stop)
	_ = out.Close()
	_ = in.Close()
	all.Wait()
	return rate
}
