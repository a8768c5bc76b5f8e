package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/core"
)

const allInterfaces = ^interface_types.InterfaceIndex(0)

// testingT is implemented by *testing.T and *rapid.T.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// testClient is a govpp client that fails the test if a reply is missing.
type testClient struct {
	conn    *core.Connection
	ifs     interfaces.RPCService
	taps    tapv2.RPCService
	ips     ip.RPCService
	nbrs    ip_neighbor.RPCService
	context context.Context //nolint:containedctx // context of a test
}

func newTestClient(ctx context.Context, conn *core.Connection) *testClient {
	return &testClient{conn: conn, ifs: interfaces.NewServiceClient(conn), taps: tapv2.NewServiceClient(conn),
		ips: ip.NewServiceClient(conn), nbrs: ip_neighbor.NewServiceClient(conn), context: ctx}
}

// invoke sends a request with one reply and returns the reply's retval as error.
func invoke[Req, Reply any](
	t testingT, a *testClient, send func(context.Context, Req) (Reply, error), req Req,
) (Reply, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(a.context, time.Minute)
	defer cancel()
	reply, err := send(ctx, req)
	var retval api.VPPApiError
	if err != nil && !errors.As(err, &retval) {
		t.Fatalf("%T: %v", req, err)
	}
	return reply, err
}

// mustInvoke is invoke for a request that must succeed.
func mustInvoke[Req, Reply any](
	t testingT, a *testClient, send func(context.Context, Req) (Reply, error), req Req,
) Reply {
	t.Helper()
	reply, err := invoke(t, a, send, req)
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return reply
}

// calling returns a function that sends a request and returns VPP's error.
func calling[Req, Reply any](
	t testingT, a *testClient, send func(context.Context, Req) (Reply, error), req Req,
) func() error {
	return func() error {
		_, err := invoke(t, a, send, req)
		return err
	}
}

// collect returns all details of a stream.
func collect[Details any, Stream interface{ Recv() (Details, error) }](t testingT, s Stream, err error) []Details {
	t.Helper()
	if err != nil {
		t.Fatalf("dump: %v", err)
	}
	var list []Details
	for {
		d, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("dump: %v", err)
		}
		list = append(list, d)
	}
}

func (a *testClient) interfaces(t testingT) []*interfaces.SwInterfaceDetails {
	t.Helper()
	s, err := a.ifs.SwInterfaceDump(a.context, &interfaces.SwInterfaceDump{SwIfIndex: allInterfaces})
	return collect[*interfaces.SwInterfaceDetails](t, s, err)
}

func (a *testClient) tables(t testingT) []ip.IPTable {
	t.Helper()
	s, err := a.ips.IPTableDump(a.context, &ip.IPTableDump{})
	var list []ip.IPTable
	for _, d := range collect[*ip.IPTableDetails](t, s, err) {
		list = append(list, d.Table)
	}
	slices.SortFunc(list, func(a, b ip.IPTable) int { return cmp.Compare(a.TableID, b.TableID) })
	return list
}

// routes returns the routes of a table, of one source or for 0 of all sources.
func (a *testClient) routes(t testingT, table ip.IPTable, src uint8) []ip.IPRouteV2 {
	t.Helper()
	s, err := a.ips.IPRouteV2Dump(a.context, &ip.IPRouteV2Dump{Src: src, Table: table})
	var list []ip.IPRouteV2
	for _, d := range collect[*ip.IPRouteV2Details](t, s, err) {
		list = append(list, d.Route)
	}
	return list
}

func (a *testClient) addresses(t testingT, index interface_types.InterfaceIndex, isIP6 bool) []string {
	t.Helper()
	s, err := a.ips.IPAddressDump(a.context, &ip.IPAddressDump{SwIfIndex: index, IsIPv6: isIP6})
	var list []string
	for _, d := range collect[*ip.IPAddressDetails](t, s, err) {
		list = append(list, d.Prefix.String())
	}
	return list
}

func (a *testClient) neighbours(t testingT, af ip_types.AddressFamily) []ip_neighbor.IPNeighbor {
	t.Helper()
	s, err := a.nbrs.IPNeighborDump(a.context, &ip_neighbor.IPNeighborDump{SwIfIndex: allInterfaces, Af: af})
	var list []ip_neighbor.IPNeighbor
	for _, d := range collect[*ip_neighbor.IPNeighborDetails](t, s, err) {
		list = append(list, d.Neighbor)
	}
	return list
}

// loopback creates a loopback and sets it up.
func (a *testClient) loopback(t testingT) interface_types.InterfaceIndex {
	t.Helper()
	reply, err := invoke(t, a, a.ifs.CreateLoopback, &interfaces.CreateLoopback{})
	if err != nil {
		t.Fatalf("create loopback: %v", err)
	}
	a.setUp(t, reply.SwIfIndex, true)
	return reply.SwIfIndex
}

func (a *testClient) setUp(t testingT, index interface_types.InterfaceIndex, up bool) {
	t.Helper()
	if _, err := invoke(t, a, a.ifs.SwInterfaceSetFlags, &interfaces.SwInterfaceSetFlags{
		SwIfIndex: index,
		Flags:     statusFlags(up, false),
	}); err != nil {
		t.Fatalf("set flags: %v", err)
	}
}

// address adds or deletes an address and returns VPP's error.
func (a *testClient) address(t testingT, index interface_types.InterfaceIndex, prefix string, add bool) error {
	t.Helper()
	p, err := ip_types.ParseAddressWithPrefix(prefix)
	if err != nil {
		t.Fatalf("%v", err)
	}
	_, err = invoke(t, a, a.ifs.SwInterfaceAddDelAddress, &interfaces.SwInterfaceAddDelAddress{
		SwIfIndex: index,
		IsAdd:     add,
		Prefix:    p,
	})
	return err
}

// neighbour adds or deletes a static neighbour and returns VPP's error.
func (a *testClient) neighbour(t testingT, index interface_types.InterfaceIndex, addr string, add bool) error {
	t.Helper()
	parsed, err := ip_types.ParseAddress(addr)
	if err != nil {
		t.Fatalf("%v", err)
	}
	_, err = invoke(t, a, a.nbrs.IPNeighborAddDel, &ip_neighbor.IPNeighborAddDel{
		IsAdd: add,
		Neighbor: ip_neighbor.IPNeighbor{
			SwIfIndex:  index,
			Flags:      ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC,
			MacAddress: [6]byte{2, 0, 0, 0, 0, 9},
			IPAddress:  parsed},
	})
	return err
}
