package vpp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/codec"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// ACLIndex is the dataplane's number of an IP ACL. MACIP ACLs have numbers of their own.
type ACLIndex uint32

// noACLIndex requests a new ACL, or all ACLs in a dump.
const noACLIndex = ^ACLIndex(0)

const maxProtocol = 255

type aclItem = kvscheduler.Item[wire.ACL, ACLIndex]

type acls struct{ c *Client }

func aclDescriptor(c *Client) kvscheduler.Descriptor[wire.ACL, ACLIndex] {
	return kvscheduler.Descriptor[wire.ACL, ACLIndex]{
		Name: wire.KindACL, Lane: Lane,
		Equal:    sameACL,
		Validate: validateACL,
		Hash:     aclHash,
		Backend:  acls{c},
	}
}

// sameACL compares the rules as the dataplane has them, each for one protocol.
func sameACL(want, have wire.ACL) bool {
	return want.Label == have.Label && sameEntries(want.Rules, have.Rules)
}

func validateACL(name string, v wire.ACL) error {
	switch {
	case name != v.Label:
		return fmt.Errorf("the name is the label, %s", v.Label)
	case name == "" || len(name) > maxName:
		return fmt.Errorf("label %q does not fit into a tag: it has 1 to %d bytes", name, maxName)
	case len(v.Rules) == 0:
		return errors.New("no rules: all packets would be dropped")
	}
	for n, r := range v.Rules {
		if err := validateACLRule(r); err != nil {
			return fmt.Errorf("rule %d: %w", n, err)
		}
	}
	if n := countEntries(v.Rules); n > maxACLRules {
		return fmt.Errorf("%d rules do not fit into a message: at most %d", n, maxACLRules)
	}
	return nil
}

// maxACLRules is the number of rules of 48 bytes that fit into a message for sure: see maxMessage.
const maxACLRules = 80_000

func validateACLRule(r wire.ACLRule) error {
	if r.Family != netaddr.IP4 && r.Family != netaddr.IP6 {
		return fmt.Errorf("unknown family %q", r.Family)
	}
	for _, p := range slices.Concat(r.From, r.To) {
		if p != p.Masked() || netaddr.FamilyOf(p.Addr()) != r.Family {
			return fmt.Errorf("prefix %s is not masked or not of family %s", p, r.Family)
		}
	}
	if r.Reflect && !r.Permit {
		return errors.New("a rule that denies opens no session")
	}
	for _, p := range r.Ports {
		if err := validateACLPorts(p); err != nil {
			return err
		}
	}
	return nil
}

func validateACLPorts(p wire.ACLPorts) error {
	if p.Protocols.First == 0 || p.Protocols.Last > maxProtocol {
		return fmt.Errorf("protocols %d to %d are not in the range 1 to %d", p.Protocols.First, p.Protocols.Last,
			maxProtocol)
	}
	for _, x := range []wire.Range{p.Protocols, p.Sources, p.Destinations} {
		if x.First > x.Last {
			return fmt.Errorf("range %d to %d is empty", x.First, x.Last)
		}
	}
	return nil
}

func aclHash(v wire.ACL) uint64 { return folded(hashEntries(v.Rules)) }

// Create creates ACLs, or replaces existing ones with our tags.
func (b acls) Create(ctx context.Context, batch []aclItem) {
	there, err := b.tags(ctx, []*request{dumpACLTags(noACLIndex)})
	if unread(batch, err) {
		return
	}
	for i := range batch {
		it := &batch[i]
		it.NewMeta = noACLIndex
		for _, a := range there {
			if a.name == it.Name {
				it.NewMeta = a.index
			}
		}
	}
	b.Update(ctx, batch)
}

// Update replaces the rules at once, also for the interfaces that have the ACL.
func (b acls) Update(ctx context.Context, batch []aclItem) {
	requests := newRequests(batch, func(it *aclItem) *request { return setACL(it.Want, it.NewMeta) })
	b.c.exchange(ctx, requests...)
	for i, r := range requests {
		if batch[i].Err = r.fault(); batch[i].Err == nil {
			batch[i].NewMeta = ACLIndex(r.reply.(*acl.ACLAddReplaceReply).ACLIndex)
		}
	}
}

