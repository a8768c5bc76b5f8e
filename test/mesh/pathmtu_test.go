package mesh

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
)

// limitEvent begins the names of the events that limit packets of pods to the path between nodes.
const limitEvent = "packets to other nodes"

// The agents name the pair of nodes and the MTU of the path in between, whether they learn of it by ICMP errors or not,
// until the path is repaired. Routers fragment tunnel packets over IPv4, and the other end reassembles them.
func TestPodsReachEachOtherByANarrowPath(t *testing.T) {
	for _, o := range []options{
		{tunnel: "vxlan4", path: &path{routers: true, silent: true}}, {tunnel: "vxlan6", path: &path{routers: true}},
		{tunnel: "vxlan4", uplink: "up0", path: &path{routers: true}}, {tunnel: "vxlan4", uplink: "up0", path: &path{}},
	} {
		t.Run(fmt.Sprint(owner(o.uplink), ", ", o.tunnel, ", ", o.path), func(t *testing.T) {
			c := newCluster(t, o)
			c.meet()
			for i, m := range c.nodes {
				six := o.tunnel == "vxlan6"
				m.eventually("path-mtu", false,
					fmt.Sprintf(
						"tunnel packets of pods have up to %d bytes, and the paths between nodes carry less: %s to %s (%s): %d;",
						uplinkMTU, m.name, c.nodes[1-i].name, c.nodes[1-i].own(six), pathMTU))
				m.eventuallyLimited(true)
				m.addPod()
			}
			c.exchangeLong()
			c.wantOnlyUpdates(limitEvent)
			for _, m := range c.nodes {
				must.Succeed(t, m.StopAgent())
				m.restart(t)
				m.wantFirstResyncIdle(t)
			}
			o.path.setMTU(t, uplinkMTU)
			for _, m := range c.nodes {
				m.eventually("path-mtu", true)
				m.eventuallyLimited(false)
			}
			c.exchangeLong()
			c.wantOnlyUpdates(limitEvent)
		})
	}
}

// transaction is one of weftctl transactions.
type transaction struct {
	Label      string
	Operations []struct{ Verb, Ref string }
}

// transactions returns those of an event, the newest last.
func (m *machine) transactions(event string) []transaction {
	m.t.Helper()
	list, err := m.Weftctl(m.t.Context(), "transactions", "100", "--ops", "-o", "json")
	must.Succeed(m.t, err)
	var reply struct{ Transactions []transaction }
	must.Succeed(m.t, json.Unmarshal([]byte(list), &reply))
	return slices.DeleteFunc(reply.Transactions, func(t transaction) bool { return !strings.HasPrefix(t.Label, event) })
}

// eventuallyLimited waits until packets of pods to other nodes have a limit or none: the condition is a moment ahead.
func (m *machine) eventuallyLimited(want bool) {
	m.t.Helper()
	k8stest.Eventually(m.t, fmt.Sprintf("%s: limit of packets to other nodes: %t", m.name, want), func() bool {
		list := m.transactions(limitEvent)
		return len(list) > 0 && strings.Contains(list[len(list)-1].Label, "up to") == want
	})
}

// wantOnlyUpdates fails the test if an event of that name withdrew an object for a moment: packets to the pods behind
// it would take another way meanwhile, and their connections end.
func (c *cluster) wantOnlyUpdates(event string) {
	c.t.Helper()
	for _, m := range c.nodes {
		updates := 0
		for _, t := range m.transactions(event) {
			for _, o := range t.Operations {
				updates++
				if o.Verb != "update" {
					c.t.Errorf("%s: %s: %s %s", m.name, t.Label, o.Verb, o.Ref)
				}
			}
		}
		if updates == 0 {
			c.t.Errorf("%s: no operation of %s", m.name, event)
		}
	}
}

// exchangeLong sends packets of all lengths between the pods.
func (c *cluster) exchangeLong() {
	c.t.Helper()
	for i, m := range c.nodes {
		for _, six := range []bool{false, true} {
			other := c.nodes[1-i]
			what := fmt.Sprintf("%s to %s, IPv6 %t", m.name, other.name, six)
			took, n, err := bulk(c.t, way{m.pod.Netns, other.pod.Netns}, other.address(six))
			if err != nil {
				c.t.Errorf("%s: TCP: %d bytes arrived: %v", what, n, err)
			}
			c.t.Logf("%s: TCP: %d bytes in %v", what, n, took)
			for size := pathMTU - 80; size <= m.podMTU(); size += 5 {
				if err := sized(c.t, way{m.pod.Netns, other.pod.Netns}, other.address(six), size); err != nil {
					c.t.Errorf("%s: a packet of %d bytes: %v", what, size, err)
				}
			}
		}
	}
}

// sized sends a UDP packet of a size until it arrives; a busy machine may lose one.
func sized(t *testing.T, w way, to netip.Addr, size int) (err error) {
	t.Helper()
	sender := listen(t, w.from)
	receiver := listen(t, w.at)
	data := make([]byte, size-28)
	if to.Is6() {
		data = data[:size-48]
	}
	for range 3 {
		if _, err = sender.WriteToUDPAddrPort(data, netip.AddrPortFrom(to, port(receiver))); err != nil {
			continue
		}
		must.Succeed(t, receiver.SetReadDeadline(time.Now().Add(time.Second)))
		var n int
		if n, err = receiver.Read(make([]byte, size)); err == nil && n == len(data) {
			return nil
		}
	}
	return err
}

// bulk sends some megabytes by TCP, and returns how many arrived. Unlike traffic.Transfer it ends in time if the path
// loses all long packets.
func bulk(t *testing.T, w way, to netip.Addr) (took time.Duration, n int, err error) {
	t.Helper()
	var listener net.Listener
	within(t, w.at, func() {
		l, err := net.Listen("tcp", netip.AddrPortFrom(to, 0).String())
		must.Succeed(t, err)
		listener = l
	})
	defer listener.Close()
	data := make([]byte, 5<<20)
	deadline := time.Now().Add(30 * time.Second)
	_, _ = rand.Read(data) // it never fails
	received := make(chan error, 1)
	var got []byte
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_ = c.SetDeadline(deadline)
			got, err = io.ReadAll(c)
			_ = c.Close()
		}
		received <- err
	}()
	begun := time.Now()
	within(t, w.from, func() {
		var c net.Conn
		if c, err = (&net.Dialer{Deadline: deadline}).Dial("tcp", listener.Addr().String()); err == nil {
			_ = c.SetDeadline(deadline)
			_, err = c.Write(data)
			err = errors.Join(err, c.Close())
		} else {
			_ = listener.Close()
		}
	})
	err = errors.Join(err, <-received)
	if err == nil && !bytes.Equal(got, data) {
		err = errors.New("the data differ")
	}
	return time.Since(begun), len(got), err
}
