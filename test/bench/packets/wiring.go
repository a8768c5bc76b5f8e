package packets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"
)

// memifPair is a pair of the dataplane's memifs that forward to each other.
type memifPair struct {
	name    string
	routed  bool
	ids     [2]uint32
	indexes [2]interface_types.InterfaceIndex
}

// own returns the address of the dataplane's end of each memif; testpmd's flow generator sends to no other one.
var own = ethernet_types.MacAddress{0, 1, 2, 3, 4, 1}

// peer returns the address of a memif's client.
func peer(id uint32) ethernet_types.MacAddress {
	return ethernet_types.MacAddress{2, 0xfe, 0, 0, 2, byte(id)}
}

// next returns the destination MAC of packets from the i-th client.
func (w memifPair) next(i int) ethernet_types.MacAddress {
	if w.routed {
		return own
	}
	return peer(w.ids[1-i])
}

// addMemifPair makes two memifs with the given id and the next, in a bridge domain, or each in its own table with
// routes to the destinations behind the other.
func (d *dataplane) addMemifPair(ctx context.Context, name string, first uint32, routed bool) (w memifPair, err error) {
	w = memifPair{name: name, routed: routed, ids: [2]uint32{first, first + 1}}
	for i, id := range w.ids {
		if w.indexes[i], err = d.addMemif(ctx, id); err != nil {
			return w, err
		}
	}
	for i := range w.ids {
		if routed {
			err = d.route(ctx, w, i)
		} else {
			_, err = l2.NewServiceClient(d.conn).SwInterfaceSetL2Bridge(ctx, &l2.SwInterfaceSetL2Bridge{
				RxSwIfIndex: w.indexes[i],
				BdID:        bridgeID,
				Enable:      true,
			})
		}
		if err != nil {
			return w, fmt.Errorf("make memif %d: %w", w.ids[i], err)
		}
	}
	return w, nil
}

func (d *dataplane) disconnect(ctx context.Context, w memifPair) error {
	return errors.Join(d.deleteMemif(ctx, w.indexes[0]), d.deleteMemif(ctx, w.indexes[1]))
}

// destinations are the destinations of testpmd's flow generator and of our clients.
var destinations = netip.MustParsePrefix("10.253.0.0/16")

// route puts the i-th memif into a table with routes to the destinations through the other memif's client.
func (d *dataplane) route(ctx context.Context, w memifPair, i int) error {
	table := w.ids[i] + 1
	host := netip.AddrFrom4([4]byte{10, 0, byte(w.ids[i]), 1})
	if _, err := ip.NewServiceClient(d.conn).IPTableAddDelV2(ctx, &ip.IPTableAddDelV2{
		IsAdd: true,
		Table: ip.IPTable{TableID: table},
	}); err != nil {
		return fmt.Errorf("make a table: %w", err)
	}
	c := interfaces.NewServiceClient(d.conn)
	if _, err := c.SwInterfaceSetTable(ctx, &interfaces.SwInterfaceSetTable{
		SwIfIndex: w.indexes[i],
		VrfID:     table,
	}); err != nil {
		return fmt.Errorf("set the table: %w", err)
	}
	address := ip_types.AddressWithPrefix{Address: ip_types.NewAddress(host.AsSlice()), Len: 24}
	if _, err := c.SwInterfaceAddDelAddress(ctx, &interfaces.SwInterfaceAddDelAddress{
		SwIfIndex: w.indexes[i],
		IsAdd:     true,
		Prefix:    address,
	}); err != nil {
		return fmt.Errorf("add an address: %w", err)
	}
	client := host.Next()
	if _, err := ip_neighbor.NewServiceClient(d.conn).IPNeighborAddDel(ctx, &ip_neighbor.IPNeighborAddDel{
		IsAdd: true,
		Neighbor: ip_neighbor.IPNeighbor{
			SwIfIndex:  w.indexes[i],
			Flags:      ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC,
			MacAddress: peer(w.ids[i]),
			IPAddress:  ip_types.NewAddress(client.AsSlice()),
		},
	}); err != nil {
		return fmt.Errorf("add a neighbour: %w", err)
	}
	return d.addRoute(ctx, w, i)
}

func (d *dataplane) addRoute(ctx context.Context, w memifPair, i int) error {
	other := w.ids[1-i]
	via := ip_types.NewAddress([]byte{10, 0, byte(other), 2})
	route := ip.IPRoute{TableID: w.ids[i] + 1, Prefix: prefixOf(destinations), NPaths: 1, Paths: []fib_types.FibPath{{
		SwIfIndex: uint32(w.indexes[1-i]),
		Weight:    1,
		Proto:     fib_types.FIB_API_PATH_NH_PROTO_IP4,
		Nh:        fib_types.FibPathNh{Address: via.Un},
	}}}
	if _, err := ip.NewServiceClient(d.conn).IPRouteAddDel(ctx, &ip.IPRouteAddDel{
		IsAdd: true,
		Route: route,
	}); err != nil {
		return fmt.Errorf("add a route: %w", err)
	}
	return nil
}
