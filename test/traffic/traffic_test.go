package traffic_test

import (
	"context"
	"crypto/sha256"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/traffic"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// pair makes two namespaces with a veth between them; the second one has far0 with the address.
func pair(t *testing.T) traffic.Path {
	t.Helper()
	near := netnstest.New(t)
	far := netnstest.New(t)
	netnstest.Do(t, near, func() {
		must.Succeed(t,
			netlink.LinkAdd(&netlink.Veth{
				LinkAttrs:     netlink.LinkAttrs{Name: "near0"},
				PeerName:      "far0",
				PeerNamespace: fd(t, far),
			}))
		up(t, "near0", "192.0.2.1/24")
	})
	netnstest.Do(t, far, func() { up(t, "far0", "192.0.2.2/24") })
	return traffic.Path{From: near, FromLink: "near0", To: far, Address: netip.MustParseAddr("192.0.2.2")}
}

func up(t *testing.T, name, address string) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must.Succeed(t, err)
	a, err := netlink.ParseAddr(address)
	must.Succeed(t, err)
	must.Succeed(t, netlink.AddrAdd(l, a))
	must.Succeed(t, netlink.LinkSetUp(l))
}

func TestTransferredDataArrivesUnchanged(t *testing.T) {
	p := pair(t)
	data := make([]byte, 5<<20+1)
	for i := range data {
		data[i] = byte(i * 7)
	}
	r, err := traffic.Transfer(t.Context(), p, data)
	if err != nil || r.Bytes != int64(len(data)) || r.Sum != sha256.Sum256(data) || r.Gigabits() <= 0 {
		t.Errorf("receipt %+v, error %v", r, err)
	}
}

func TestStreamLastsForTheDuration(t *testing.T) {
	r, err := traffic.Stream(t.Context(), pair(t), time.Second)
	if err != nil || r.Bytes < 1<<20 || r.Took < time.Second {
		t.Errorf("receipt %+v, error %v", r, err)
	}
}

func TestWrongLinkDoesNotConnect(t *testing.T) {
	p := pair(t)
	p.FromLink = "lo"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := traffic.Transfer(ctx, p, []byte("x")); err == nil {
		t.Error("connected by lo")
	}
}

func TestPacketsAreCountedAtTheReceiver(t *testing.T) {
	p := pair(t)
	c, err := traffic.Flood(t.Context(), p, "far0", time.Second)
	// the kernels send some packets themselves
	if err != nil || c.Sent < 1000 || c.Received < c.Sent/2 || c.Received > c.Sent+50 {
		t.Errorf("count %+v, error %v", c, err)
	}
}

func fd(t *testing.T, path string) netlink.NsFd {
	t.Helper()
	f, err := os.Open(path)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return netlink.NsFd(f.Fd())
}
