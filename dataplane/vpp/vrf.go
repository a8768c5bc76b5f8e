package vpp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Table is what is remembered of an applied VRF: the number and family of its table.
type Table struct {
	ID     uint32
	Family wire.Family
}

// vrfPrefix starts the names of our tables in the dataplane.
const vrfPrefix = "weft:"

const maxLabel = 63 - len(vrfPrefix)

type vrfs struct{ c *Client }

func vrfDescriptor(c *Client) kvscheduler.Descriptor[wire.VRF, Table] {
	return kvscheduler.Descriptor[wire.VRF, Table]{
		Name: wire.KindVRF, Lane: Lane,
		Equal:    func(want, have wire.VRF) bool { return want == have },
		Validate: validateVRF,
		Recreate: func(have, want wire.VRF) bool { return true },
		Bucket:   func(_ string, v wire.VRF) string { return tableBucket(v) },
		Backend:  vrfs{c},
	}
}

// tableBucket names the table of a VRF, for objects that know the table's ID only.
func tableBucket(v wire.VRF) string { return fmt.Sprintf("%s table %d", v.Family, v.ID) }

func validateVRF(name string, v wire.VRF) error {
	switch {
	case v.Family != wire.IP4 && v.Family != wire.IP6:
		return fmt.Errorf("family %q is neither ip4 nor ip6", v.Family)
	case v.ID == 0 || v.ID == ^uint32(0):
		return fmt.Errorf("table %d belongs to the dataplane", v.ID)
	case v.Label == "" || len(v.Label) > maxLabel:
		return fmt.Errorf("label %q: a label has 1 to %d bytes", v.Label, maxLabel)
	case name != wire.VRFName(v.Label, v.Family):
		return fmt.Errorf("label and family make the name %s", wire.VRFName(v.Label, v.Family))
	}
	return nil
}

// Create looks first: the dataplane would use a foreign table without an error.
func (b vrfs) Create(ctx context.Context, batch []kvscheduler.Item[wire.VRF, Table]) {
	owners, err := b.owners(ctx)
	for i := range batch {
		it := &batch[i]
		it.NewMeta = Table{it.Want.ID, it.Want.Family}
		label, taken := owners[it.NewMeta]
		switch {
		case err != nil:
			it.Err = kvscheduler.Refused(err)
		case taken && label != vrfPrefix+it.Want.Label:
			it.Err = permanent(fmt.Errorf("create %s table %d: it exists and belongs to %q", it.Want.Family, it.Want.ID, label))
		}
	}
	set(ctx, b.c, batch, true)
}

// Update is never called: every difference recreates.
func (b vrfs) Update(_ context.Context, batch []kvscheduler.Item[wire.VRF, Table]) {
	refuseUpdates(batch)
}

// Delete leaves alone what is not ours any more.
func (b vrfs) Delete(ctx context.Context, batch []kvscheduler.Item[wire.VRF, Table]) {
	owners, err := b.owners(ctx)
	for i := range batch {
		it := &batch[i]
		if err != nil {
			it.Err = kvscheduler.Refused(err)
		} else if owners[it.Meta] != vrfPrefix+it.Have.Label {
			it.Err = errDone // gone, or another's by now
		}
	}
	set(ctx, b.c, batch, false)
}

// errDone marks an item for which nothing is left to do.
var errDone = errors.New("nothing to do")

// set sends what has no error yet.
func set(ctx context.Context, c *Client, batch []kvscheduler.Item[wire.VRF, Table], add bool) {
	var requests []*request
	var items []*kvscheduler.Item[wire.VRF, Table]
	for i := range batch {
		it := &batch[i]
		v, verb := it.Want, "create"
		if !add {
			v, verb = it.Have, "delete"
		}
		if errors.Is(it.Err, errDone) {
			it.Err = nil
			continue
		}
		if it.Err != nil {
			continue
		}
		table := ip.IPTable{TableID: v.ID, IsIP6: v.Family == wire.IP6, Name: vrfPrefix + v.Label}
		what := fmt.Sprintf("ip_table_add_del_v2: %s %s table %d %q", verb, v.Family, v.ID, table.Name)
		r := ask(what, &ip.IPTableAddDelV2{Table: table, CreateMfib: true, IsAdd: add}, &ip.IPTableAddDelV2Reply{})
		if !add {
			r.fineIf(api.NO_SUCH_FIB, api.NO_SUCH_ENTRY)
		}
		requests = append(requests, r)
		items = append(items, it)
	}
	c.exchange(ctx, requests...)
	for i, r := range requests {
		items[i].Err = r.fault()
	}
}

// Dump lists the tables with our names.
func (b vrfs) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.VRF, Table], error] {
	owners, err := b.owners(ctx)
	var found []kvscheduler.Actual[wire.VRF, Table]
	for table, owner := range owners {
		if label, ours := strings.CutPrefix(owner, vrfPrefix); ours {
			found = append(found, kvscheduler.Actual[wire.VRF, Table]{
				Name: wire.VRFName(label, table.Family), V: wire.VRF{ID: table.ID, Family: table.Family, Label: label}, Meta: table,
			})
		}
	}
	return yieldAll(found, err)
}

// owners are the names of all tables.
func (b vrfs) owners(ctx context.Context) (map[Table]string, error) {
	r := askAll(&ip.IPTableDump{}, &ip.IPTableDetails{})
	if err := b.c.exchangeAll(ctx, []*request{r}); err != nil {
		return nil, err
	}
	owners := map[Table]string{}
	for _, d := range listOf[*ip.IPTableDetails](r) {
		family := wire.IP4
		if d.Table.IsIP6 {
			family = wire.IP6
		}
		owners[Table{d.Table.TableID, family}] = d.Table.Name
	}
	return owners, nil
}

// tables are our tables by the names of their VRFs, and back.
func (c *Client) tables(ctx context.Context) (byName map[string]Table, names map[Table]string, err error) {
	owners, err := vrfs{c}.owners(ctx)
	byName, names = map[string]Table{}, map[Table]string{}
	for table, owner := range owners {
		if label, ours := strings.CutPrefix(owner, vrfPrefix); ours {
			name := wire.VRFName(label, table.Family)
			byName[name], names[table] = table, name
		}
	}
	return byName, names, err
}

// refuseUpdates is for kinds whose every change is a recreation.
func refuseUpdates[V, M any](batch []kvscheduler.Item[V, M]) {
	for i := range batch {
		batch[i].Err = permanent(fmt.Errorf("%s cannot be changed in place", batch[i].Name))
	}
}
