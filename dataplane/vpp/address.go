package vpp

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type addressItem = kvscheduler.Item[wire.Address, Index]

type addresses struct {
	recreated[wire.Address, Index]
	c *Client
}

func addressDescriptor(c *Client) kvscheduler.Descriptor[wire.Address, Index] {
	return kvscheduler.Descriptor[wire.Address, Index]{
		Name: wire.KindAddress, Lane: Lane,
		Equal:    equal[wire.Address],
		Validate: validateAddress,
		Deps: func(_ string, v wire.Address) []kvscheduler.Dep {
			return []kvscheduler.Dep{
				{Label: "interface", On: ref(wire.KindInterface, v.Interface)},
				{
					Label: "VRF of the interface",
					On: ref(wire.KindInterfaceVRF,
						wire.InterfaceVRFName(v.Interface, netaddr.FamilyOf(v.Prefix.Addr()))),
				},
			}
		},
		Recreate: always[wire.Address],
		Bucket:   func(_ string, v wire.Address) string { return v.Interface },
		After:    []string{wire.KindInterface},
		Backend:  addresses{c: c},
	}
}

func validateAddress(name string, v wire.Address) error {
	a := v.Prefix.Addr()
	switch {
	case !v.Prefix.IsValid() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast():
		return fmt.Errorf("prefix %s is not an address of an interface", v.Prefix)
	case a.Is6() && a.IsLinkLocalUnicast() && v.Prefix.Bits() != 128:
		return fmt.Errorf("prefix %s: a link-local address has 128 bits", v.Prefix)
	case name != wire.AddressName(v.Interface, v.Prefix):
		return fmt.Errorf("interface and prefix make the name %s", wire.AddressName(v.Interface, v.Prefix))
	}
	return nil
}

// Create adds the addresses. An address that the dataplane refuses as a duplicate is fine if the interface has it.
func (b addresses) Create(ctx context.Context, batch []addressItem) {
	requests := newRequests(batch, func(it *addressItem) *request {
		it.NewMeta = handle[Index](it, 0)
		if isLinkLocal(it.Want.Prefix) {
			return setLinkLocal(it.Want.Interface, it.NewMeta, it.Want.Prefix.Addr().As16())
		}
		return addDelAddress(it.Want, it.NewMeta, true)
	})
	b.c.exchange(ctx, requests...)
	for i, r := range requests {
		it := &batch[i]
		it.Err = r.fault()
		if r.refused(api.DUPLICATE_IF_ADDRESS, api.ADDRESS_IN_USE, api.VALUE_EXIST) && b.present(ctx, it) {
			it.Err = nil
		}
	}
}

func (b addresses) present(ctx context.Context, it *addressItem) bool {
	r := dumpAddresses(it.NewMeta, netaddr.FamilyOf(it.Want.Prefix.Addr()))
	b.c.exchange(ctx, r)
	for _, d := range listOf[*ip.IPAddressDetails](r) {
		if r.fault() == nil && interfacePrefix(d.Prefix) == it.Want.Prefix {
			return true
		}
	}
	return false
}

// Delete removes the addresses. There is no message to remove a link-local address: the address of the MAC replaces it.
func (b addresses) Delete(ctx context.Context, batch []addressItem) {
	macs := b.macs(ctx, batch)
	each(ctx, b.c, batch, func(it *addressItem) *request {
		r := addDelAddress(it.Have, it.Meta, false)
		if isLinkLocal(it.Have.Prefix) {
			r = setLinkLocal(it.Have.Interface, it.Meta, linkLocalOf(macs[it.Meta]).As16())
		}
		return r.fineIf(api.INVALID_SW_IF_INDEX, api.ADDRESS_NOT_FOUND_FOR_INTERFACE, api.INVALID_INTERFACE,
			api.IP6_NOT_ENABLED)
	})
}

