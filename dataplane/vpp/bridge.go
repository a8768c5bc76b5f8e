package vpp

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/l2"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Domain is the dataplane's number of a bridge domain.
type Domain uint32

const noDomain = ^Domain(0)

// bridgePrefix starts the tags of our bridge domains in the dataplane.
const bridgePrefix = "weft:"

const maxBridgeID = 1<<24 - 1

type bridgeItem = kvscheduler.Item[wire.BridgeDomain, Domain]

type bridges struct{ c *Client }

func bridgeDescriptor(c *Client) kvscheduler.Descriptor[wire.BridgeDomain, Domain] {
	return kvscheduler.Descriptor[wire.BridgeDomain, Domain]{
		Name: wire.KindBridgeDomain, Lane: Lane,
		Equal:    equal[wire.BridgeDomain],
		Validate: validateBridge,
		Recreate: func(have, want wire.BridgeDomain) bool { return have.ID != want.ID || have.Label != want.Label },
		Backend:  bridges{c},
	}
}

func validateBridge(name string, v wire.BridgeDomain) error {
	switch {
	case v.ID == 0 || v.ID > maxBridgeID:
		return fmt.Errorf("bridge domain %d is not within 1 and %d", v.ID, maxBridgeID)
	case v.Label == "" || len(v.Label) > maxLabel || strings.Contains(v.Label, "#"):
		return fmt.Errorf("label %q: a label has 1 to %d bytes and no #", v.Label, maxLabel)
	case name != v.Label:
		return fmt.Errorf("the name is the label, %s", v.Label)
	}
	return nil
}

// Create first lists the bridge domains, because an existing one may be foreign. It updates an existing one of Weft.
func (b bridges) Create(ctx context.Context, batch []bridgeItem) {
	there, err := b.read(ctx)
	if unread(batch, err) {
		return
	}
	several(ctx, b.c, batch, func(it *bridgeItem) []*request {
		it.NewMeta = Domain(it.Want.ID)
		d, taken := there.byID[it.NewMeta]
		if !taken {
			return []*request{addBridge(it.Want)}
		}
		if d.BdTag != bridgePrefix+it.Want.Label {
			it.Err = permanent(fmt.Errorf("create bridge domain %d: it exists and belongs to %q", it.Want.ID, d.BdTag))
			return nil
		}
		return changeBridge(bridgeOf(d), it.Want)
	})
}

func (b bridges) Update(ctx context.Context, batch []bridgeItem) {
	several(ctx, b.c, batch, func(it *bridgeItem) []*request { return changeBridge(it.Have, it.Want) })
}

// Delete deletes the bridge domains that still have our tags.
func (b bridges) Delete(ctx context.Context, batch []bridgeItem) {
	there, err := b.read(ctx)
	if unread(batch, err) {
		return
	}
	several(ctx, b.c, batch, func(it *bridgeItem) []*request {
		d, found := there.byID[it.Meta]
		if !found || d.BdTag != bridgePrefix+it.Have.Label {
			return nil
		}
		return []*request{
			ask(fmt.Sprintf("bridge_domain_add_del_v2: delete %d %q", it.Meta, d.BdTag), &l2.BridgeDomainAddDelV2{
				BdID: uint32(it.Meta),
			}, &l2.BridgeDomainAddDelV2Reply{}).fineIf(api.NO_SUCH_ENTRY),
		}
	})
}

func addBridge(v wire.BridgeDomain) *request {
	m := &l2.BridgeDomainAddDelV2{
		BdID: v.ID, Flood: v.Flood, UuFlood: v.UUFlood, Forward: v.Forward, Learn: v.Learn, MacAge: v.Age,
		BdTag: bridgePrefix + v.Label, IsAdd: true,
	}
	return ask(fmt.Sprintf("bridge_domain_add_del_v2: create %d %q", v.ID, m.BdTag), m, &l2.BridgeDomainAddDelV2Reply{})
}

// changeBridge returns the requests that turn have into want. One message enables features, another one disables them.
func changeBridge(have, want wire.BridgeDomain) (requests []*request) {
	is := features(have)
	be := features(want)
	for _, change := range []struct {
		flags l2.BdFlags
		on    bool
	}{{be &^ is, true}, {is &^ be, false}} {
		if change.flags != 0 {
			requests = append(requests,
				ask(fmt.Sprintf("bridge_flags %d: %s %v", want.ID, change.flags, change.on), &l2.BridgeFlags{
					BdID: want.ID, Flags: change.flags, IsSet: change.on,
				}, &l2.BridgeFlagsReply{}))
		}
	}
	if have.Age != want.Age {
		requests = append(requests,
			ask(fmt.Sprintf("bridge_domain_set_mac_age %d: %d min", want.ID, want.Age), &l2.BridgeDomainSetMacAge{
				BdID: want.ID, MacAge: want.Age,
			}, &l2.BridgeDomainSetMacAgeReply{}))
	}
	return requests
}