func (b acls) Delete(ctx context.Context, batch []aclItem) {
	removal[wire.ACL, ACLIndex, *acl.ACLDetails]{
		b.c, dumpACLs, func(d *acl.ACLDetails) string { return d.Tag }, removeACL,
	}.of(ctx, batch)
}

// removal removes objects by their index. It checks the tag first: a restarted dataplane may use the index for another
// object.
type removal[V any, M ~uint32, D api.Message] struct {
	c      *Client
	dump   func(M) *request // of one object
	tag    func(D) string
	remove func(name string, index M) *request
}

func (r removal[V, M, D]) of(ctx context.Context, batch []kvscheduler.Item[V, M]) {
	dumps := newRequests(batch, func(it *kvscheduler.Item[V, M]) *request { return r.dump(it.Meta) })
	r.c.exchange(ctx, dumps...)
	var s steps
	for i, found := range dumps {
		it := &batch[i]
		if err := found.fault(); err != nil {
			it.Err = kvscheduler.Refused(err)
			continue
		}
		for _, d := range listOf[D](found) {
			if name := ownerOf(r.tag(d)); name == it.Name || duplicate(name, Index(it.Meta)) == it.Name {
				s.add(i, r.remove(it.Name, it.Meta))
			}
		}
	}
	take(ctx, r.c, &s, batch)
}

func setACL(v wire.ACL, index ACLIndex) *request {
	m := &acl.ACLAddReplace{
		ACLIndex: uint32(index),
		Tag:      newTag(v.Label, aclHash(v)),
		R:        make([]acl_types.ACLRule, 0, countEntries(v.Rules)),
	}
	for e := range entries(v.Rules) {
		m.R = append(m.R, apiACLRule(e))
	}
	m.Count = uint32(len(m.R))
	return ask(fmt.Sprintf("acl_add_replace of %s: %d rules", v.Label, len(m.R)), m, &acl.ACLAddReplaceReply{})
}

func removeACL(name string, index ACLIndex) *request {
	return ask(fmt.Sprintf("acl_del %d of %s", index, name), &acl.ACLDel{ACLIndex: uint32(index)},
		&acl.ACLDelReply{}).fineIf(api.NO_SUCH_ENTRY)
}

func dumpACLs(index ACLIndex) *request {
	return askAll(&acl.ACLDump{ACLIndex: uint32(index)}, &acl.ACLDetails{})
}

func (b acls) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.ACL, ACLIndex], error] {
	return yieldAll(b.list(ctx, []*request{dumpACLs(noACLIndex)}))
}

// Read reads the ACLs by their indices, with which the last operation left them. If an index belongs to another ACL
// now, it reads all: the dataplane may have been restarted.
func (b acls) Read(
	ctx context.Context, view kvscheduler.View, names []string,
) iter.Seq2[kvscheduler.Actual[wire.ACL, ACLIndex], error] {
	requests := make([]*request, 0, len(names))
	for _, name := range names {
		_, meta, isApplied := view.Applied(ref(wire.KindACL, name))
		if index, has := meta.(ACLIndex); isApplied && has {
			requests = append(requests, dumpACLs(index))
		}
	}
	found, err := b.list(ctx, requests)
	isNamed := func(a kvscheduler.Actual[wire.ACL, ACLIndex]) bool { return slices.Contains(names, a.Name) }
	if err == nil && (len(found) < len(names) || !all(found, isNamed)) {
		return b.Dump(ctx, view)
	}
	return yieldAll(found, err)
}

func all[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(item T) bool { return !is(item) })
}

// list lists our ACLs in the answers to dumps. Of two with one tag the first is the object.
func (b acls) list(ctx context.Context, dumps []*request) ([]kvscheduler.Actual[wire.ACL, ACLIndex], error) {
	if err := b.c.exchangeAll(ctx, dumps); err != nil {
		return nil, err
	}
	names := unique{}
	var found []kvscheduler.Actual[wire.ACL, ACLIndex]
	for _, dump := range dumps {
		for _, d := range listOf[*acl.ACLDetails](dump) {
			label, hash, ours := parseTag(d.Tag)
			if !ours {
				continue
			}
			found = append(found, kvscheduler.Actual[wire.ACL, ACLIndex]{
				Name: names.add(label, Index(d.ACLIndex)),
				V:    wire.ACL{Label: label, Rules: aclRulesOf(d.R)},
				Meta: ACLIndex(d.ACLIndex),
				Hash: hash, HasHash: true,
			})
		}
	}
	return found, nil
}

