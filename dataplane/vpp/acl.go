package vpp

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// ACLIndex is the dataplane's number of an IP ACL. MACIP ACLs have numbers of their own.
type ACLIndex uint32

// noACLIndex makes a new ACL, and is all ACLs in a dump.
const noACLIndex = ^ACLIndex(0)

// maxProtocol is the largest protocol number of IP.
const maxProtocol = 255

type aclItem = kvscheduler.Item[wire.ACL, ACLIndex]

// acls are IP ACLs, each with a tag.
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

// sameACL compares what the dataplane is told: it has a rule for each protocol.
func sameACL(want, have wire.ACL) bool {
	return want.Label == have.Label && slices.Equal(byProtocol(want.Rules), byProtocol(have.Rules))
}

// byProtocol replaces each rule for several protocols by one for each.
func byProtocol(rules []wire.ACLRule) []wire.ACLRule {
	var all []wire.ACLRule
	for _, r := range rules {
		for p := r.Protocols.First; p <= r.Protocols.Last; p++ {
			single := r
			single.Protocols = wire.Single(p)
			all = append(all, single)
		}
	}
	return all
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
	return nil
}

func validateACLRule(r wire.ACLRule) error {
	isAny := r.Protocols == wire.Range{}
	switch {
	case r.Family != wire.IP4 && r.Family != wire.IP6:
		return fmt.Errorf("unknown family %q", r.Family)
	case isAny && (r.Sources != wire.Range{} || r.Destinations != wire.Range{}):
		return errors.New("ports without a protocol")
	case !isAny && r.Protocols.First == 0 || r.Protocols.Last > maxProtocol:
		return fmt.Errorf("protocols %d to %d are not in the range 1 to %d", r.Protocols.First, r.Protocols.Last, maxProtocol)
	}
	for _, x := range []wire.Range{r.Protocols, r.Sources, r.Destinations} {
		if x.First > x.Last {
			return fmt.Errorf("range %d to %d is empty", x.First, x.Last)
		}
	}
	return nil
}

// aclHash sums up the rules.
func aclHash(v wire.ACL) uint64 {
	h := fnv.New64a()
	for _, r := range byProtocol(v.Rules) {
		fmt.Fprintf(h, "%v|", r)
	}
	return folded(h.Sum64())
}

// Create makes the ACLs, or replaces those that are there already.
func (b acls) Create(ctx context.Context, batch []aclItem) {
	there, err := b.c.acls(ctx)
	for i := range batch {
		it := &batch[i]
		if err != nil {
			it.Err = kvscheduler.Refused(err)
			continue
		}
		it.NewMeta = noACLIndex
		for _, a := range there {
			if a.Name == it.Name {
				it.NewMeta = a.Meta
			}
		}
	}
	if err == nil {
		b.set(ctx, batch)
	}
}

// Update replaces the rules at once, also for the interfaces that have the ACL.
func (b acls) Update(ctx context.Context, batch []aclItem) { b.set(ctx, batch) }

func (b acls) set(ctx context.Context, batch []aclItem) {
	requests := newRequests(batch, func(it *aclItem) *request { return setACL(it.Want, it.NewMeta) })
	b.c.exchange(ctx, requests...)
	for i, r := range requests {
		if batch[i].Err = r.fault(); batch[i].Err == nil {
			batch[i].NewMeta = ACLIndex(r.reply.(*acl.ACLAddReplaceReply).ACLIndex)
		}
	}
}

// Delete removes the ACLs from the dataplane.
func (b acls) Delete(ctx context.Context, batch []aclItem) {
	removal[wire.ACL, ACLIndex, *acl.ACLDetails]{dumpACLs, func(d *acl.ACLDetails) string { return d.Tag }, removeACL}.of(ctx, b.c, batch)
}

// removal removes objects by their index. It checks the tag first: a restarted dataplane may use the index for another object.
type removal[V any, M ~uint32, D api.Message] struct {
	dump   func(M) *request // of one object
	tag    func(D) string
	remove func(name string, index M) *request
}