func features(v wire.BridgeDomain) (flags l2.BdFlags) {
	for flag, on := range map[l2.BdFlags]bool{
		l2.BRIDGE_API_FLAG_LEARN: v.Learn, l2.BRIDGE_API_FLAG_FWD: v.Forward,
		l2.BRIDGE_API_FLAG_FLOOD: v.Flood, l2.BRIDGE_API_FLAG_UU_FLOOD: v.UUFlood,
	} {
		if on {
			flags |= flag
		}
	}
	return flags
}

func (b bridges) Dump(
	ctx context.Context, _ kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[wire.BridgeDomain, Domain], error] {
	there, err := b.read(ctx)
	var found []kvscheduler.Actual[wire.BridgeDomain, Domain]
	for id, name := range there.names {
		found = append(found, kvscheduler.Actual[wire.BridgeDomain, Domain]{
			Name: name,
			V:    bridgeOf(there.byID[id]),
			Meta: id,
		})
	}
	return yieldAll(found, err)
}

func bridgeOf(d *l2.BridgeDomainDetails) wire.BridgeDomain {
	return wire.BridgeDomain{
		ID: d.BdID, Label: strings.TrimPrefix(d.BdTag, bridgePrefix),
		Learn: d.Learn, Flood: d.Flood, UUFlood: d.UuFlood, Forward: d.Forward, Age: d.MacAge,
	}
}

type domains struct {
	byID  map[Domain]*l2.BridgeDomainDetails
	names map[Domain]string // of ours
}

// read lists all bridge domains, also foreign ones.
func (b bridges) read(ctx context.Context) (domains, error) {
	r := askAll(&l2.BridgeDomainDump{BdID: uint32(noDomain), SwIfIndex: noIndex.api()}, &l2.BridgeDomainDetails{})
	if err := b.c.exchangeAll(ctx, []*request{r}); err != nil {
		return domains{}, err
	}
	there := domains{byID: map[Domain]*l2.BridgeDomainDetails{}, names: map[Domain]string{}}
	taken := unique{}
	for _, d := range listOf[*l2.BridgeDomainDetails](r) {
		id := Domain(d.BdID)
		there.byID[id] = d
		if name, ours := strings.CutPrefix(d.BdTag, bridgePrefix); ours {
			there.names[id] = taken.add(name, Index(id))
		}
	}
	return there, nil
}

// nameOf names a bridge domain. The name of a foreign one is invalid for desired values.
func (d domains) nameOf(id Domain) string {
	if name, ours := d.names[id]; ours {
		return name
	}
	return fmt.Sprintf("#%d", id)
}

type bridgeMemberItem = kvscheduler.Item[wire.BridgeMember, Index]

type bridgeMembers struct{ c *Client }

func bridgeMemberDescriptor(c *Client) kvscheduler.Descriptor[wire.BridgeMember, Index] {
	return kvscheduler.Descriptor[wire.BridgeMember, Index]{
		Name: wire.KindBridgeMember, Lane: Lane,
		Equal:    sameBridgeMember,
		Validate: validateBridgeMember,
		// The dataplane would create a missing bridge domain, with other features.
		Deps: func(_ string, v wire.BridgeMember) []kvscheduler.Dep {
			deps := withSourceRules(v.AntiSpoofed, v.Interface,
				kvscheduler.Dep{Label: "interface", On: ref(wire.KindInterface, v.Interface), Mode: kvscheduler.Follow},
				kvscheduler.Dep{Label: "bridge domain", On: ref(wire.KindBridgeDomain, v.BridgeDomain)},
			)
			deps = filtered(v.Filtered, v.Interface, deps)
			if rest, err := kvscheduler.ParseRef(v.Rest); err == nil {
				deps = append(deps, kvscheduler.Dep{Label: "drop of other tags", On: rest, Mode: kvscheduler.Follow})
			}
			if end, err := kvscheduler.ParseRef(v.LinuxEnd); err == nil {
				deps = append(deps, kvscheduler.Dep{Label: "Linux end", On: end})
			}
			return deps
		},
		Recreate: func(have, want wire.BridgeMember) bool {
			return have.BridgeDomain != want.BridgeDomain || have.BVI != want.BVI
		},
		Bucket:  func(_ string, v wire.BridgeMember) string { return v.BridgeDomain },
		After:   []string{wire.KindInterface, wire.KindBridgeDomain},
		Backend: bridgeMembers{c},
	}
}