// aclTag is one of our ACLs without its rules.
type aclTag struct {
	name  string
	index ACLIndex
}

// tags lists our ACLs in the answers to dumps.
func (b acls) tags(ctx context.Context, dumps []*request) ([]aclTag, error) {
	if err := b.c.exchangeAll(ctx, dumps); err != nil {
		return nil, err
	}
	names := unique{}
	var found []aclTag
	for _, dump := range dumps {
		for _, d := range listOf[*aclTagDetails](dump) {
			if label, _, ours := parseTag(d.Tag); ours {
				found = append(found, aclTag{names.add(label, Index(d.ACLIndex)), ACLIndex(d.ACLIndex)})
			}
		}
	}
	return found, nil
}

// dumpTagsOf returns the requests for the ACLs in the lists of some interfaces, or for all ACLs. The dataplane sends
// their rules, too, so ACLs of other interfaces are not requested without need.
func dumpTagsOf(
	lists []*acl.ACLInterfaceListDetails, isForAll bool, isWanted func(*acl.ACLInterfaceListDetails) bool,
) []*request {
	if isForAll {
		return []*request{dumpACLTags(noACLIndex)}
	}
	indices := make(map[uint32]struct{})
	for _, d := range lists {
		for _, index := range d.Acls {
			if isWanted(d) {
				indices[index] = struct{}{}
			}
		}
	}
	var dumps []*request
	for _, index := range slices.Sorted(maps.Keys(indices)) {
		dumps = append(dumps, dumpACLTags(ACLIndex(index)))
	}
	return dumps
}

func dumpACLTags(index ACLIndex) *request {
	return askAll(&acl.ACLDump{ACLIndex: uint32(index)}, &aclTagDetails{})
}

// aclTagDetails are acl_details without the rules.
type aclTagDetails struct{ acl.ACLDetails }

// Unmarshal reads the fields in front of the rules.
func (d *aclTagDetails) Unmarshal(b []byte) error {
	buffer := codec.NewBuffer(b)
	d.ACLIndex = buffer.DecodeUint32()
	d.Tag = buffer.DecodeString(64)
	return nil
}

type interfaceACLItem = kvscheduler.Item[wire.InterfaceACL, Index]

// interfaceACLDescriptor describes the lists of ACLs of interfaces.
func interfaceACLDescriptor(c *Client) kvscheduler.Descriptor[wire.InterfaceACL, Index] {
	return kvscheduler.Descriptor[wire.InterfaceACL, Index]{
		Name: wire.KindInterfaceACL, Lane: Lane,
		Equal:    wire.InterfaceACL.Equal,
		Validate: validateInterfaceACL,
		Deps: func(_ string, v wire.InterfaceACL) []kvscheduler.Dep {
			deps := []kvscheduler.Dep{{Label: "interface", On: ref(wire.KindInterface, v.Interface)}}
			for _, a := range slices.Concat(v.Input, v.Output) {
				deps = append(deps, kvscheduler.Dep{Label: "ACL", On: ref(wire.KindACL, a), Swap: true})
			}
			return deps
		},
		After: []string{wire.KindInterface, wire.KindACL},
		Backend: readable[wire.InterfaceACL, Index]{simple[wire.InterfaceACL, Index]{
			c: c,
			create: func(it *interfaceACLItem) *request { // replaces any list, so an interface never lacks its ACLs
				it.NewMeta = handle[Index](it, 0)
				var list []ACLIndex
				for n := range len(it.Want.Input) + len(it.Want.Output) {
					list = append(list, handle[ACLIndex](it, 1+n))
				}
				return setACLsOf(it.Want.Interface, it.NewMeta, len(it.Want.Input), list)
			},
			delete: func(it *interfaceACLItem) *request {
				return setACLsOf(it.Have.Interface, it.Meta, 0, nil).fineIf(api.INVALID_SW_IF_INDEX)
			},
			list: interfaceACLs{c}.read,
		}},
	}
}

