package vpp

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Borrowing is what is remembered of an applied unnumbered interface: the numbers of the two.
type Borrowing struct {
	Borrower Index
	Donor    Index
}

type unnumberedItem = kvscheduler.Item[wire.Unnumbered, Borrowing]

type unnumbereds struct{ c *Client }

func unnumberedDescriptor(c *Client) kvscheduler.Descriptor[wire.Unnumbered, Borrowing] {
	return kvscheduler.Descriptor[wire.Unnumbered, Borrowing]{
		Name: wire.KindUnnumbered, Lane: Lane,
		Equal:    func(want, have wire.Unnumbered) bool { return want == have },
		Validate: validateUnnumbered,
		Deps:     unnumberedDeps,
		Recreate: func(have, want wire.Unnumbered) bool { return true },
		// The families only say what must be there before; the dataplane does not know them.
		Merge: func(dumped, last wire.Unnumbered) wire.Unnumbered {
			dumped.IP4, dumped.IP6 = last.IP4, last.IP6
			return dumped
		},
		After:   []string{wire.KindInterface, wire.KindAddress},
		Backend: unnumbereds{c},
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
		if family == wire.IP4 && v.IP4 || family == wire.IP6 && v.IP6 {
			isOf := func(_ string, a any) bool { return wire.FamilyOf(a.(wire.Address).Prefix.Addr()) == family }
			deps = append(deps,
				kvscheduler.Dep{Label: "address of the donor", Any: &kvscheduler.Select{Kind: wire.KindAddress, Bucket: v.Donor, Match: isOf}},
				kvscheduler.Dep{Label: "VRF of the interface", On: ref(wire.KindInterfaceVRF, wire.InterfaceVRFName(v.Interface, family))})
		}
	}
	return deps
}

// Create lets the interfaces borrow.
func (b unnumbereds) Create(ctx context.Context, batch []unnumberedItem) {
	each(ctx, b.c, batch, func(it *unnumberedItem) *request {
		it.NewMeta = Borrowing{Borrower: handle[Index](it, 0), Donor: handle[Index](it, 1)}
		return setUnnumbered(it.Want, it.NewMeta, true)
	})
}

// Update is never called: every difference recreates.
func (b unnumbereds) Update(_ context.Context, batch []unnumberedItem) { refuseUpdates(batch) }

// Delete ends the borrowing.
func (b unnumbereds) Delete(ctx context.Context, batch []unnumberedItem) {
	each(ctx, b.c, batch, func(it *unnumberedItem) *request {
		return setUnnumbered(it.Have, it.Meta, false).fineIf(api.INVALID_SW_IF_INDEX, api.INVALID_SW_IF_INDEX_2, api.NO_SUCH_ENTRY)
	})
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

// Dump lists our interfaces that borrow.
func (b unnumbereds) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Unnumbered, Borrowing], error] {
	return yieldAll(b.dump(ctx))
}

func (b unnumbereds) dump(ctx context.Context) ([]kvscheduler.Actual[wire.Unnumbered, Borrowing], error) {
	p, err := b.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	borrowings, err := b.c.borrowings(ctx)
	if err != nil {
		return nil, err
	}
	var found []kvscheduler.Actual[wire.Unnumbered, Borrowing]
	for _, m := range borrowings {
		if name, ours := p.byIndex[m.Borrower]; ours {
			// VPP does not say which families are meant. It moves no interface that borrows into another table, so that the
			// deletion of an unknown one precedes that of both memberships.
			v := wire.Unnumbered{Interface: name, Donor: p.nameOf(m.Donor), IP4: true, IP6: true}
			found = append(found, kvscheduler.Actual[wire.Unnumbered, Borrowing]{Name: name, V: v, Meta: m})
		}
	}
	return found, nil
}

// borrowings are all unnumbered interfaces by borrower.
func (c *Client) borrowings(ctx context.Context) (map[Index]Borrowing, error) {
	r := askAll(&ip.IPUnnumberedDump{SwIfIndex: noIndex.api()}, &ip.IPUnnumberedDetails{})
	if err := c.exchangeAll(ctx, []*request{r}); err != nil {
		return nil, err
	}
	found := map[Index]Borrowing{}
	for _, d := range listOf[*ip.IPUnnumberedDetails](r) {
		found[Index(d.SwIfIndex)] = Borrowing{Borrower: Index(d.SwIfIndex), Donor: Index(d.IPSwIfIndex)}
	}
	return found, nil
}
