package vpp

import (
	"context"
	"fmt"
	"iter"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

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