func (b addresses) macs(ctx context.Context, batch []addressItem) map[Index]netaddr.MAC {
	var requests []*request
	for i := range batch {
		if isLinkLocal(batch[i].Have.Prefix) {
			requests = append(requests,
				askAll(&interfaces.SwInterfaceDump{SwIfIndex: batch[i].Meta.api()}, &interfaces.SwInterfaceDetails{}))
		}
	}
	b.c.exchange(ctx, requests...)
	macs := map[Index]netaddr.MAC{}
	for _, r := range requests {
		if r.fault() != nil {
			continue // the deletion that follows says why
		}
		for _, d := range listOf[*interfaces.SwInterfaceDetails](r) {
			macs[Index(d.SwIfIndex)] = mac(d)
		}
	}
	return macs
}

func addDelAddress(v wire.Address, i Index, add bool) *request {
	return ask(fmt.Sprintf("sw_interface_add_del_address: %s %s on %s", verb(add), v.Prefix, v.Interface),
		&interfaces.SwInterfaceAddDelAddress{
			SwIfIndex: i.api(), IsAdd: add, Prefix: ip_types.AddressWithPrefix(apiPrefix(v.Prefix)),
		}, &interfaces.SwInterfaceAddDelAddressReply{})
}

func setLinkLocal(name string, i Index, a ip_types.IP6Address) *request {
	return ask(fmt.Sprintf("sw_interface_ip6_set_link_local_address %s on %s", a, name),
		&ip.SwInterfaceIP6SetLinkLocalAddress{
			SwIfIndex: i.api(), IP: a,
		}, &ip.SwInterfaceIP6SetLinkLocalAddressReply{})
}

func dumpAddresses(i Index, f netaddr.Family) *request {
	return askAll(&ip.IPAddressDump{SwIfIndex: i.api(), IsIPv6: f == netaddr.IP6}, &ip.IPAddressDetails{})
}

func (b addresses) Dump(
	ctx context.Context, view kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[wire.Address, Index], error] {
	return b.Read(ctx, view, nil)
}

// Read is Dump for the interfaces of the named objects.
func (b addresses) Read(
	ctx context.Context, _ kvscheduler.View, names []string,
) iter.Seq2[kvscheduler.Actual[wire.Address, Index], error] {
	return yieldAll(b.read(ctx, names))
}

func (b addresses) read(ctx context.Context, names []string) ([]kvscheduler.Actual[wire.Address, Index], error) {
	p, borrowings, err := both(ctx, b.c.ports, borrowers{b.c}.borrowings)
	if err != nil {
		return nil, err
	}
	var requests []*request
	var owners []string
	for name, i := range p.named(names) {
		linkLocal := ask("sw_interface_ip6_get_link_local_address "+name,
			&ip.SwInterfaceIP6GetLinkLocalAddress{SwIfIndex: i.api()}, &ip.SwInterfaceIP6GetLinkLocalAddressReply{})
		requests = append(requests, linkLocal)
		owners = append(owners, name)
		if _, borrows := borrowings[i]; !borrows { // a borrower has the addresses of the donor
			requests = append(requests, dumpAddresses(i, netaddr.IP4), dumpAddresses(i, netaddr.IP6))
			owners = append(owners, name, name)
		}
	}
	b.c.exchange(ctx, requests...)
	var found []kvscheduler.Actual[wire.Address, Index]
	for i, r := range requests {
		// A refusal means that the interface was deleted meanwhile, or has no IPv6.
		if err := r.fault(); err != nil && (r.err != nil || r.dump) {
			return nil, err
		}
		d := p.byName[owners[i]]
		for _, prefix := range prefixesOf(r, linkLocalOf(mac(d))) {
			v := wire.Address{Interface: owners[i], Prefix: prefix}
			found = append(found, kvscheduler.Actual[wire.Address, Index]{
				Name: wire.AddressName(v.Interface, prefix),
				V:    v,
				Meta: Index(d.SwIfIndex),
			})
		}
	}
	return found, nil
}

// Borrowing identifies an applied unnumbered interface and its donor.
type Borrowing struct {
	Borrower Index
	Donor    Index
}

type unnumberedItem = kvscheduler.Item[wire.Unnumbered, Borrowing]