// sameBridgeMember ignores fields that the dataplane does not report.
func sameBridgeMember(want, have wire.BridgeMember) bool {
	have.AntiSpoofed = want.AntiSpoofed
	have.Filtered = want.Filtered
	have.LinuxEnd = want.LinuxEnd
	have.Rest = want.Rest
	return want == have
}

func validateBridgeMember(name string, v wire.BridgeMember) error {
	if _, err := kvscheduler.ParseRef(v.LinuxEnd); v.LinuxEnd != "" && err != nil {
		return fmt.Errorf("object of the Linux end: %w", err)
	}
	if _, err := kvscheduler.ParseRef(v.Rest); v.Rest != "" && err != nil {
		return fmt.Errorf("object of the other tags: %w", err)
	}
	switch {
	case name != v.Interface:
		return fmt.Errorf("the name is that of the interface, %s", v.Interface)
	case v.Untag < 0 || v.Untag > 2 || v.Untag > 0 && v.BVI:
		return fmt.Errorf("%d tags: a member of a trunk has one or two", v.Untag)
	case v.BVI && v.SplitHorizonGroup != 0:
		return fmt.Errorf("a BVI is in no split-horizon group, be it %d", v.SplitHorizonGroup)
	}
	return nil
}

func (b bridgeMembers) Create(ctx context.Context, batch []bridgeMemberItem) {
	isBVI := func(it bridgeMemberItem) bool { return it.Want.BVI }
	p := &ports{}
	err := error(nil)
	if slices.ContainsFunc(batch, isBVI) {
		p, err = b.c.ports(ctx)
	}
	several(ctx, b.c, batch, func(it *bridgeMemberItem) []*request {
		it.NewMeta = handle[Index](it, 0)
		switch {
		case it.Want.BVI && err != nil:
			it.Err = kvscheduler.Refused(err)
		case it.Want.BVI && !p.isLoopback(it.NewMeta):
			// The dataplane may accept it and then drop packets to it.
			it.Err = permanent(fmt.Errorf("interface %s is no loopback: it cannot be a BVI", it.Want.Interface))
		default:
			var requests []*request
			if it.Want.Untag != it.Have.Untag { // first, so that no frame enters with its tags
				requests = append(requests, untag(it.Want, it.NewMeta))
			}
			return append(requests, joinBridge(it.Want, it.NewMeta, handle[Domain](it, 1)))
		}
		return nil
	})
}

// Update joins again, which changes the split-horizon group.
func (b bridgeMembers) Update(ctx context.Context, batch []bridgeMemberItem) { b.Create(ctx, batch) }

func (b bridgeMembers) Delete(ctx context.Context, batch []bridgeMemberItem) {
	each(ctx, b.c, batch, func(it *bridgeMemberItem) *request {
		what := fmt.Sprintf("sw_interface_set_l2_bridge: %s out of %s", it.Have.Interface, it.Have.BridgeDomain)
		return ask(what, &l2.SwInterfaceSetL2Bridge{RxSwIfIndex: it.Meta.api()}, &l2.SwInterfaceSetL2BridgeReply{}).
			fineIf(api.INVALID_SW_IF_INDEX)
	})
}

func joinBridge(v wire.BridgeMember, i Index, d Domain) *request {
	port := l2.L2_API_PORT_TYPE_NORMAL
	if v.BVI {
		port = l2.L2_API_PORT_TYPE_BVI
	}
	return ask(fmt.Sprintf("sw_interface_set_l2_bridge: %s into %s (%d)", v.Interface, v.BridgeDomain, d),
		&l2.SwInterfaceSetL2Bridge{
			RxSwIfIndex: i.api(), BdID: uint32(d), PortType: port, Shg: v.SplitHorizonGroup, Enable: true,
		}, &l2.SwInterfaceSetL2BridgeReply{})
}

func (b bridgeMembers) Dump(
	ctx context.Context, _ kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[wire.BridgeMember, Index], error] {
	return yieldAll(b.read(ctx))
}

