package leftovers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.fd.io/govpp"
	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/memif"
)

// all is the interface index for dumps of all interfaces.
const all = ^interface_types.InterfaceIndex(0)

// dataplane reads a dataplane over its binary API.
type dataplane struct {
	api.Connection
	names map[interface_types.InterfaceIndex]string
}

// addDataplane records interfaces, addresses, tables, routes, neighbours, bridge domains, memifs, and filters.
func (s *Snapshot) addDataplane(ctx context.Context, socket string) error {
	conn, err := govpp.Connect(socket)
	if err != nil {
		return fmt.Errorf("connect to the dataplane: %w", err)
	}
	defer conn.Disconnect()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	d := &dataplane{conn, map[interface_types.InterfaceIndex]string{}}
	for _, add := range []func(context.Context, *dataplane) error{
		s.addInterfaces, s.addUnnumbered, s.addTables, s.addDataplaneNeighbours, s.addAFPackets, s.addBridges,
		s.addFilters, s.addPolicers, s.addProxies, s.addMemifs,
	} {
		if err := add(ctx, d); err != nil {
			return fmt.Errorf("read the dataplane: %w", err)
		}
	}
	return nil
}

// receiver is the stream of replies to a dump.
type receiver[D any] interface{ Recv() (*D, error) }

// each calls f with each reply to a dump.
func each[D any, R receiver[D]](stream R, err error, f func(*D)) error {
	for err == nil {
		var details *D
		if details, err = stream.Recv(); err == nil {
			f(details)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s *Snapshot) addInterfaces(ctx context.Context, d *dataplane) error {
	rpc := interfaces.NewServiceClient(d)
	stream, err := rpc.SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{SwIfIndex: all})
	err = each(stream, err, func(i *interfaces.SwInterfaceDetails) {
		name := label(i)
		d.names[i.SwIfIndex] = name
		s.add("interface", "dataplane", "%s type %s mac %s %s", name, i.InterfaceDevType, i.L2Address, i.Flags)
	})
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for index, name := range d.names {
		for _, v6 := range []bool{false, true} {
			stream, err := ip.NewServiceClient(d).IPAddressDump(ctx, &ip.IPAddressDump{SwIfIndex: index, IsIPv6: v6})
			err = each(stream, err, func(a *ip.IPAddressDetails) {
				s.add("interface-address", "dataplane", "%s %s", name, a.Prefix)
			})
			if err != nil {
				return fmt.Errorf("list addresses of %s: %w", name, err)
			}
		}
	}
	return nil
}

// label returns the interface's tag, which identifies its owner and is stable, or else its name.
func label(i *interfaces.SwInterfaceDetails) string {
	if tag := strings.TrimRight(i.Tag, "\x00"); tag != "" {
		return tag
	}
	return strings.TrimRight(i.InterfaceName, "\x00")
}

func (s *Snapshot) addUnnumbered(ctx context.Context, d *dataplane) error {
	stream, err := ip.NewServiceClient(d).IPUnnumberedDump(ctx, &ip.IPUnnumberedDump{SwIfIndex: all})
	err = each(stream, err, func(u *ip.IPUnnumberedDetails) {
		s.add("unnumbered", "dataplane", "%s by %s", d.names[u.SwIfIndex], d.names[u.IPSwIfIndex])
	})
	if err != nil {
		return fmt.Errorf("list unnumbered interfaces: %w", err)
	}
	return nil
}

func (s *Snapshot) addTables(ctx context.Context, d *dataplane) error {
	var tables []ip.IPTable
	stream, err := ip.NewServiceClient(d).IPTableDump(ctx, &ip.IPTableDump{})
	err = each(stream, err, func(t *ip.IPTableDetails) { tables = append(tables, t.Table) })
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	for _, t := range tables {
		where := fmt.Sprintf("dataplane table %d", t.TableID)
		s.add("table", where, "ip6 %t %s", t.IsIP6, t.Name)
		stream, err := ip.NewServiceClient(d).IPRouteV2Dump(ctx, &ip.IPRouteV2Dump{Table: t})
		err = each(stream, err, func(r *ip.IPRouteV2Details) {
			s.add("fib-route", where, "%s %s", r.Route.Prefix, d.paths(&r.Route))
		})
		if err != nil {
			return fmt.Errorf("list routes of table %d: %w", t.TableID, err)
		}
	}
	return nil
}

func (d *dataplane) paths(r *ip.IPRouteV2) string {
	var paths []string
	for _, p := range r.Paths {
		hop := p.Nh.Address.GetIP4().String()
		if r.Prefix.Address.Af == ip_types.ADDRESS_IP6 {
			hop = p.Nh.Address.GetIP6().String()
		}
		paths = append(paths,
			fmt.Sprintf("via %s dev %s %s", hop, d.names[interface_types.InterfaceIndex(p.SwIfIndex)], p.Type))
	}
	return strings.Join(paths, ", ")
}

func (s *Snapshot) addDataplaneNeighbours(ctx context.Context, d *dataplane) error {
	for _, family := range []ip_types.AddressFamily{ip_types.ADDRESS_IP4, ip_types.ADDRESS_IP6} {
		stream, err := ip_neighbor.NewServiceClient(d).IPNeighborDump(ctx, &ip_neighbor.IPNeighborDump{
			SwIfIndex: all,
			Af:        family,
		})
		err = each(stream, err, func(n *ip_neighbor.IPNeighborDetails) {
			s.add("fib-neighbour", "dataplane", "%s %s at %s %s", d.names[n.Neighbor.SwIfIndex], n.Neighbor.IPAddress,
				n.Neighbor.MacAddress, n.Neighbor.Flags)
		})
		if err != nil {
			return fmt.Errorf("list neighbours: %w", err)
		}
	}
	return nil
}

// addMemifs records memifs and their sockets.
func (s *Snapshot) addMemifs(ctx context.Context, d *dataplane) error {
	rpc := memif.NewServiceClient(d)
	sockets, err := rpc.MemifSocketFilenameDump(ctx, &memif.MemifSocketFilenameDump{})
	err = each(sockets, err, func(f *memif.MemifSocketFilenameDetails) {
		s.add("memif-socket", "dataplane", "%d %s", f.SocketID, strings.TrimRight(f.SocketFilename, "\x00"))
	})
	if err != nil {
		return fmt.Errorf("list sockets of memifs: %w", err)
	}
	stream, err := rpc.MemifDump(ctx, &memif.MemifDump{})
	err = each(stream, err, func(m *memif.MemifDetails) {
		s.add("memif", "dataplane", "%s %d of socket %d %s %s", d.names[m.SwIfIndex], m.ID, m.SocketID, m.Role, m.Mode)
	})
	if err != nil {
		return fmt.Errorf("list memifs: %w", err)
	}
	return nil
}
