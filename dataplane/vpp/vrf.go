package vpp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
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

type membershipItem = kvscheduler.Item[wire.InterfaceVRF, Index]

type memberships struct{ c *Client }

func membershipDescriptor(c *Client) kvscheduler.Descriptor[wire.InterfaceVRF, Index] {
	return kvscheduler.Descriptor[wire.InterfaceVRF, Index]{
		Name: wire.KindInterfaceVRF, Lane: Lane,
		Equal:    sameMembership,
		Validate: validateMembership,
		Deps: func(_ string, v wire.InterfaceVRF) []kvscheduler.Dep {
			return judged(v.Judged, v.Interface,
				kvscheduler.Dep{Label: "interface", On: ref(wire.KindInterface, v.Interface)},
				kvscheduler.Dep{Label: "VRF", On: ref(wire.KindVRF, v.VRF)},
			)
		},
		// The dataplane moves no interface that has addresses: recreation takes them away before and puts them back.
		Recreate: func(have, want wire.InterfaceVRF) bool { return true },
		After:    []string{wire.KindInterface, wire.KindVRF},
		Backend:  memberships{c},
	}
}

// sameMembership leaves out what the dataplane cannot report.
func sameMembership(want, have wire.InterfaceVRF) bool {
	have.Judged = want.Judged
	return want == have
}

func validateMembership(name string, v wire.InterfaceVRF) error {
	if v.Family != wire.IP4 && v.Family != wire.IP6 {
		return fmt.Errorf("family %q is neither ip4 nor ip6", v.Family)
	}
	if name != wire.InterfaceVRFName(v.Interface, v.Family) {
		return fmt.Errorf("interface and family make the name %s", wire.InterfaceVRFName(v.Interface, v.Family))
	}
	return nil
}

// Create moves the interfaces into their VRFs.
func (b memberships) Create(ctx context.Context, batch []membershipItem) {
	each(ctx, b.c, batch, func(it *membershipItem) *request {
		it.NewMeta = handle[Index](it, 0)
		return setTable(it.Want, it.NewMeta, handle[Table](it, 1).ID)
	})
}

// Update is never called: every difference recreates.
func (b memberships) Update(_ context.Context, batch []membershipItem) { refuseUpdates(batch) }

// Delete puts the interfaces back into the dataplane's own table.
func (b memberships) Delete(ctx context.Context, batch []membershipItem) {
	each(ctx, b.c, batch, func(it *membershipItem) *request {
		return setTable(it.Have, it.Meta, 0).fineIf(api.INVALID_SW_IF_INDEX)
	})
}

func setTable(v wire.InterfaceVRF, i Index, table uint32) *request {
	what := fmt.Sprintf("sw_interface_set_table: %s into %s table %d", v.Interface, v.Family, table)
	return ask(what, &interfaces.SwInterfaceSetTable{
		SwIfIndex: i.api(), IsIPv6: v.Family == wire.IP6, VrfID: table,
	}, &interfaces.SwInterfaceSetTableReply{})
}

// Dump lists our interfaces that are in another table than the dataplane's own.
func (b memberships) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.InterfaceVRF, Index], error] {
	return b.Read(ctx, view, nil)
}

// Read is Dump for the interfaces of the named objects.
func (b memberships) Read(ctx context.Context, _ kvscheduler.View, names []string) iter.Seq2[kvscheduler.Actual[wire.InterfaceVRF, Index], error] {
	return yieldAll(b.read(ctx, names))
}

func (b memberships) read(ctx context.Context, names []string) ([]kvscheduler.Actual[wire.InterfaceVRF, Index], error) {
	p, err := b.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	_, vrfs, err := b.c.tables(ctx)
	if err != nil {
		return nil, err
	}
	var requests []*request
	var asked []kvscheduler.Actual[wire.InterfaceVRF, Index]
	for name, index := range p.named(names) {
		for _, family := range families {
			requests = append(requests, ask("sw_interface_get_table "+name, &interfaces.SwInterfaceGetTable{
				SwIfIndex: index.api(), IsIPv6: family == wire.IP6,
			}, &interfaces.SwInterfaceGetTableReply{}))
			asked = append(asked, kvscheduler.Actual[wire.InterfaceVRF, Index]{
				Name: wire.InterfaceVRFName(name, family), V: wire.InterfaceVRF{Interface: name, Family: family}, Meta: index,
			})
		}
	}
	b.c.exchange(ctx, requests...)
	var found []kvscheduler.Actual[wire.InterfaceVRF, Index]
	for i, r := range requests {
		if r.refused(api.INVALID_SW_IF_INDEX) {
			continue // went away since the first dump
		}
		if err := r.fault(); err != nil {
			return nil, err
		}
		if id := r.reply.(*interfaces.SwInterfaceGetTableReply).VrfID; id != 0 {
			a := asked[i]
			a.V.VRF = tableName(vrfs, Table{id, a.V.Family})
			found = append(found, a)
		}
	}
	return found, nil
}

// tableName names the VRF of a table, in a form that no desired value has if it is not ours.
func tableName(names map[Table]string, t Table) string {
	if name, ok := names[t]; ok {
		return name
	}
	return fmt.Sprintf("#%d/%s", t.ID, t.Family)
}
