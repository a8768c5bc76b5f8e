package vpp

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Table identifies the table of an applied VRF.
type Table struct {
	ID     uint32
	Family netaddr.Family
}

// vrfPrefix starts the names of our tables in the dataplane.
const vrfPrefix = "weft:"

const maxLabel = 63 - len(vrfPrefix)

type vrfs struct {
	recreated[wire.VRF, Table]
	c *Client
}

func vrfDescriptor(c *Client) kvscheduler.Descriptor[wire.VRF, Table] {
	return kvscheduler.Descriptor[wire.VRF, Table]{
		Name: wire.KindVRF, Lane: Lane,
		Equal:    equal[wire.VRF],
		Validate: validateVRF,
		Recreate: always[wire.VRF],
		Bucket:   func(_ string, v wire.VRF) string { return tableBucket(v) },
		Backend:  vrfs{c: c},
	}
}

// tableBucket names the table of a VRF, for objects that know only the ID of the table.
func tableBucket(v wire.VRF) string { return fmt.Sprintf("%s table %d", v.Family, v.ID) }

func validateVRF(name string, v wire.VRF) error {
	switch {
	case v.Family != netaddr.IP4 && v.Family != netaddr.IP6:
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
	if unread(batch, err) {
		return
	}
	several(ctx, b.c, batch, func(it *kvscheduler.Item[wire.VRF, Table]) []*request {
		it.NewMeta = Table{it.Want.ID, it.Want.Family}
		if label, taken := owners[it.NewMeta]; taken && label != vrfPrefix+it.Want.Label {
			it.Err = permanent(fmt.Errorf("create %s table %d: it exists and belongs to %q", it.Want.Family, it.Want.ID,
				label))
			return nil
		}
		return []*request{addDelTable("create", it.Want)}
	})
}

// Delete deletes the tables that still have our names.
func (b vrfs) Delete(ctx context.Context, batch []kvscheduler.Item[wire.VRF, Table]) {
	owners, err := b.owners(ctx)
	if unread(batch, err) {
		return
	}
	several(ctx, b.c, batch, func(it *kvscheduler.Item[wire.VRF, Table]) []*request {
		if owners[it.Meta] != vrfPrefix+it.Have.Label {
			return nil
		}
		return []*request{addDelTable("delete", it.Have).fineIf(api.NO_SUCH_FIB, api.NO_SUCH_ENTRY)}
	})
}

func addDelTable(verb string, v wire.VRF) *request {
	table := ip.IPTable{TableID: v.ID, IsIP6: v.Family == netaddr.IP6, Name: vrfPrefix + v.Label}
	return ask(fmt.Sprintf("ip_table_add_del_v2: %s %s table %d %q", verb, v.Family, v.ID, table.Name),
		&ip.IPTableAddDelV2{
			Table: table, CreateMfib: true, IsAdd: verb == "create",
		}, &ip.IPTableAddDelV2Reply{})
}

func (b vrfs) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.VRF, Table], error] {
	ours, err := b.tables(ctx)
	var found []kvscheduler.Actual[wire.VRF, Table]
	for table, name := range ours.names {
		label := strings.TrimSuffix(name, wire.VRFName("", table.Family))
		found = append(found, kvscheduler.Actual[wire.VRF, Table]{
			Name: name,
			V:    wire.VRF{ID: table.ID, Family: table.Family, Label: label},
			Meta: table,
		})
	}
	return yieldAll(found, err)
}

// owners returns the names of all tables.
func (b vrfs) owners(ctx context.Context) (map[Table]string, error) {
	r := askAll(&ip.IPTableDump{}, &ip.IPTableDetails{})
	if err := b.c.exchangeAll(ctx, []*request{r}); err != nil {
		return nil, err
	}
	return mapOf(r, func(d *ip.IPTableDetails) (Table, string) {
		family := netaddr.IP4
		if d.Table.IsIP6 {
			family = netaddr.IP6
		}
		return Table{d.Table.TableID, family}, d.Table.Name
	}), nil
}

// tables are our tables, with the names of their VRFs.
type tables struct {
	byName map[string]Table
	names  map[Table]string
}

func (b vrfs) tables(ctx context.Context) (tables, error) {
	owners, err := b.owners(ctx)
	t := tables{map[string]Table{}, map[Table]string{}}
	for table, owner := range owners {
		if label, ours := strings.CutPrefix(owner, vrfPrefix); ours {
			name := wire.VRFName(label, table.Family)
			t.byName[name] = table
			t.names[table] = name
		}
	}
	return t, err
}

