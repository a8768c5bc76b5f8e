package vpp

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/l2"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// L2Entry is what is remembered of an applied entry: the numbers of its bridge domain and its interface.
type L2Entry struct {
	Domain    Domain
	Interface Index
}

type l2FIBItem = kvscheduler.Item[wire.L2FIB, L2Entry]

type l2FIBs struct{ c *Client }

func l2FIBDescriptor(c *Client) kvscheduler.Descriptor[wire.L2FIB, L2Entry] {
	return kvscheduler.Descriptor[wire.L2FIB, L2Entry]{
		Name: wire.KindL2FIB, Lane: Lane,
		Equal:    func(want, have wire.L2FIB) bool { return want == have },
		Validate: validateL2FIB,
		// The dataplane takes an entry for a member of any bridge domain, and then forwards nothing by it.
		Deps: func(_ string, v wire.L2FIB) []kvscheduler.Dep {
			return []kvscheduler.Dep{
				{Label: "bridge domain", On: ref(wire.KindBridgeDomain, v.BridgeDomain)},
				{Label: "member", On: ref(wire.KindBridgeMember, v.Interface), Mode: kvscheduler.Follow},
				{Label: "member of the bridge domain", Any: &kvscheduler.Select{
					Kind: wire.KindBridgeMember, Bucket: v.BridgeDomain,
					Match: func(name string, _ any) bool { return name == v.Interface },
				}},
			}
		},
		Recreate: func(have, want wire.L2FIB) bool { return true },
		After:    []string{wire.KindInterface, wire.KindBridgeDomain, wire.KindBridgeMember},
		Backend:  l2FIBs{c},
	}
}

func validateL2FIB(name string, v wire.L2FIB) error {
	switch {
	case !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %q is not that of one interface", v.MAC)
	case v.BVI:
		return errors.New("the dataplane itself makes the entry of a BVI")
	case name != wire.L2FIBName(v.BridgeDomain, v.MAC):
		return fmt.Errorf("bridge domain and MAC make the name %s", wire.L2FIBName(v.BridgeDomain, v.MAC))
	}
	return nil
}

// Create adds static entries, or replaces what was learned.
func (b l2FIBs) Create(ctx context.Context, batch []l2FIBItem) {
	each(ctx, b.c, batch, func(it *l2FIBItem) *request {
		it.NewMeta = L2Entry{handle[Domain](it, 0), handle[Index](it, 1)}
		return addDelL2(it.Want, it.NewMeta, true)
	})
}

// Update is never called: every difference recreates.
func (b l2FIBs) Update(_ context.Context, batch []l2FIBItem) { refuseUpdates(batch) }

// Delete removes the entries.
func (b l2FIBs) Delete(ctx context.Context, batch []l2FIBItem) {
	each(ctx, b.c, batch, func(it *l2FIBItem) *request {
		return addDelL2(it.Have, it.Meta, false).fineIf(api.NO_SUCH_ENTRY, api.INVALID_SW_IF_INDEX)
	})
}

func addDelL2(v wire.L2FIB, m L2Entry, add bool) *request {
	verb := "delete"
	if add {
		verb = "add"
	}
	return ask(fmt.Sprintf("l2fib_add_del: %s %s by %s in %s", verb, v.MAC, v.Interface, v.BridgeDomain), &l2.L2fibAddDel{
		Mac: [6]byte(v.MAC), BdID: uint32(m.Domain), SwIfIndex: m.Interface.api(), IsAdd: add, StaticMac: true,
	}, &l2.L2fibAddDelReply{})
}

// Dump lists the static entries of our interfaces in our bridge domains.
func (b l2FIBs) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.L2FIB, L2Entry], error] {
	return b.Read(ctx, view, nil)
}

// Read is Dump for the bridge domains of the named objects.
func (b l2FIBs) Read(ctx context.Context, _ kvscheduler.View, names []string) iter.Seq2[kvscheduler.Actual[wire.L2FIB, L2Entry], error] {
	return yieldAll(b.read(ctx, names))
}

func (b l2FIBs) read(ctx context.Context, names []string) ([]kvscheduler.Actual[wire.L2FIB, L2Entry], error) {
	p, err := b.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	there, err := b.c.bridges(ctx)
	if err != nil {
		return nil, err
	}
	var requests []*request
	for id, name := range there.names {
		if len(names) == 0 || concerns(name, names) {
			requests = append(requests, askAll(&l2.L2FibTableDump{BdID: uint32(id)}, &l2.L2FibTableDetails{}))
		}
	}
	if err := b.c.exchangeAll(ctx, requests); err != nil {
		return nil, err
	}
	var found []kvscheduler.Actual[wire.L2FIB, L2Entry]
	for _, r := range requests {
		for _, d := range listOf[*l2.L2FibTableDetails](r) {
			iface, ours := p.byIndex[Index(d.SwIfIndex)]
			if !ours || !d.StaticMac || d.FilterMac || d.BviMac { // that of a BVI comes and goes with it
				continue
			}
			v := wire.L2FIB{BridgeDomain: there.nameOf(Domain(d.BdID)), MAC: wire.MAC(d.Mac), Interface: iface}
			found = append(found, kvscheduler.Actual[wire.L2FIB, L2Entry]{
				Name: wire.L2FIBName(v.BridgeDomain, v.MAC), V: v, Meta: L2Entry{Domain(d.BdID), Index(d.SwIfIndex)},
			})
		}
	}
	return found, nil
}