func (b bridgeMembers) read(ctx context.Context) ([]kvscheduler.Actual[wire.BridgeMember, Index], error) {
	p, there, err := both(ctx, b.c.ports, bridges(b).read)
	if err != nil {
		return nil, err
	}
	var found []kvscheduler.Actual[wire.BridgeMember, Index]
	for id, d := range there.byID {
		for _, m := range d.SwIfDetails {
			name, ours := p.byIndex[Index(m.SwIfIndex)]
			if !ours {
				continue
			}
			v := wire.BridgeMember{
				BridgeDomain:      there.nameOf(id),
				Interface:         name,
				SplitHorizonGroup: m.Shg,
				Untag:             p.untaggedBy(Index(m.SwIfIndex)),
				BVI:               m.SwIfIndex == d.BviSwIfIndex,
			}
			found = append(found, kvscheduler.Actual[wire.BridgeMember, Index]{
				Name: name,
				V:    v,
				Meta: Index(m.SwIfIndex),
			})
		}
	}
	return found, nil
}

// L2Entry identifies the bridge domain and the interface of an applied entry.
type L2Entry struct {
	Domain    Domain
	Interface Index
}

type l2FIBItem = kvscheduler.Item[wire.L2FIB, L2Entry]

func l2FIBDescriptor(c *Client) kvscheduler.Descriptor[wire.L2FIB, L2Entry] {
	return kvscheduler.Descriptor[wire.L2FIB, L2Entry]{
		Name: wire.KindL2FIB, Lane: Lane,
		Equal:    equal[wire.L2FIB],
		Validate: validateL2FIB,
		// The dataplane accepts an entry for a member of any bridge domain, and then does not forward by it.
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
		Recreate: always[wire.L2FIB],
		After:    []string{wire.KindInterface, wire.KindBridgeDomain, wire.KindBridgeMember},
		Backend: readable[wire.L2FIB, L2Entry]{simple[wire.L2FIB, L2Entry]{
			c: c,
			create: func(it *l2FIBItem) *request { // also replaces a learned entry
				it.NewMeta = L2Entry{handle[Domain](it, 0), handle[Index](it, 1)}
				return addDelL2(it.Want, it.NewMeta, true)
			},
			delete: func(it *l2FIBItem) *request {
				return addDelL2(it.Have, it.Meta, false).fineIf(api.NO_SUCH_ENTRY, api.INVALID_SW_IF_INDEX)
			},
			list: l2FIB{c}.read,
		}},
	}
}

func validateL2FIB(name string, v wire.L2FIB) error {
	switch {
	case !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %q is not that of one interface", v.MAC)
	case name != wire.L2FIBName(v.BridgeDomain, v.MAC):
		return fmt.Errorf("bridge domain and MAC make the name %s", wire.L2FIBName(v.BridgeDomain, v.MAC))
	}
	return nil
}

func addDelL2(v wire.L2FIB, m L2Entry, add bool) *request {
	return ask(fmt.Sprintf("l2fib_add_del: %s %s by %s in %s", verb(add), v.MAC, v.Interface, v.BridgeDomain),
		&l2.L2fibAddDel{
			Mac: [6]byte(v.MAC), BdID: uint32(m.Domain), SwIfIndex: m.Interface.api(), IsAdd: add, StaticMac: true,
		}, &l2.L2fibAddDelReply{})
}

// l2FIB reads the MAC tables of bridge domains.
type l2FIB struct{ c *Client }

// read lists the static entries of our interfaces in our bridge domains. With names it lists the bridge domains of
// these objects.
func (b l2FIB) read(ctx context.Context, names []string) ([]kvscheduler.Actual[wire.L2FIB, L2Entry], error) {
	p, there, err := both(ctx, b.c.ports, bridges(b).read)
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
			if !ours || !d.StaticMac || d.FilterMac || d.BviMac { // the dataplane manages the entry of a BVI
				continue
			}
			v := wire.L2FIB{BridgeDomain: there.nameOf(Domain(d.BdID)), MAC: netaddr.MAC(d.Mac), Interface: iface}
			found = append(found, kvscheduler.Actual[wire.L2FIB, L2Entry]{
				Name: wire.L2FIBName(v.BridgeDomain, v.MAC), V: v, Meta: L2Entry{Domain(d.BdID), Index(d.SwIfIndex)},
			})
		}
	}
	return found, nil
}
