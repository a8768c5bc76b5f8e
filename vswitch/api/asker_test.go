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

// failer is the part of a test that asking needs, of package testing's and of rapid's.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// asker asks the server by a govpp client and fails the test where the answer does not come.
type asker struct {
	conn    *core.Connection
	ifs     interfaces.RPCService
	taps    tapv2.RPCService
	ips     ip.RPCService
	nbrs    ip_neighbor.RPCService
	context context.Context //nolint:containedctx // a test's
}

func newAsker(ctx context.Context, conn *core.Connection) *asker {
	return &asker{conn: conn, ifs: interfaces.NewServiceClient(conn), taps: tapv2.NewServiceClient(conn),
		ips: ip.NewServiceClient(conn), nbrs: ip_neighbor.NewServiceClient(conn), context: ctx}
}

// ask sends a request of one reply and returns VPP's error, if that is the answer.
func ask[Req, Reply any](t failer, a *asker, send func(context.Context, Req) (Reply, error), req Req) (Reply, error) {
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

// dump collects a stream.
func dump[Details any, Stream interface{ Recv() (Details, error) }](t failer, s Stream, err error) []Details {
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

func (a *asker) interfaces(t failer) []*interfaces.SwInterfaceDetails {
	t.Helper()
	s, err := a.ifs.SwInterfaceDump(a.context, &interfaces.SwInterfaceDump{SwIfIndex: allInterfaces})
	return dump[*interfaces.SwInterfaceDetails](t, s, err)
}

func (a *asker) tables(t failer) []ip.IPTable {
	t.Helper()
	s, err := a.ips.IPTableDump(a.context, &ip.IPTableDump{})
	var list []ip.IPTable
	for _, d := range dump[*ip.IPTableDetails](t, s, err) {
		list = append(list, d.Table)
	}
	slices.SortFunc(list, func(a, b ip.IPTable) int { return cmp.Compare(a.TableID, b.TableID) })
	return list
}

// routes are a table's, of one source or of all for 0.
func (a *asker) routes(t failer, table ip.IPTable, src uint8) []ip.IPRouteV2 {
	t.Helper()
	s, err := a.ips.IPRouteV2Dump(a.context, &ip.IPRouteV2Dump{Src: src, Table: table})
	var list []ip.IPRouteV2
	for _, d := range dump[*ip.IPRouteV2Details](t, s, err) {
		list = append(list, d.Route)
	}
	return list
}

func (a *asker) addresses(t failer, index interface_types.InterfaceIndex, isIP6 bool) []string {
	t.Helper()
	s, err := a.ips.IPAddressDump(a.context, &ip.IPAddressDump{SwIfIndex: index, IsIPv6: isIP6})
	var list []string
	for _, d := range dump[*ip.IPAddressDetails](t, s, err) {
		list = append(list, d.Prefix.String())
	}
	return list
}

func (a *asker) neighbours(t failer, af ip_types.AddressFamily) []ip_neighbor.IPNeighbor {
	t.Helper()
	s, err := a.nbrs.IPNeighborDump(a.context, &ip_neighbor.IPNeighborDump{SwIfIndex: allInterfaces, Af: af})
	var list []ip_neighbor.IPNeighbor
	for _, d := range dump[*ip_neighbor.IPNeighborDetails](t, s, err) {
		list = append(list, d.Neighbor)
	}
	return list
}

// loopback makes one that is up.
func (a *asker) loopback(t failer) interface_types.InterfaceIndex {
	t.Helper()
	reply, err := ask(t, a, a.ifs.CreateLoopback, &interfaces.CreateLoopback{})
	if err != nil {
		t.Fatalf("create loopback: %v", err)
	}
	a.setUp(t, reply.SwIfIndex, true)
	return reply.SwIfIndex
}

func (a *asker) setUp(t failer, index interface_types.InterfaceIndex, up bool) {
	t.Helper()
	if _, err := ask(t, a, a.ifs.SwInterfaceSetFlags, &interfaces.SwInterfaceSetFlags{SwIfIndex: index, Flags: statusFlags(up, false)}); err != nil {
		t.Fatalf("set flags: %v", err)
	}
}

// address adds or removes one and returns VPP's error.
func (a *asker) address(t failer, index interface_types.InterfaceIndex, prefix string, add bool) error {
	t.Helper()
	p, err := ip_types.ParseAddressWithPrefix(prefix)
	if err != nil {
		t.Fatalf("%v", err)
	}
	_, err = ask(t, a, a.ifs.SwInterfaceAddDelAddress, &interfaces.SwInterfaceAddDelAddress{SwIfIndex: index, IsAdd: add, Prefix: p})
	return err
}

// neighbour adds or removes a static one and returns VPP's error.
func (a *asker) neighbour(t failer, index interface_types.InterfaceIndex, addr string, add bool) error {
	t.Helper()
	parsed, err := ip_types.ParseAddress(addr)
	if err != nil {
		t.Fatalf("%v", err)
	}
	_, err = ask(t, a, a.nbrs.IPNeighborAddDel, &ip_neighbor.IPNeighborAddDel{IsAdd: add, Neighbor: ip_neighbor.IPNeighbor{
		SwIfIndex: index, Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC, MacAddress: [6]byte{2, 0, 0, 0, 0, 9}, IPAddress: parsed}})
	return err
}
