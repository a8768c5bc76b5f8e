package vpp

import (
	"context"
	"fmt"
	"iter"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type neighbourItem = kvscheduler.Item[wire.Neighbour, Index]

type neighbours struct{ c *Client }

func neighbourDescriptor(c *Client) kvscheduler.Descriptor[wire.Neighbour, Index] {
	return kvscheduler.Descriptor[wire.Neighbour, Index]{
		Name: wire.KindNeighbour, Lane: Lane,
		Equal:    func(want, have wire.Neighbour) bool { return want == have },
		Validate: validateNeighbour,
		Deps: func(_ string, v wire.Neighbour) []kvscheduler.Dep {
			return []kvscheduler.Dep{
				{Label: "interface", On: ref(wire.KindInterface, v.Interface), Mode: kvscheduler.Follow},
				{Label: "VRF of the interface", On: ref(wire.KindInterfaceVRF, wire.InterfaceVRFName(v.Interface, wire.FamilyOf(v.Address)))},
			}
		},
		Recreate: func(have, want wire.Neighbour) bool {
			return have.Interface != want.Interface || have.Address != want.Address
		},
		After:   []string{wire.KindInterface},
		Backend: neighbours{c},
	}
}

func validateNeighbour(name string, v wire.Neighbour) error {
	switch {
	case !v.Address.IsValid() || v.Address.Is4In6() || v.Address.IsUnspecified() || v.Address.IsMulticast() || v.Address.Zone() != "":
		return fmt.Errorf("address %s is not that of a neighbour", v.Address)
	case !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %q is not that of one interface", v.MAC)
	case name != wire.NeighbourName(v.Interface, v.Address):
		return fmt.Errorf("interface and address make the name %s", wire.NeighbourName(v.Interface, v.Address))
	}
	return nil
}

// Create adds static entries, or replaces what was learned.
func (b neighbours) Create(ctx context.Context, batch []neighbourItem) {
	each(ctx, b.c, batch, func(it *neighbourItem) *request {
		it.NewMeta = handle[Index](it, 0)
		return addDelNeighbour(it.Want, it.NewMeta, true)
	})
}

// Update replaces the MAC, which is what adding does to an entry that is there.
func (b neighbours) Update(ctx context.Context, batch []neighbourItem) { b.Create(ctx, batch) }

// Delete removes the entries.
func (b neighbours) Delete(ctx context.Context, batch []neighbourItem) {
	each(ctx, b.c, batch, func(it *neighbourItem) *request {
		return addDelNeighbour(it.Have, it.Meta, false).fineIf(api.INVALID_SW_IF_INDEX, api.NO_SUCH_ENTRY)
	})
}

func addDelNeighbour(v wire.Neighbour, i Index, add bool) *request {
	verb := "delete"
	if add {
		verb = "add"
	}
	return ask(fmt.Sprintf("ip_neighbor_add_del: %s %s on %s", verb, v.Address, v.Interface), &ip_neighbor.IPNeighborAddDel{
		IsAdd: add,
		Neighbor: ip_neighbor.IPNeighbor{
			SwIfIndex: i.api(), Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC, MacAddress: [6]byte(v.MAC), IPAddress: apiAddress(v.Address),
		},
	}, &ip_neighbor.IPNeighborAddDelReply{})
}

// Dump lists the static entries of our interfaces.
func (b neighbours) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Neighbour, Index], error] {
	return yieldAll(b.dump(ctx))
}

// dump leaves out what the dataplane has learned by itself.
func (b neighbours) dump(ctx context.Context) ([]kvscheduler.Actual[wire.Neighbour, Index], error) {
	p, err := b.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	var requests []*request
	for _, family := range []ip_types.AddressFamily{ip_types.ADDRESS_IP4, ip_types.ADDRESS_IP6} {
		requests = append(requests, askAll(&ip_neighbor.IPNeighborDump{SwIfIndex: noIndex.api(), Af: family}, &ip_neighbor.IPNeighborDetails{}))
	}
	if err := b.c.exchangeAll(ctx, requests); err != nil {
		return nil, err
	}
	var found []kvscheduler.Actual[wire.Neighbour, Index]
	for _, r := range requests {
		for _, d := range listOf[*ip_neighbor.IPNeighborDetails](r) {
			n := d.Neighbor
			name, ours := p.byIndex[Index(n.SwIfIndex)]
			if !ours || n.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC == 0 {
				continue
			}
			v := wire.Neighbour{Interface: name, Address: address(n.IPAddress), MAC: wire.MAC(n.MacAddress)}
			found = append(found, kvscheduler.Actual[wire.Neighbour, Index]{Name: wire.NeighbourName(name, v.Address), V: v, Meta: Index(n.SwIfIndex)})
		}
	}
	return found, nil
}
