package scripts_test

import (
	"context"
	"errors"
	"fmt"
	"io"

	"go.fd.io/govpp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip"
)

// removeRoute deletes the dataplane's routes to the sandbox's first address in all tables.
func (s *stage) removeRoute(b *sandbox) error {
	addresses, err := b.addresses()
	if err != nil {
		return err
	}
	conn, err := govpp.Connect(s.node.DataplaneSocket())
	if err != nil {
		return err
	}
	defer conn.Disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tables, err := dump(ip.NewServiceClient(conn).IPTableDump(ctx, &ip.IPTableDump{}))
	if err != nil {
		return err
	}
	removed := 0
	for _, t := range tables {
		if t.Table.IsIP6 {
			continue
		}
		n, err := removeFrom(ctx, conn, t.Table, fmt.Sprintf("%s/32", addresses[0]))
		if err != nil {
			return err
		}
		removed += n
	}
	if removed == 0 {
		return fmt.Errorf("no route to %s", addresses[0])
	}
	return nil
}

func removeFrom(ctx context.Context, conn api.Connection, table ip.IPTable, prefix string) (removed int, err error) {
	rpc := ip.NewServiceClient(conn)
	routes, err := dump(rpc.IPRouteV2Dump(ctx, &ip.IPRouteV2Dump{Table: table}))
	if err != nil {
		return 0, err
	}
	for _, r := range routes {
		if r.Route.Prefix.String() != prefix {
			continue
		}
		_, err := rpc.IPRouteAddDel(ctx, &ip.IPRouteAddDel{Route: ip.IPRoute{
			TableID: table.TableID, Prefix: r.Route.Prefix, NPaths: r.Route.NPaths, Paths: r.Route.Paths,
		}})
		if err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// dump collects the answers to a dump.
func dump[D any, R interface{ Recv() (*D, error) }](stream R, err error) ([]*D, error) {
	var all []*D
	for err == nil {
		var details *D
		if details, err = stream.Recv(); err == nil {
			all = append(all, details)
		}
	}
	if errors.Is(err, io.EOF) {
		return all, nil
	}
	return nil, err
}
