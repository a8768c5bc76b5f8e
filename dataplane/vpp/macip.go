package vpp

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// ACL is the dataplane's number of a MACIP ACL.
type ACL uint32

// noACL requests a new list, or all lists in a dump.
const noACL = ^ACL(0)

// allOctets is the mask under which a MAC is compared as a whole.
var allOctets = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

type macipItem = kvscheduler.Item[wire.MACIP, ACL]

// macips are lists of the sources that an interface may send from. Each interface has a list of its own, with a tag.
type macips struct{ c *Client }

func macipDescriptor(c *Client) kvscheduler.Descriptor[wire.MACIP, ACL] {
	return kvscheduler.Descriptor[wire.MACIP, ACL]{
		Name: wire.KindMACIP, Lane: Lane,
		Equal:    wire.MACIP.Equal,
		Validate: validateMACIP,
		Deps: func(_ string, v wire.MACIP) []kvscheduler.Dep {
			return []kvscheduler.Dep{{Label: "interface", On: ref(wire.KindInterface, v.Interface)}}
		},
		Recreate: func(have, want wire.MACIP) bool { return have.Interface != want.Interface },
		Hash:     macipHash,
		After:    []string{wire.KindInterface},
		Backend:  macips{c},
	}
}

// withSourceRules adds the source rules of an anti-spoofed interface to dependencies, so that no packet enters before
// the rules exist.
func withSourceRules(is bool, name string, deps ...kvscheduler.Dep) []kvscheduler.Dep {
	if is {
		deps = append(deps, kvscheduler.Dep{Label: "source rules", On: ref(wire.KindMACIP, name)})
	}
	return deps
}

func validateMACIP(name string, v wire.MACIP) error {
	switch {
	case name != v.Interface:
		return fmt.Errorf("the name is that of the interface, %s", v.Interface)
	case len(v.Rules) == 0:
		return fmt.Errorf("no rules: nothing at all could be sent by %s", v.Interface)
	}
	for _, r := range v.Rules {
		switch {
		case !r.MAC.IsUnicast():
			return fmt.Errorf("MAC %q is not that of one interface", r.MAC)
		case !r.Source.IsValid() || r.Source != r.Source.Masked():
			return fmt.Errorf("source %s is not masked", r.Source)
		}
	}
	return nil
}

func macipHash(v wire.MACIP) uint64 {
	h := fnv.New64a()
	for _, r := range v.Rules {
		fmt.Fprintf(h, "%s|%s|", r.MAC, r.Source)
	}
	return folded(h.Sum64())
}

// Create creates the lists, or replaces the applied ones, then applies new lists, then deletes those that it could not
// apply.
func (b macips) Create(ctx context.Context, batch []macipItem) {
	ports := make([]Index, len(batch))
	for i := range batch {
		ports[i] = handle[Index](&batch[i], 0)
	}
	there, err := b.applied(ctx, ports)
	if unread(batch, err) {
		return
	}
	var lists, applications steps
	for i := range batch {
		it := &batch[i]
		it.NewMeta = noACL
		if d := there[ports[i]]; d != nil && ownerOf(d.Tag) == it.Name {
			it.NewMeta = ACL(d.ACLIndex)
		}
		lists.add(i, setList(it.Want, it.NewMeta))
	}
	take(ctx, b.c, &lists, batch)
	for n, i := range lists.items {
		if it := &batch[i]; it.Err == nil && it.NewMeta == noACL {
			it.NewMeta = ACL(lists.requests[n].reply.(*acl.MacipACLAddReplaceReply).ACLIndex)
			applications.add(i, applyList(it.Want, it.NewMeta, ports[i]))
		}
	}
	take(ctx, b.c, &applications, batch)
	for _, i := range applications.items {
		if it := &batch[i]; it.Err != nil {
			undo(ctx, b.c, it, removeList(it.Name, it.NewMeta))
		}
	}
}

// Update replaces the rules atomically.
func (b macips) Update(ctx context.Context, batch []macipItem) { b.Create(ctx, batch) }

// Delete removes the lists, also from their interfaces.
func (b macips) Delete(ctx context.Context, batch []macipItem) {
	removal[wire.MACIP, ACL, *acl.MacipACLDetails]{
		b.c, dumpLists, func(d *acl.MacipACLDetails) string { return d.Tag }, removeList,
	}.of(ctx, batch)
}

func setList(v wire.MACIP, list ACL) *request {
	m := &acl.MacipACLAddReplace{
		ACLIndex: uint32(list),
		Tag:      newTag(v.Interface, macipHash(v)),
		Count:    uint32(len(v.Rules)),
	}
	for _, r := range v.Rules {
		m.R = append(m.R, acl_types.MacipACLRule{
			IsPermit:   acl_types.ACL_ACTION_API_PERMIT,
			SrcMac:     [6]byte(r.MAC),
			SrcMacMask: allOctets,
			SrcPrefix:  apiPrefix(r.Source),
		})
	}
	return ask(fmt.Sprintf("macip_acl_add_replace of %s: %d rules", v.Interface, len(v.Rules)), m,
		&acl.MacipACLAddReplaceReply{})
}

