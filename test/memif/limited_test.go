package memif_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/node"
)

const (
	limitedPackets = 200
	limitedSize    = 1000 // bytes of a packet, from its IP header
	limitedRate    = 1000 // bytes per second
	limitedPort    = 9000

	burstFrom = 60_000 // bytes from the memif
	burstTo   = 30_000 // bytes to it
)

// A program sends to the tap of another pod through a memif whose rate is limited in both directions, and the pod to
// the program. Each packet arrives or is counted as one that exceeded the limit, and no more arrive than the bucket has
// tokens for.
func TestPacketsOfAMemifThatExceedItsLimitsAreDroppedAndCounted(t *testing.T) {
	for _, on := range []struct {
		network string
		mode    memif.Mode
		header  int
	}{{"blue", memif.Ethernet, 14}, {"red", memif.IP, 0}} {
		t.Run(fmt.Sprint(on.network, ", mode ", on.mode), func(t *testing.T) {
			l := newLab(t, node.Options{Networks: networks(), Embedded: true})
			options := fmt.Sprintf(`{"m1": {"mode": %q, "rate": "8k", "burst": {"egress": %d, "ingress": %d}}}`,
				on.mode, burstFrom, burstTo)
			d, containers := l.admit("d", "m1/memif/"+on.network, options,
				kubelettest.Container{Name: "vnf", Limit: 1})
			m1 := l.add(d)[1]
			p, err := l.NewPod("p")
			l.try(err)
			p.Annotations = map[string]string{"contivpp.io/custom-if": "x0/tap/" + on.network}
			x0 := l.add(p)[1]
			g := newGenerator(l, containers[0], on.mode)

			began := time.Now()
			arrived := l.collect(p, x0.Bare()[0])
			g.send(m1, x0)
			l.awaitAll(arrived, func(c exceeded) uint64 { return c.TxExceeded })
			l.within(arrived.Load(), limitedSize+on.header, burstFrom, began)

			l.resolve(p, m1)
			l.sendTo(p, m1.Bare()[0])
			l.awaitAll(&g.arrived, func(c exceeded) uint64 { return c.RxExceeded })
			l.within(g.arrived.Load(), limitedSize+on.header, burstTo, began)

			c := l.exceeded()
			l.shown("dataplane drops", fmt.Sprintf("%d  policer-input: Packets Dropped", c.TxExceeded))
			l.shown("dataplane drops", fmt.Sprintf("%d  policer-output: Packets Dropped", c.RxExceeded))
			l.shown("pod demo/d", fmt.Sprintf("%d packets to the pod, %d from the pod", c.RxExceeded, c.TxExceeded))
		})
	}
}

// shown waits until weftctl prints a text: the agent reads error counters that the dataplane publishes now and then.
func (l *lab) shown(command, want string) {
	l.Helper()
	l.eventually(func() error {
		text, err := l.Weftctl(l.Context(), strings.Fields(command)...)
		if err == nil && !strings.Contains(text, want) {
			err = fmt.Errorf("weftctl %s lacks %q:\n%s", command, want, text)
		}
		return err
	})
}

// exceeded are the packets of an interface that exceeded its limits, from weftctl counters.
type exceeded struct{ RxExceeded, TxExceeded uint64 }

// exceeded returns the counters of the link m1.
func (l *lab) exceeded() exceeded {
	l.Helper()
	var reply struct {
		Interfaces []struct {
			Interface string
			exceeded
		}
	}
	text, err := l.Weftctl(l.Context(), "counters", "-o", "json")
	l.try(err)
	l.try(json.Unmarshal([]byte(text), &reply))
	for _, i := range reply.Interfaces {
		if i.Interface == "m1" {
			return i.exceeded
		}
	}
	l.Fatalf("no counters of m1: %s", text)
	return exceeded{}
}

// awaitAll waits until each packet has arrived or is counted.
func (l *lab) awaitAll(arrived *atomic.Uint64, of func(exceeded) uint64) {
	l.Helper()
	l.eventually(func() error {
		if sum := arrived.Load() + of(l.exceeded()); sum < limitedPackets {
			return fmt.Errorf("%d of %d packets arrived or are counted", sum, limitedPackets)
		}
		return nil
	})
}

// within fails if the packets that arrived are more than the burst and the rate permit, or less than the burst. Two
// packets less are possible: one that did not fit, and a few short ones of the kernel, which share the bucket.
func (l *lab) within(arrived uint64, size, burst int, began time.Time) {
	l.Helper()
	most := burst + int(time.Since(began).Seconds()*limitedRate)
	if bytes := int(arrived) * size; bytes > most || bytes < burst-2*size {
		l.Errorf("%d packets of %d bytes arrived, want %d to %d bytes", arrived, size, burst-2*size, most)
	}
}

