package leftovers_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.fd.io/govpp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/vswitch"
)

// planter makes objects in a dataplane with the loopbacks old and donor.
type planter struct {
	api.Connection
	t          *testing.T
	old, donor interface_types.InterfaceIndex
}

func newPlanter(t *testing.T) (p *planter, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "left")
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, os.RemoveAll(dir)) })
	socket = filepath.Join(dir, "api.sock")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- vswitch.Run(ctx, vswitch.Config{APISocket: socket}) }()
	t.Cleanup(func() { cancel(); must.Succeed(t, <-done) })
	conn := connect(t, socket)
	t.Cleanup(conn.Disconnect)
	p = &planter{Connection: conn, t: t}
	p.old, p.donor = p.loopback("old"), p.loopback("donor")
	return p, socket
}

// disconnecter is a connection that can be closed.
type disconnecter interface {
	api.Connection
	Disconnect()
}

// connect waits until the dataplane answers.
func connect(t *testing.T, socket string) disconnecter {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		conn, err := govpp.Connect(socket)
		if err == nil {
			return conn
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal(err)
		}
	}
}

func (p *planter) loopback(tag string) interface_types.InterfaceIndex {
	p.t.Helper()
	c := interfaces.NewServiceClient(p)
	reply, err := c.CreateLoopback(p.t.Context(), &interfaces.CreateLoopback{})
	must.Succeed(p.t, err)
	_, err = c.SwInterfaceTagAddDel(p.t.Context(), &interfaces.SwInterfaceTagAddDel{
		IsAdd:     true,
		SwIfIndex: reply.SwIfIndex,
		Tag:       tag,
	})
	must.Succeed(p.t, err)
	return reply.SwIfIndex
}

func (p *planter) address() {
	prefix, err := ip_types.ParseAddressWithPrefix("192.0.2.1/32")
	must.Succeed(p.t, err)
	_, err = interfaces.NewServiceClient(p).SwInterfaceAddDelAddress(p.t.Context(),
		&interfaces.SwInterfaceAddDelAddress{SwIfIndex: p.old, IsAdd: true, Prefix: prefix})
	must.Succeed(p.t, err)
}

func (p *planter) unnumbered() {
	_, err := interfaces.NewServiceClient(p).SwInterfaceSetUnnumbered(p.t.Context(),
		&interfaces.SwInterfaceSetUnnumbered{SwIfIndex: p.donor, UnnumberedSwIfIndex: p.old, IsAdd: true})
	must.Succeed(p.t, err)
}

func (p *planter) table() {
	_, err := ip.NewServiceClient(p).IPTableAddDelV2(p.t.Context(),
		&ip.IPTableAddDelV2{IsAdd: true, Table: ip.IPTable{TableID: 7, IsIP6: true, Name: "left"}})
	must.Succeed(p.t, err)
}

func (p *planter) route() {
	prefix, err := ip_types.ParsePrefix("198.51.100.0/24")
	must.Succeed(p.t, err)
	path := fib_types.FibPath{SwIfIndex: uint32(p.old), Proto: fib_types.FIB_API_PATH_NH_PROTO_IP4}
	_, err = ip.NewServiceClient(p).IPRouteAddDel(p.t.Context(),
		&ip.IPRouteAddDel{IsAdd: true, Route: ip.IPRoute{Prefix: prefix, NPaths: 1, Paths: []fib_types.FibPath{path}}})
	must.Succeed(p.t, err)
}

func (p *planter) neighbour() {
	_, err := ip_neighbor.NewServiceClient(p).IPNeighborAddDel(p.t.Context(), &ip_neighbor.IPNeighborAddDel{IsAdd: true,
		Neighbor: ip_neighbor.IPNeighbor{SwIfIndex: p.old, Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC,
			MacAddress: [6]byte{2, 0, 0, 0, 0, 9},
			IPAddress:  ip_types.NewAddress(netip.MustParseAddr("2001:db8::9").AsSlice())}})
	must.Succeed(p.t, err)
}

func TestSnapshotShowsLeftoversInTheDataplane(t *testing.T) {
	netnstest.Require(t)
	tests := []struct {
		kind  string
		plant func(*planter)
		line  string
	}{
		{"interface", func(p *planter) { p.loopback("left") }, "+ interface dataplane left type "},
		{"address", (*planter).address, "+ interface-address dataplane old 192.0.2.1/32"},
		{"unnumbered", (*planter).unnumbered, "+ unnumbered dataplane old by donor"},
		{"table", (*planter).table, "+ table dataplane table 7 ip6 true left"},
		{"route", (*planter).route, "+ fib-route dataplane table 0 198.51.100.0/24 via 0.0.0.0 dev old"},
		{"neighbour", (*planter).neighbour, "+ fib-neighbour dataplane old 2001:db8::9 at 02:00:00:00:00:09"},
	}
	for _, tt := range tests {
		t.Run(tt.kind, func(t *testing.T) {
			p, socket := newPlanter(t)
			places := leftovers.Places{Dataplane: socket}
			before, err := leftovers.Take(t.Context(), places)
			must.Succeed(t, err)
			tt.plant(p)
			after, err := leftovers.Take(t.Context(), places)
			must.Succeed(t, err)
			if lines := after.Since(before); !anyBegins(lines, tt.line) {
				t.Errorf("no line begins with %q: %q", tt.line, lines)
			}
		})
	}
}