func unnumberedDescriptor(c *Client) kvscheduler.Descriptor[wire.Unnumbered, Borrowing] {
	return kvscheduler.Descriptor[wire.Unnumbered, Borrowing]{
		Name: wire.KindUnnumbered, Lane: Lane,
		Equal:    equal[wire.Unnumbered],
		Validate: validateUnnumbered,
		Deps:     unnumberedDeps,
		Recreate: always[wire.Unnumbered],
		// The families only select dependencies; the dataplane does not know them.
		Merge: func(dumped, last wire.Unnumbered) wire.Unnumbered {
			dumped.IP4 = last.IP4
			dumped.IP6 = last.IP6
			return dumped
		},
		After: []string{wire.KindInterface, wire.KindAddress},
		Backend: simple[wire.Unnumbered, Borrowing]{
			c: c,
			create: func(it *unnumberedItem) *request {
				it.NewMeta = Borrowing{Borrower: handle[Index](it, 0), Donor: handle[Index](it, 1)}
				return setUnnumbered(it.Want, it.NewMeta, true)
			},
			delete: func(it *unnumberedItem) *request {
				return setUnnumbered(it.Have, it.Meta, false).fineIf(api.INVALID_SW_IF_INDEX, api.INVALID_SW_IF_INDEX_2,
					api.NO_SUCH_ENTRY)
			},
			list: borrowers{c}.read,
		},
	}
}

func validateUnnumbered(name string, v wire.Unnumbered) error {
	switch {
	case name != v.Interface:
		return fmt.Errorf("the name is that of the interface, %s", v.Interface)
	case v.Donor == "" || v.Donor == v.Interface:
		return fmt.Errorf("donor %q is not another interface", v.Donor)
	case !v.IP4 && !v.IP6:
		return errors.New("neither ip4 nor ip6")
	}
	return nil
}

func unnumberedDeps(_ string, v wire.Unnumbered) []kvscheduler.Dep {
	deps := []kvscheduler.Dep{
		{Label: "interface", On: ref(wire.KindInterface, v.Interface)},
		{Label: "donor", On: ref(wire.KindInterface, v.Donor)},
	}
	for _, family := range families {
		if family == netaddr.IP4 && v.IP4 || family == netaddr.IP6 && v.IP6 {
			isOf := func(_ string, a any) bool { return netaddr.FamilyOf(a.(wire.Address).Prefix.Addr()) == family }
			deps = append(deps,
				kvscheduler.Dep{
					Label: "address of the donor",
					Any:   &kvscheduler.Select{Kind: wire.KindAddress, Bucket: v.Donor, Match: isOf},
				},
				kvscheduler.Dep{
					Label: "VRF of the interface",
					On:    ref(wire.KindInterfaceVRF, wire.InterfaceVRFName(v.Interface, family)),
				})
		}
	}
	return deps
}

func setUnnumbered(v wire.Unnumbered, m Borrowing, add bool) *request {
	what := fmt.Sprintf("sw_interface_set_unnumbered: %s of %s", v.Interface, v.Donor)
	if !add {
		what += ", delete"
	}
	return ask(what, &interfaces.SwInterfaceSetUnnumbered{
		SwIfIndex: m.Donor.api(), UnnumberedSwIfIndex: m.Borrower.api(), IsAdd: add,
	}, &interfaces.SwInterfaceSetUnnumberedReply{})
}

// borrowers reads the unnumbered interfaces.
type borrowers struct{ c *Client }

func (b borrowers) read(ctx context.Context, _ []string) ([]kvscheduler.Actual[wire.Unnumbered, Borrowing], error) {
	p, borrowings, err := both(ctx, b.c.ports, b.borrowings)
	if err != nil {
		return nil, err
	}
	var found []kvscheduler.Actual[wire.Unnumbered, Borrowing]
	for _, m := range borrowings {
		if name, ours := p.byIndex[m.Borrower]; ours {
			// VPP does not report the families. It moves no borrowing interface into another table, so an orphan is
			// deleted before both memberships.
			v := wire.Unnumbered{Interface: name, Donor: p.byIndex.of(m.Donor), IP4: true, IP6: true}
			found = append(found, kvscheduler.Actual[wire.Unnumbered, Borrowing]{Name: name, V: v, Meta: m})
		}
	}
	return found, nil
}