// generator is the program of a memif.
type generator struct {
	*lab
	client  *memif.Client
	mode    memif.Mode
	arrived atomic.Uint64 // packets of limitedSize
}

// newGenerator connects the program of a container, which receives until the test ends.
func newGenerator(l *lab, c kubelettest.Container, mode memif.Mode) *generator {
	l.Helper()
	connected := make(chan struct{}, 1)
	client, err := memif.Dial(l.Context(), memif.ClientConfig{
		Socket: inDirectory(c, "memif.sock"),
		ID:     1,
		Secret: memif.Secret(c.Envs[memif.SecretVariable]),
		Mode:   mode,
		Spin:   -1,
	}, memif.ClientEvents{Connected: func(memif.Info) { connected <- struct{}{} }})
	l.try(err)
	g := &generator{lab: l, client: client, mode: mode}
	var group sync.WaitGroup
	group.Go(func() {
		packet := make([]byte, memif.DefaultMaxPacket)
		for {
			n, err := client.ReadPacket(context.Background(), packet)
			if err != nil {
				return // closed
			}
			if n >= limitedSize {
				g.arrived.Add(1)
			}
		}
	})
	l.Cleanup(func() { l.try(client.Close()); group.Wait() })
	<-connected
	return g
}

// send sends UDP from the memif to a link.
func (g *generator) send(from, to node.Link) {
	g.Helper()
	ip := &layers.IPv4{
		Version:  4,
		TTL:      64,
		Protocol: layers.IPProtocolUDP,
		SrcIP:    from.Bare()[0].AsSlice(),
		DstIP:    to.Bare()[0].AsSlice(),
	}
	udp := &layers.UDP{SrcPort: limitedPort, DstPort: limitedPort}
	g.try(udp.SetNetworkLayerForChecksum(ip))
	packet := []gopacket.SerializableLayer{ip, udp, gopacket.Payload(make([]byte, limitedSize-20-8))}
	if g.mode == memif.Ethernet {
		ethernet := &layers.Ethernet{SrcMAC: g.mac(from), DstMAC: g.mac(to), EthernetType: layers.EthernetTypeIPv4}
		packet = append([]gopacket.SerializableLayer{ethernet}, packet...)
	}
	b := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	g.try(gopacket.SerializeLayers(b, o, packet...))
	for range limitedPackets {
		g.try(g.client.WritePacket(g.Context(), b.Bytes()))
	}
}

func (l *lab) mac(of node.Link) net.HardwareAddr {
	l.Helper()
	mac, err := net.ParseMAC(of.Mac)
	l.try(err)
	return mac
}

// collect counts the packets of limitedSize that arrive at an address of a pod until the test ends.
func (l *lab) collect(p *node.Pod, at netip.Addr) *atomic.Uint64 {
	l.Helper()
	var conn *net.UDPConn
	netnstest.Do(l, p.Netns, func() {
		var err error
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, limitedPort)))
		l.try(err)
	})
	l.try(conn.SetReadBuffer(4 << 20))
	arrived := &atomic.Uint64{}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			if _, err := conn.Read(make([]byte, limitedSize)); err != nil {
				return // closed
			}
			arrived.Add(1)
		}
	})
	l.Cleanup(func() { l.try(conn.Close()); group.Wait() })
	return arrived
}

// resolve makes a pod know the next hop to the memif: for an unknown neighbour the kernel queues fewer packets than the
// test sends. The program answers no ARP requests; on a routed network the dataplane does.
func (l *lab) resolve(p *node.Pod, m1 node.Link) {
	l.Helper()
	if m1.Mac == "" {
		l.reachBy(p, "x0", m1.Gateways[0])
		return
	}
	netnstest.Do(l, p.Netns, func() {
		x0, err := netlink.LinkByName("x0")
		l.try(err)
		l.try(netlink.NeighSet(&netlink.Neigh{
			LinkIndex:    x0.Attrs().Index,
			IP:           m1.Bare()[0].AsSlice(),
			HardwareAddr: l.mac(m1),
			State:        netlink.NUD_PERMANENT,
		}))
	})
}

// sendTo sends UDP from a pod.
func (l *lab) sendTo(from *node.Pod, to netip.Addr) {
	l.Helper()
	var conn net.Conn
	netnstest.Do(l, from.Netns, func() {
		var err error
		conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, limitedPort)))
		l.try(err)
	})
	for range limitedPackets {
		_, err := conn.Write(make([]byte, limitedSize-20-8))
		l.try(err)
	}
	l.try(conn.Close())
}
