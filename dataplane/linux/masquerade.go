package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// masquerades is the backend of the one table that is ours. Tables of others are neither read nor written.
type masquerades struct{}

type masqueradeItem = kvscheduler.Item[wire.Masquerade, struct{}]

func masqueradeDescriptor() kvscheduler.Descriptor[wire.Masquerade, struct{}] {
	return kvscheduler.Descriptor[wire.Masquerade, struct{}]{
		Name: wire.KindMasquerade, Lane: Lane,
		Equal:    sameMasquerade,
		Validate: validateMasquerade,
		Backend:  masquerades{},
	}
}

// sameMasquerade compares what the values cover: the kernel does not keep in which prefixes it was written.
func sameMasquerade(want, have wire.Masquerade) bool {
	if want.Equal(have) {
		return true
	}
	same := sameRules(want, have)
	for _, s := range addressSets {
		same = same && slices.Equal(rangesOf(s.of(want), s.is4), rangesOf(s.of(have), s.is4))
	}
	return same
}

// sameRules reports whether two values differ at most in what is in the sets.
func sameRules(a, b wire.Masquerade) bool {
	return a.Link == b.Link && a.Egress == b.Egress && a.Guard.Port == b.Guard.Port && a.Guard.Link == b.Guard.Link
}

func validateMasquerade(name string, v wire.Masquerade) error {
	if wire.Key(wire.KindMasquerade, name) != wire.MasqueradeKey() {
		return fmt.Errorf("%s: there is one table, %s", name, tableName)
	}
	if v.Link == "" || len(v.Link) >= unix.IFNAMSIZ {
		return fmt.Errorf("link %q is no name for a link", v.Link)
	}
	if len(v.Guard.Link) >= unix.IFNAMSIZ || v.Guard.Link == v.Link {
		return fmt.Errorf("link %q of the tunnels: it has at most %d bytes and is not the link of the pods", v.Guard.Link, unix.IFNAMSIZ-1)
	}
	for _, p := range slices.Concat(v.Pods, v.Exclude, v.Guard.Nodes) {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
			return fmt.Errorf("prefix %s is not masked", p)
		}
	}
	return nil
}

// Create makes the table, in one step with the removal of what is in its place.
func (masquerades) Create(ctx context.Context, batch []masqueradeItem) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err == nil {
			it.Err = refusedTable(writeTable(it.Want))
		}
	}
}

// Update changes what is in the sets only, unless the rules are others: so they go on counting.
func (masquerades) Update(ctx context.Context, batch []masqueradeItem) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err != nil {
			continue
		}
		change := writeTable
		if sameRules(it.Have, it.Want) {
			change = fillSets
		}
		it.Err = refusedTable(change(it.Want))
	}
}

// Delete removes the table.
func (masquerades) Delete(ctx context.Context, batch []masqueradeItem) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err == nil {
			it.Err = refusedTable(RemoveMasquerade())
		}
	}
}

// RemoveMasquerade removes the table of nftables that is Weft's, from the node of the caller. One that is not there is no
// error.
func RemoveMasquerade() error { return removeTable(ourTable()) }

func removeTable(table *nftables.Table) error {
	c, err := tables()
	if err != nil {
		return err
	}
	c.DelTable(table)
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove table inet %s of nftables: %w", table.Name, err)
	}
	return nil
}

// Dump finds the table, also one of an earlier agent.
func (masquerades) Dump(_ context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Masquerade, struct{}], error] {
	return func(yield func(kvscheduler.Actual[wire.Masquerade, struct{}], error) bool) {
		ref, err := kvscheduler.ParseRef(wire.MasqueradeKey())
		if err != nil {
			yield(kvscheduler.Actual[wire.Masquerade, struct{}]{}, err)
			return
		}
		have, found, err := readTable(knownMasquerades(view, ref))
		if err != nil || found {
			yield(kvscheduler.Actual[wire.Masquerade, struct{}]{Name: ref.Name, V: have}, err)
		}
	}
}

// Read is Dump: there is one object.
func (m masquerades) Read(ctx context.Context, view kvscheduler.View, _ []string) iter.Seq2[kvscheduler.Actual[wire.Masquerade, struct{}], error] {
	return m.Dump(ctx, view)
}

// knownMasquerades are the values that the table may have been made of.
func knownMasquerades(view kvscheduler.View, ref kvscheduler.Ref) (values []wire.Masquerade) {
	if v, _, ok := view.Applied(ref); ok {
		if m, is := v.(wire.Masquerade); is {
			values = append(values, m)
		}
	}
	if v, ok := view.Desired(ref); ok {
		if m, is := v.(wire.Masquerade); is {
			values = append(values, m)
		}
	}
	return values
}

// refusedTable says that nothing was changed: the kernel takes a batch whole or not at all.
func refusedTable(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		err = fmt.Errorf("%w: the kernel lacks nf_tables, nft_masq or nft_fib_inet", err)
	}
	return refused(err)
}

// prefixesOf gives the prefixes of ranges.
func prefixesOf(ranges []addressRange) (list []netip.Prefix) {
	for _, r := range ranges {
		list = append(list, r.prefixes()...)
	}
	return list
}
