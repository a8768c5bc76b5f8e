package packets

import (
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/memif"
)

// crossover is a dataplane that forwards between two clients and drops every n-th packet.
func crossover(t *testing.T, lose int) *link {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := memif.Listen(path, memif.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan *memif.Conn, 2)
	l := &link{}
	servers := [2]*memif.Conn{}
	for i := range l.ends {
		if _, err := listener.Add(memif.Config{
			ID:           uint32(i),
			Connected:    func(c *memif.Conn) { connected <- c },
			Disconnected: func(*memif.Conn, error) {},
		}); err != nil {
			t.Fatal(err)
		}
		if l.ends[i], err = connect(t.Context(), memif.ClientConfig{
			Socket:   path,
			ID:       uint32(i),
			RingSize: 2048,
		}); err != nil {
			t.Fatal(err)
		}
		servers[i] = <-connected
	}
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() { cross(servers, lose, stop) })
	t.Cleanup(func() {
		close(stop)
		work.Wait()
		l.close()
		for _, c := range servers {
			c.Release()
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func cross(servers [2]*memif.Conn, lose int, stop <-chan struct{}) {
	for n := 0; ; {
		select {
		case <-stop:
			return
		default:
		}
		for i, c := range servers {
			room := [][]byte{make([]byte, 0, 2048)}
			if c.RxQueues()[0].Receive(room) == 0 {
				continue
			}
			if n++; lose == 0 || n%lose != 0 {
				servers[1-i].TxQueues()[0].Send(room)
			}
		}
	}
}

func TestLostPacketsAreCounted(t *testing.T) {
	for name, lose := range map[string]int{"nothing": 0, "every tenth": 10} {
		t.Run(name, func(t *testing.T) {
			l := crossover(t, lose)
			if err := l.fill(memifPair{ids: [2]uint32{0, 1}}, 64); err != nil {
				t.Fatal(err)
			}
			m := l.pace(64, 20000, time.Second)
			if m.sent < 1000 || (m.lost() != 0) != (lose != 0) ||
				lose != 0 && (m.lost() < int64(m.sent)/20 || m.lost() > int64(m.sent)/5) {
				t.Errorf("lost %d of %d", m.lost(), m.sent)
			}
			if m := l.saturate(64, 50*time.Millisecond); m.sent < burst || m.took < 50*time.Millisecond ||
				m.arrived < m.sent/2 {
				t.Errorf("saturated with %+v", m)
			}
		})
	}
}

func TestPacketCrosses(t *testing.T) {
	l := crossover(t, 0)
	if err := l.fill(memifPair{ids: [2]uint32{0, 1}}, 64); err != nil {
		t.Fatal(err)
	}
	if took, away, err := l.cross(); took <= 0 || away > took || err != nil {
		t.Errorf("%s, %s, %v", took, away, err)
	}
}

func TestFramesAreAddressedToTheNextHop(t *testing.T) {
	for _, tt := range []struct {
		name      string
		memifPair memifPair
		to        net.HardwareAddr
	}{
		{"the other client on a bridge", memifPair{ids: [2]uint32{4, 5}}, net.HardwareAddr{2, 0xfe, 0, 0, 2, 5}},
		{"the router", memifPair{ids: [2]uint32{4, 5}, routed: true}, own[:]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := tt.memifPair.frame(0, 7, 64)
			if err != nil || len(b) != 64 {
				t.Fatalf("%d bytes, %v", len(b), err)
			}
			p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
			ethernet := p.LinkLayer().(*layers.Ethernet)
			ip := p.NetworkLayer().(*layers.IPv4)
			if ethernet.DstMAC.String() != tt.to.String() || ip.DstIP.String() != "10.253.0.7" ||
				p.TransportLayer() == nil {
				t.Errorf("%v", p)
			}
		})
	}
}