func (b borrowers) borrowings(ctx context.Context) (map[Index]Borrowing, error) {
	r := askAll(&ip.IPUnnumberedDump{SwIfIndex: noIndex.api()}, &ip.IPUnnumberedDetails{})
	if err := b.c.exchangeAll(ctx, []*request{r}); err != nil {
		return nil, err
	}
	return mapOf(r, func(d *ip.IPUnnumberedDetails) (Index, Borrowing) {
		return Index(d.SwIfIndex), Borrowing{Borrower: Index(d.SwIfIndex), Donor: Index(d.IPSwIfIndex)}
	}), nil
}

type neighbourItem = kvscheduler.Item[wire.Neighbour, Index]

func neighbourDescriptor(c *Client) kvscheduler.Descriptor[wire.Neighbour, Index] {
	return kvscheduler.Descriptor[wire.Neighbour, Index]{
		Name: wire.KindNeighbour, Lane: Lane,
		Equal:    equal[wire.Neighbour],
		Validate: validateNeighbour,
		Deps: func(_ string, v wire.Neighbour) []kvscheduler.Dep {
			return []kvscheduler.Dep{
				{Label: "interface", On: ref(wire.KindInterface, v.Interface), Mode: kvscheduler.Follow},
				{
					Label: "VRF of the interface",
					On:    ref(wire.KindInterfaceVRF, wire.InterfaceVRFName(v.Interface, netaddr.FamilyOf(v.Address))),
				},
			}
		},
		Recreate: func(have, want wire.Neighbour) bool {
			return have.Interface != want.Interface || have.Address != want.Address
		},
		After: []string{wire.KindInterface},
		Backend: simple[wire.Neighbour, Index]{
			c: c,
			create: func(it *neighbourItem) *request { // also replaces a learned entry, and the MAC
				it.NewMeta = handle[Index](it, 0)
				return addDelNeighbour(it.Want, it.NewMeta, true)
			},
			delete: func(it *neighbourItem) *request {
				return addDelNeighbour(it.Have, it.Meta, false).fineIf(api.INVALID_SW_IF_INDEX, api.NO_SUCH_ENTRY)
			},
			list: neighbours{c}.read,
		},
	}
}

func validateNeighbour(name string, v wire.Neighbour) error {
	switch {
	case !v.Address.IsValid() || v.Address.Is4In6() || v.Address.IsUnspecified() || v.Address.IsMulticast() ||
		v.Address.Zone() != "":
		return fmt.Errorf("address %s is not that of a neighbour", v.Address)
	case !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %q is not that of one interface", v.MAC)
	case name != wire.NeighbourName(v.Interface, v.Address):
		return fmt.Errorf("interface and address make the name %s", wire.NeighbourName(v.Interface, v.Address))
	}
	return nil
}

func addDelNeighbour(v wire.Neighbour, i Index, add bool) *request {
	return ask(fmt.Sprintf("ip_neighbor_add_del: %s %s on %s", verb(add), v.Address, v.Interface),
		&ip_neighbor.IPNeighborAddDel{
			IsAdd: add,
			Neighbor: ip_neighbor.IPNeighbor{
				SwIfIndex:  i.api(),
				Flags:      ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC,
				MacAddress: [6]byte(v.MAC),
				IPAddress:  apiAddress(v.Address),
			},
		}, &ip_neighbor.IPNeighborAddDelReply{})
}

// neighbours reads the static neighbours.
type neighbours struct{ c *Client }

func (b neighbours) read(ctx context.Context, _ []string) ([]kvscheduler.Actual[wire.Neighbour, Index], error) {
	p, err := b.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	var requests []*request
	for _, family := range families {
		requests = append(requests,
			askAll(&ip_neighbor.IPNeighborDump{SwIfIndex: noIndex.api(), Af: addressFamily(family)},
				&ip_neighbor.IPNeighborDetails{}))
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
			v := wire.Neighbour{Interface: name, Address: address(n.IPAddress), MAC: netaddr.MAC(n.MacAddress)}
			found = append(found, kvscheduler.Actual[wire.Neighbour, Index]{
				Name: wire.NeighbourName(name, v.Address),
				V:    v,
				Meta: Index(n.SwIfIndex),
			})
		}
	}
	return found, nil
}
