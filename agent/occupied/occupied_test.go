package occupied

import (
	"log/slog"
	"maps"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/must"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// Weft's link between the node and the dataplane has an address of Weft's pool, which is no conflict with pods.
func TestAddressesOfWeftsOwnLinkAreNotOccupied(t *testing.T) {
	pair := netlink.NewVeth(netlink.LinkAttrs{Name: "weft0"})
	pair.PeerName = "up0"
	must.Succeed(t, netlink.LinkAdd(pair))
	t.Cleanup(func() { must.Succeed(t, netlink.LinkDel(pair)) })
	for name, address := range map[string]string{"weft0": "10.1.0.1/24", "up0": "192.0.2.7/24"} {
		link, err := netlink.LinkByName(name)
		must.Succeed(t, err)
		parsed, err := netlink.ParseAddr(address)
		must.Succeed(t, err)
		must.Succeed(t, netlink.AddrAdd(link, parsed))
	}
	var occupied map[netip.Addr]string
	w := New(Config{
		Occupy:      func(by map[netip.Addr]string) { occupied = by },
		Attachments: func() []pod.Attachment { return nil },
		HostLink:    "weft0",
		Health:      health.New("", slog.New(slog.DiscardHandler)),
		Log:         slog.New(slog.DiscardHandler),
	})
	w.Read()
	want := map[netip.Addr]string{netip.MustParseAddr("192.0.2.7"): "link up0 of this node"}
	if !maps.Equal(occupied, want) {
		t.Errorf("%v are occupied, want %v", occupied, want)
	}
}