// maxACLsOfInterface is the maximum of the 8-bit count in acl_interface_set_acl_list.
const maxACLsOfInterface = 255

func validateInterfaceACL(name string, v wire.InterfaceACL) error {
	switch {
	case name != v.Interface:
		return fmt.Errorf("the name is that of the interface, %s", v.Interface)
	case len(v.Input)+len(v.Output) == 0 || len(v.Input)+len(v.Output) > maxACLsOfInterface:
		return fmt.Errorf("%d ACLs: an interface has 1 to %d", len(v.Input)+len(v.Output), maxACLsOfInterface)
	}
	for _, list := range [][]string{v.Input, v.Output} {
		for n, a := range list {
			if slices.Contains(list[:n], a) {
				return fmt.Errorf("ACL %s is twice in a list", a)
			}
		}
	}
	return nil
}

// filtered adds the dependency of an object by which an interface forwards packets on the ACLs of the interface.
func filtered(is bool, name string, deps []kvscheduler.Dep) []kvscheduler.Dep {
	if is {
		deps = append(deps, kvscheduler.Dep{Label: "ACL", On: ref(wire.KindInterfaceACL, name)})
	}
	return deps
}

func setACLsOf(name string, i Index, inputs int, list []ACLIndex) *request {
	m := &acl.ACLInterfaceSetACLList{SwIfIndex: i.api(), Count: uint8(len(list)), NInput: uint8(inputs)}
	for _, a := range list {
		m.Acls = append(m.Acls, uint32(a))
	}
	what := fmt.Sprintf("acl_interface_set_acl_list of %s: input %v, output %v", name, list[:inputs], list[inputs:])
	return ask(what, m, &acl.ACLInterfaceSetACLListReply{})
}

// interfaceACLs reads the lists of ACLs of interfaces.
type interfaceACLs struct{ c *Client }

func (b interfaceACLs) read(
	ctx context.Context, of []string,
) ([]kvscheduler.Actual[wire.InterfaceACL, Index], error) {
	p, err := b.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	lists := askAll(&acl.ACLInterfaceListDump{SwIfIndex: noIndex.api()}, &acl.ACLInterfaceListDetails{})
	if err := b.c.exchangeAll(ctx, []*request{lists}); err != nil {
		return nil, err
	}
	isWanted := func(d *acl.ACLInterfaceListDetails) bool {
		name, isOurs := p.byIndex[Index(d.SwIfIndex)]
		return isOurs && (len(of) == 0 || slices.Contains(of, name))
	}
	ours, err := acls(b).tags(ctx, dumpTagsOf(listOf[*acl.ACLInterfaceListDetails](lists), len(of) == 0, isWanted))
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	for _, a := range ours {
		names[uint32(a.index)] = a.name
	}
	var found []kvscheduler.Actual[wire.InterfaceACL, Index]
	for _, d := range listOf[*acl.ACLInterfaceListDetails](lists) {
		name := p.byIndex[Index(d.SwIfIndex)]
		if v, has := listsOf(name, d, names); has && isWanted(d) {
			found = append(found, kvscheduler.Actual[wire.InterfaceACL, Index]{
				Name: name,
				V:    v,
				Meta: Index(d.SwIfIndex),
			})
		}
	}
	return found, nil
}

// listsOf converts the lists of an interface. The names of foreign ACLs are invalid for desired values. listsOf returns
// false if all of them are foreign.
func listsOf(name string, d *acl.ACLInterfaceListDetails, names map[uint32]string) (v wire.InterfaceACL, has bool) {
	v.Interface = name
	for n, a := range d.Acls {
		name, ours := names[a]
		if !ours {
			name = fmt.Sprintf("#%d", a)
		}
		has = has || ours
		if n < int(d.NInput) {
			v.Input = append(v.Input, name)
		} else {
			v.Output = append(v.Output, name)
		}
	}
	return v, has
}