func applyList(v wire.MACIP, list ACL, i Index) *request {
	return ask(fmt.Sprintf("macip_acl_interface_add_del: %d on %s", list, v.Interface), &acl.MacipACLInterfaceAddDel{
		IsAdd: true, SwIfIndex: i.api(), ACLIndex: uint32(list),
	}, &acl.MacipACLInterfaceAddDelReply{})
}

func removeList(name string, list ACL) *request {
	return ask(fmt.Sprintf("macip_acl_del %d of %s", list, name), &acl.MacipACLDel{ACLIndex: uint32(list)},
		&acl.MacipACLDelReply{}).
		fineIf(api.NO_SUCH_ENTRY)
}

func dumpLists(list ACL) *request {
	return askAll(&acl.MacipACLDump{ACLIndex: uint32(list)}, &acl.MacipACLDetails{})
}

// ownerOf is the name in a tag; "" in a foreign tag.
func ownerOf(tag string) string {
	name, _, _ := parseTag(tag)
	return name
}

// applied returns the lists of these interfaces. It reads only those, because a node has one for each pod.
func (b macips) applied(ctx context.Context, ports []Index) (map[Index]*acl.MacipACLDetails, error) {
	looks := make([]*request, len(ports))
	for i, port := range ports {
		looks[i] = askAll(&acl.MacipACLInterfaceListDump{SwIfIndex: port.api()}, &acl.MacipACLInterfaceListDetails{})
	}
	if err := b.c.exchangeAll(ctx, looks); err != nil {
		return nil, err
	}
	var lists []*request
	var filtered []Index
	for _, look := range looks {
		for _, d := range listOf[*acl.MacipACLInterfaceListDetails](look) {
			for _, list := range d.Acls {
				lists = append(lists, dumpLists(ACL(list)))
				filtered = append(filtered, Index(d.SwIfIndex))
			}
		}
	}
	if err := b.c.exchangeAll(ctx, lists); err != nil {
		return nil, err
	}
	found := map[Index]*acl.MacipACLDetails{}
	for n, r := range lists {
		for _, d := range listOf[*acl.MacipACLDetails](r) {
			found[filtered[n]] = d
		}
	}
	return found, nil
}

func (b macips) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.MACIP, ACL], error] {
	return yieldAll(b.dump(ctx))
}

func (b macips) dump(ctx context.Context) ([]kvscheduler.Actual[wire.MACIP, ACL], error) {
	p, err := b.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	lists := dumpLists(noACL)
	applied := askAll(&acl.MacipACLInterfaceListDump{SwIfIndex: noIndex.api()}, &acl.MacipACLInterfaceListDetails{})
	if err := b.c.exchangeAll(ctx, []*request{lists, applied}); err != nil {
		return nil, err
	}
	filtered := map[ACL][]string{}
	for _, d := range listOf[*acl.MacipACLInterfaceListDetails](applied) {
		for _, list := range d.Acls {
			filtered[ACL(list)] = append(filtered[ACL(list)], p.byIndex.of(Index(d.SwIfIndex)))
		}
	}
	return actualLists(listOf[*acl.MacipACLDetails](lists), filtered), nil
}

// actualLists converts our lists. If two have the same tag, the applied one is the object. filtered are the interfaces
// of each list.
func actualLists(lists []*acl.MacipACLDetails, filtered map[ACL][]string) []kvscheduler.Actual[wire.MACIP, ACL] {
	isApplied := func(d *acl.MacipACLDetails) bool { return slices.Contains(filtered[ACL(d.ACLIndex)], ownerOf(d.Tag)) }
	first := slices.DeleteFunc(slices.Clone(lists), func(d *acl.MacipACLDetails) bool { return !isApplied(d) })
	rest := slices.DeleteFunc(lists, isApplied)
	names := unique{}
	var found []kvscheduler.Actual[wire.MACIP, ACL]
	for _, d := range append(first, rest...) {
		name, hash, ours := parseTag(d.Tag)
		if !ours {
			continue
		}
		v := wire.MACIP{Rules: rulesOf(d)}
		if isApplied(d) {
			v.Interface = name
		}
		found = append(found, kvscheduler.Actual[wire.MACIP, ACL]{
			Name: names.add(name, Index(d.ACLIndex)), V: v, Meta: ACL(d.ACLIndex), Hash: hash, HasHash: true,
		})
	}
	return found
}

// rulesOf returns the rules of a list. A rule that Weft would not write has no source.
func rulesOf(d *acl.MacipACLDetails) []wire.MACIPRule {
	rules := make([]wire.MACIPRule, len(d.R))
	for i, r := range d.R {
		if r.IsPermit == acl_types.ACL_ACTION_API_PERMIT && r.SrcMacMask == allOctets {
			rules[i] = wire.MACIPRule{MAC: netaddr.MAC(r.SrcMac), Source: prefix(r.SrcPrefix)}
		}
	}
	return rules
}