// of removes each object of the batch whose index still has the object's tag.
func (r removal[V, M, D]) of(ctx context.Context, c *Client, batch []kvscheduler.Item[V, M]) {
	dumps := newRequests(batch, func(it *kvscheduler.Item[V, M]) *request { return r.dump(it.Meta) })
	c.exchange(ctx, dumps...)
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
	take(ctx, c, &s, batch)
}

func setACL(v wire.ACL, index ACLIndex) *request {
	m := &acl.ACLAddReplace{ACLIndex: uint32(index), Tag: newTag(v.Label, aclHash(v))}
	for _, r := range byProtocol(v.Rules) {
		m.R = append(m.R, apiACLRule(r))
	}
	m.Count = uint32(len(m.R))
	return ask(fmt.Sprintf("acl_add_replace of %s: %d rules", v.Label, len(m.R)), m, &acl.ACLAddReplaceReply{})
}

func removeACL(name string, index ACLIndex) *request {
	return ask(fmt.Sprintf("acl_del %d of %s", index, name), &acl.ACLDel{ACLIndex: uint32(index)}, &acl.ACLDelReply{}).fineIf(api.NO_SUCH_ENTRY)
}

func dumpACLs(index ACLIndex) *request {
	return askAll(&acl.ACLDump{ACLIndex: uint32(index)}, &acl.ACLDetails{})
}

// everywhere is the prefix of all addresses of a family.
var everywhere = map[wire.Family]netip.Prefix{
	wire.IP4: netip.PrefixFrom(netip.IPv4Unspecified(), 0), wire.IP6: netip.PrefixFrom(netip.IPv6Unspecified(), 0),
}

// apiACLRule writes a rule for one protocol, or for any.
func apiACLRule(r wire.ACLRule) acl_types.ACLRule {
	all := apiPrefix(everywhere[r.Family])
	rule := acl_types.ACLRule{
		SrcPrefix: all, DstPrefix: all, Proto: ip_types.IPProto(r.Protocols.First),
		SrcportOrIcmptypeFirst: r.Sources.First, SrcportOrIcmptypeLast: r.Sources.Last,
		DstportOrIcmpcodeFirst: r.Destinations.First, DstportOrIcmpcodeLast: r.Destinations.Last,
	}
	if r.Permit {
		rule.IsPermit = acl_types.ACL_ACTION_API_PERMIT
	}
	return rule
}

// aclRule reads a rule. One that apiACLRule would not write is zero, which no valid ACL has.
func aclRule(d acl_types.ACLRule) wire.ACLRule {
	r := wire.ACLRule{
		Permit: d.IsPermit == acl_types.ACL_ACTION_API_PERMIT, Family: wire.FamilyOf(prefix(d.SrcPrefix).Addr()), Protocols: wire.Single(uint16(d.Proto)),
		Sources:      wire.Range{First: d.SrcportOrIcmptypeFirst, Last: d.SrcportOrIcmptypeLast},
		Destinations: wire.Range{First: d.DstportOrIcmpcodeFirst, Last: d.DstportOrIcmpcodeLast},
	}
	if apiACLRule(r) != d {
		return wire.ACLRule{}
	}
	return r
}

// Dump lists the ACLs with our tags, with and without interfaces that have them.
func (b acls) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.ACL, ACLIndex], error] {
	found, err := b.c.acls(ctx)
	return yieldAll(found, err)
}

// acls lists our ACLs. Of two with one tag the first is the object.
func (c *Client) acls(ctx context.Context) ([]kvscheduler.Actual[wire.ACL, ACLIndex], error) {
	all := dumpACLs(noACLIndex)
	if err := c.exchangeAll(ctx, []*request{all}); err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	var found []kvscheduler.Actual[wire.ACL, ACLIndex]
	for _, d := range listOf[*acl.ACLDetails](all) {
		label, hash, ours := parseTag(d.Tag)
		if !ours {
			continue
		}
		name := label
		if taken[name] {
			name = duplicate(name, Index(d.ACLIndex))
		}
		taken[name] = true
		v := wire.ACL{Label: label}
		for _, r := range d.R {
			v.Rules = append(v.Rules, aclRule(r))
		}
		found = append(found, kvscheduler.Actual[wire.ACL, ACLIndex]{Name: name, V: v, Meta: ACLIndex(d.ACLIndex), Hash: hash, HasHash: true})
	}
	return found, nil
}

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
