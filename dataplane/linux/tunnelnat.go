package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// tunnelNATs is the backend of the table that translates the addresses of tunnel packets.
type tunnelNATs struct{}

type tunnelNATItem = kvscheduler.Item[wire.TunnelNAT, struct{}]

func tunnelNATDescriptor() kvscheduler.Descriptor[wire.TunnelNAT, struct{}] {
	return kvscheduler.Descriptor[wire.TunnelNAT, struct{}]{
		Name: wire.KindTunnelNAT, Lane: Lane,
		Equal:    wire.TunnelNAT.Equal,
		Validate: validateTunnelNAT,
		Backend:  tunnelNATs{},
	}
}

func validateTunnelNAT(name string, v wire.TunnelNAT) error {
	if wire.Key(wire.KindTunnelNAT, name) != wire.TunnelNATKey() {
		return fmt.Errorf("%s: there is one table, %s", name, tunnelTableName)
	}
	if v.Link == "" || len(v.Link) >= unix.IFNAMSIZ {
		return fmt.Errorf("link %q is no name for a link", v.Link)
	}
	if v.Port == 0 {
		return errors.New("the UDP port is missing")
	}
	for _, a := range slices.Concat([]netip.Addr{v.Inner, v.Node}, v.Peers) {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.Is4() != v.Inner.Is4() {
			return fmt.Errorf("address %s: all addresses are of one family and without a zone", a)
		}
	}
	if v.Inner == v.Node || slices.Contains(v.Peers, v.Inner) || slices.Contains(v.Peers, v.Node) {
		return errors.New("inner address, node and peers have to differ from each other")
	}
	if !slices.IsSortedFunc(v.Peers, netip.Addr.Compare) ||
		len(slices.Compact(slices.Clone(v.Peers))) != len(v.Peers) {
		return errors.New("the peers are not sorted, each once")
	}
	if v.Inner.Is6() && wire.AddressSum(v.Inner) != wire.AddressSum(v.Node) {
		return fmt.Errorf("inner address %s has another checksum than node %s", v.Inner, v.Node)
	}
	return nil
}

// Create makes the table, in one step with the removal of what is in its place.
func (tunnelNATs) Create(ctx context.Context, batch []tunnelNATItem) {
	eachTunnelNAT(ctx, batch, func(it *tunnelNATItem) error { return writeTunnelTable(it.Want) })
}

// Update changes the set of peers only, unless the rules differ: so that counters go on.
func (tunnelNATs) Update(ctx context.Context, batch []tunnelNATItem) {
	eachTunnelNAT(ctx, batch, func(it *tunnelNATItem) error {
		have := it.Have
		if have.Peers = it.Want.Peers; have.Equal(it.Want) {
			return fillPeers(it.Want)
		}
		return writeTunnelTable(it.Want)
	})
}

// Delete removes the table.
func (tunnelNATs) Delete(ctx context.Context, batch []tunnelNATItem) {
	eachTunnelNAT(ctx, batch, func(*tunnelNATItem) error { return RemoveTunnelNAT() })
}

func eachTunnelNAT(ctx context.Context, batch []tunnelNATItem, change func(*tunnelNATItem) error) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err == nil {
			it.Err = refusedTable(change(it))
		}
	}
}

// RemoveTunnelNAT removes the table of nftables for tunnel packets from the node of the caller. A missing one is no error.
func RemoveTunnelNAT() error { return removeTable(tunnelTable()) }

// Dump finds the table.
func (tunnelNATs) Dump(_ context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.TunnelNAT, struct{}], error] {
	return func(yield func(kvscheduler.Actual[wire.TunnelNAT, struct{}], error) bool) {
		ref, err := kvscheduler.ParseRef(wire.TunnelNATKey())
		if err != nil {
			yield(kvscheduler.Actual[wire.TunnelNAT, struct{}]{}, err)
			return
		}
		have, found, err := readTunnelTable(knownTunnelNATs(view, ref))
		if err != nil || found {
			yield(kvscheduler.Actual[wire.TunnelNAT, struct{}]{Name: ref.Name, V: have}, err)
		}
	}
}

// Read is Dump: there is one object.
func (b tunnelNATs) Read(ctx context.Context, view kvscheduler.View, _ []string) iter.Seq2[kvscheduler.Actual[wire.TunnelNAT, struct{}], error] {
	return b.Dump(ctx, view)
}

// knownTunnelNATs are the values that the table may have been made of.
func knownTunnelNATs(view kvscheduler.View, ref kvscheduler.Ref) (values []wire.TunnelNAT) {
	applied, _, _ := view.Applied(ref)
	desired, _ := view.Desired(ref)
	for _, v := range []any{applied, desired} {
		if n, is := v.(wire.TunnelNAT); is {
			values = append(values, n)
		}
	}
	return values
}
