package vpp

import (
	"context"
	"fmt"
	"iter"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type addressItem = kvscheduler.Item[wire.Address, Index]

type addresses struct{ c *Client }

func addressDescriptor(c *Client) kvscheduler.Descriptor[wire.Address, Index] {
	return kvscheduler.Descriptor[wire.Address, Index]{
		Name: wire.KindAddress, Lane: Lane,
		Equal:    func(want, have wire.Address) bool { return want == have },
		Validate: validateAddress,
		Deps: func(_ string, v wire.Address) []kvscheduler.Dep {
			return []kvscheduler.Dep{
				{Label: "interface", On: ref(wire.KindInterface, v.Interface)},
				{Label: "VRF of the interface", On: ref(wire.KindInterfaceVRF, wire.InterfaceVRFName(v.Interface, wire.FamilyOf(v.Prefix.Addr())))},
			}
		},
		Recreate: func(have, want wire.Address) bool { return true },
		Bucket:   func(_ string, v wire.Address) string { return v.Interface },
		After:    []string{wire.KindInterface},
		Backend:  addresses{c},
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

// Create adds the addresses. What the dataplane refuses because it is there is looked for.
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
	r := dumpAddresses(it.NewMeta, wire.FamilyOf(it.Want.Prefix.Addr()))
	b.c.exchange(ctx, r)
	for _, d := range listOf[*ip.IPAddressDetails](r) {
		if r.fault() == nil && interfacePrefix(d.Prefix) == it.Want.Prefix {
			return true
		}
	}
	return false
}

// Update is never called: every difference recreates.
func (b addresses) Update(_ context.Context, batch []addressItem) { refuseUpdates(batch) }

// Delete takes the addresses away; a link-local one makes room for that of the MAC.
func (b addresses) Delete(ctx context.Context, batch []addressItem) {
	macs := b.macs(ctx, batch)
	each(ctx, b.c, batch, func(it *addressItem) *request {
		r := addDelAddress(it.Have, it.Meta, false)
		if isLinkLocal(it.Have.Prefix) {
			r = setLinkLocal(it.Have.Interface, it.Meta, linkLocalOf(macs[it.Meta]).As16())
		}
		return r.fineIf(api.INVALID_SW_IF_INDEX, api.ADDRESS_NOT_FOUND_FOR_INTERFACE, api.INVALID_INTERFACE, api.IP6_NOT_ENABLED)
	})
}

// macs are those of the interfaces that lose their link-local address: they get the one back that the MAC makes, since
// there is no message to take it away.
func (b addresses) macs(ctx context.Context, batch []addressItem) map[Index]wire.MAC {
	var requests []*request
	for i := range batch {
		if isLinkLocal(batch[i].Have.Prefix) {
			requests = append(requests, askAll(&interfaces.SwInterfaceDump{SwIfIndex: batch[i].Meta.api()}, &interfaces.SwInterfaceDetails{}))
		}
	}
	b.c.exchange(ctx, requests...)
	macs := map[Index]wire.MAC{}
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
	verb := "delete"
	if add {
		verb = "add"
	}
	return ask(fmt.Sprintf("sw_interface_add_del_address: %s %s on %s", verb, v.Prefix, v.Interface), &interfaces.SwInterfaceAddDelAddress{
		SwIfIndex: i.api(), IsAdd: add, Prefix: ip_types.AddressWithPrefix(apiPrefix(v.Prefix)),
	}, &interfaces.SwInterfaceAddDelAddressReply{})
}

func setLinkLocal(name string, i Index, a ip_types.IP6Address) *request {
	return ask(fmt.Sprintf("sw_interface_ip6_set_link_local_address %s on %s", a, name), &ip.SwInterfaceIP6SetLinkLocalAddress{
		SwIfIndex: i.api(), IP: a,
	}, &ip.SwInterfaceIP6SetLinkLocalAddressReply{})
}

func dumpAddresses(i Index, f wire.Family) *request {
	return askAll(&ip.IPAddressDump{SwIfIndex: i.api(), IsIPv6: f == wire.IP6}, &ip.IPAddressDetails{})
}

// Dump lists the addresses of our interfaces.
func (b addresses) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Address, Index], error] {
	return b.Read(ctx, view, nil)
}

// Read is Dump for the interfaces of the named objects.
func (b addresses) Read(ctx context.Context, _ kvscheduler.View, names []string) iter.Seq2[kvscheduler.Actual[wire.Address, Index], error] {
	p, err := b.c.ports(ctx)
	if err != nil {
		return yieldAll[wire.Address, Index](nil, err)
	}
	return yieldAll(b.read(ctx, p, names))
}

func (b addresses) read(ctx context.Context, p *ports, names []string) ([]kvscheduler.Actual[wire.Address, Index], error) {
	borrowings, err := b.c.borrowings(ctx)
	if err != nil {
		return nil, err
	}
	var requests []*request
	var owners []string
	for name, i := range p.named(names) {
		linkLocal := ask("sw_interface_ip6_get_link_local_address "+name,
			&ip.SwInterfaceIP6GetLinkLocalAddress{SwIfIndex: i.api()}, &ip.SwInterfaceIP6GetLinkLocalAddressReply{})
		requests, owners = append(requests, linkLocal), append(owners, name)
		if _, borrows := borrowings[i]; !borrows { // what it has is the donor's
			requests = append(requests, dumpAddresses(i, wire.IP4), dumpAddresses(i, wire.IP6))
			owners = append(owners, name, name)
		}
	}
	b.c.exchange(ctx, requests...)
	var found []kvscheduler.Actual[wire.Address, Index]
	for i, r := range requests {
		// A refusal means that the interface went away meanwhile, or has no IPv6.
		if err := r.fault(); err != nil && (r.err != nil || r.dump) {
			return nil, err
		}
		d := p.byName[owners[i]]
		for _, prefix := range prefixesOf(r, linkLocalOf(mac(d))) {
			v := wire.Address{Interface: owners[i], Prefix: prefix}
			found = append(found, kvscheduler.Actual[wire.Address, Index]{Name: wire.AddressName(v.Interface, prefix), V: v, Meta: Index(d.SwIfIndex)})
		}
	}
	return found, nil
}
