package vpp

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type interfaceACLItem = kvscheduler.Item[wire.InterfaceACL, Index]

// interfaceACLs are the lists of ACLs of interfaces. Ours have one ACL, for received packets.
type interfaceACLs struct{ c *Client }

func interfaceACLDescriptor(c *Client) kvscheduler.Descriptor[wire.InterfaceACL, Index] {
	return kvscheduler.Descriptor[wire.InterfaceACL, Index]{
		Name: wire.KindInterfaceACL, Lane: Lane,
		Equal:    func(want, have wire.InterfaceACL) bool { return want == have },
		Validate: validateInterfaceACL,
		Deps: func(_ string, v wire.InterfaceACL) []kvscheduler.Dep {
			return []kvscheduler.Dep{
				{Label: "interface", On: ref(wire.KindInterface, v.Interface)},
				{Label: "ACL", On: ref(wire.KindACL, v.ACL)},
			}
		},
		After:   []string{wire.KindInterface, wire.KindACL},
		Backend: interfaceACLs{c},
	}
}

func validateInterfaceACL(name string, v wire.InterfaceACL) error {
	if name != v.Interface {
		return fmt.Errorf("the name is that of the interface, %s", v.Interface)
	}
	return nil
}

// Create sets the lists, whatever they were.
func (b interfaceACLs) Create(ctx context.Context, batch []interfaceACLItem) {
	each(ctx, b.c, batch, func(it *interfaceACLItem) *request {
		it.NewMeta = handle[Index](it, 0)
		return setACLsOf(it.Want.Interface, it.NewMeta, handle[ACLIndex](it, 1))
	})
}

// Update sets the lists: at no time an interface has none.
func (b interfaceACLs) Update(ctx context.Context, batch []interfaceACLItem) { b.Create(ctx, batch) }

// Delete empties the lists.
func (b interfaceACLs) Delete(ctx context.Context, batch []interfaceACLItem) {
	each(ctx, b.c, batch, func(it *interfaceACLItem) *request {
		return setACLsOf(it.Have.Interface, it.Meta).fineIf(api.INVALID_SW_IF_INDEX)
	})
}

func setACLsOf(name string, i Index, list ...ACLIndex) *request {
	m := &acl.ACLInterfaceSetACLList{SwIfIndex: i.api(), Count: uint8(len(list)), NInput: uint8(len(list))}
	for _, a := range list {
		m.Acls = append(m.Acls, uint32(a))
	}
	return ask(fmt.Sprintf("acl_interface_set_acl_list of %s: %v", name, list), m, &acl.ACLInterfaceSetACLListReply{})
}

// Dump lists our interfaces that have an ACL of ours.
func (b interfaceACLs) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.InterfaceACL, Index], error] {
	return yieldAll(b.dump(ctx))
}

func (b interfaceACLs) dump(ctx context.Context) ([]kvscheduler.Actual[wire.InterfaceACL, Index], error) {
	p, err := b.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	ours, err := b.c.acls(ctx)
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	for _, a := range ours {
		names[uint32(a.Meta)] = a.Name
	}
	lists := askAll(&acl.ACLInterfaceListDump{SwIfIndex: noIndex.api()}, &acl.ACLInterfaceListDetails{})
	if err := b.c.exchangeAll(ctx, []*request{lists}); err != nil {
		return nil, err
	}
	var found []kvscheduler.Actual[wire.InterfaceACL, Index]
	for _, d := range listOf[*acl.ACLInterfaceListDetails](lists) {
		name, isOurs := p.byIndex[Index(d.SwIfIndex)]
		list, has := listName(d, names)
		if isOurs && has {
			found = append(found, kvscheduler.Actual[wire.InterfaceACL, Index]{
				Name: name, V: wire.InterfaceACL{Interface: name, ACL: list}, Meta: Index(d.SwIfIndex),
			})
		}
	}
	return found, nil
}

// listName names the ACLs of an interface in a form that is an ACL's name only if it is the one ACL, for received packets. It returns
// false if none of them is ours.
func listName(d *acl.ACLInterfaceListDetails, names map[uint32]string) (string, bool) {
	var list []string
	has := false
	for n, a := range d.Acls {
		name, ours := names[a]
		if !ours {
			name = fmt.Sprintf("#%d", a)
		}
		if n >= int(d.NInput) {
			name += " (output)"
		}
		has = has || ours
		list = append(list, name)
	}
	return strings.Join(list, ", "), has
}