// nameOf names the VRF of a table. The name of a foreign table is invalid for desired values.
func (t tables) nameOf(table Table) string {
	if name, ok := t.names[table]; ok {
		return name
	}
	return fmt.Sprintf("#%d/%s", table.ID, table.Family)
}

type membershipItem = kvscheduler.Item[wire.InterfaceVRF, Index]

func membershipDescriptor(c *Client) kvscheduler.Descriptor[wire.InterfaceVRF, Index] {
	return kvscheduler.Descriptor[wire.InterfaceVRF, Index]{
		Name: wire.KindInterfaceVRF, Lane: Lane,
		Equal:    sameMembership,
		Validate: validateMembership,
		Deps: func(_ string, v wire.InterfaceVRF) []kvscheduler.Dep {
			deps := withSourceRules(v.AntiSpoofed, v.Interface,
				kvscheduler.Dep{Label: "interface", On: ref(wire.KindInterface, v.Interface)},
				kvscheduler.Dep{Label: "VRF", On: ref(wire.KindVRF, v.VRF)},
			)
			return filtered(v.Filtered, v.Interface, deps)
		},
		// The dataplane moves no interface that has addresses: recreation removes them before and adds them again.
		Recreate: always[wire.InterfaceVRF],
		After:    []string{wire.KindInterface, wire.KindVRF},
		Backend: readable[wire.InterfaceVRF, Index]{simple[wire.InterfaceVRF, Index]{
			c: c,
			create: func(it *membershipItem) *request {
				it.NewMeta = handle[Index](it, 0)
				return setTable(it.Want, it.NewMeta, handle[Table](it, 1).ID)
			},
			delete: func(it *membershipItem) *request {
				return setTable(it.Have, it.Meta, 0).fineIf(api.INVALID_SW_IF_INDEX)
			},
			list: memberships{c}.read,
		}},
	}
}

// sameMembership ignores fields that the dataplane does not report.
func sameMembership(want, have wire.InterfaceVRF) bool {
	have.AntiSpoofed = want.AntiSpoofed
	have.Filtered = want.Filtered
	return want == have
}

func validateMembership(name string, v wire.InterfaceVRF) error {
	if v.Family != netaddr.IP4 && v.Family != netaddr.IP6 {
		return fmt.Errorf("family %q is neither ip4 nor ip6", v.Family)
	}
	if name != wire.InterfaceVRFName(v.Interface, v.Family) {
		return fmt.Errorf("interface and family make the name %s", wire.InterfaceVRFName(v.Interface, v.Family))
	}
	return nil
}

func setTable(v wire.InterfaceVRF, i Index, table uint32) *request {
	what := fmt.Sprintf("sw_interface_set_table: %s into %s table %d", v.Interface, v.Family, table)
	return ask(what, &interfaces.SwInterfaceSetTable{
		SwIfIndex: i.api(), IsIPv6: v.Family == netaddr.IP6, VrfID: table,
	}, &interfaces.SwInterfaceSetTableReply{})
}

// memberships reads the VRFs of interfaces.
type memberships struct{ c *Client }

// read lists our interfaces that are in another table than 0. With names it lists the interfaces of these
// objects.
func (b memberships) read(
	ctx context.Context, names []string,
) ([]kvscheduler.Actual[wire.InterfaceVRF, Index], error) {
	p, vrfs, err := both(ctx, b.c.ports, vrfs{c: b.c}.tables)
	if err != nil {
		return nil, err
	}
	var requests []*request
	var asked []kvscheduler.Actual[wire.InterfaceVRF, Index]
	for name, index := range p.named(names) {
		for _, family := range families {
			requests = append(requests, ask("sw_interface_get_table "+name, &interfaces.SwInterfaceGetTable{
				SwIfIndex: index.api(), IsIPv6: family == netaddr.IP6,
			}, &interfaces.SwInterfaceGetTableReply{}))
			asked = append(asked, kvscheduler.Actual[wire.InterfaceVRF, Index]{
				Name: wire.InterfaceVRFName(name, family),
				V:    wire.InterfaceVRF{Interface: name, Family: family},
				Meta: index,
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
			a.V.VRF = vrfs.nameOf(Table{id, a.V.Family})
			found = append(found, a)
		}
	}
	return found, nil
}
