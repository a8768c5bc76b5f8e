package vpp

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/l2"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Domain is what is remembered of an applied bridge domain: its number in the dataplane.
type Domain uint32

// noDomain is all bridge domains in a dump.
const noDomain = ^Domain(0)

// bridgePrefix starts the tags of our bridge domains in the dataplane.
const bridgePrefix = "weft:"

// maxBridgeID is VPP's limit.
const maxBridgeID = 1<<24 - 1

type bridgeItem = kvscheduler.Item[wire.BridgeDomain, Domain]

type bridges struct{ c *Client }

func bridgeDescriptor(c *Client) kvscheduler.Descriptor[wire.BridgeDomain, Domain] {
	return kvscheduler.Descriptor[wire.BridgeDomain, Domain]{
		Name: wire.KindBridgeDomain, Lane: Lane,
		Equal:    func(want, have wire.BridgeDomain) bool { return want == have },
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

// Create looks first: one that is there already may be somebody else's. Of ours it changes what differs.
func (b bridges) Create(ctx context.Context, batch []bridgeItem) {
	there, err := b.c.bridges(ctx)
	var s steps
	for i := range batch {
		it := &batch[i]
		it.NewMeta = Domain(it.Want.ID)
		d, taken := there.byID[it.NewMeta]
		switch {
		case err != nil:
			it.Err = kvscheduler.Refused(err)
		case !taken:
			s.add(i, addBridge(it.Want))
		case d.BdTag != bridgePrefix+it.Want.Label:
			it.Err = permanent(fmt.Errorf("create bridge domain %d: it exists and belongs to %q", it.Want.ID, d.BdTag))
		default:
			s.changeBridge(i, bridgeOf(d), it.Want)
		}
	}
	take(ctx, b.c, &s, batch)
}

// Update sets the features and the age that differ.
func (b bridges) Update(ctx context.Context, batch []bridgeItem) {
	var s steps
	for i := range batch {
		s.changeBridge(i, batch[i].Have, batch[i].Want)
	}
	take(ctx, b.c, &s, batch)
}

// Delete leaves alone what is not ours any more.
func (b bridges) Delete(ctx context.Context, batch []bridgeItem) {
	there, err := b.c.bridges(ctx)
	var s steps
	for i := range batch {
		it := &batch[i]
		if err != nil {
			it.Err = kvscheduler.Refused(err)
		} else if d, found := there.byID[it.Meta]; found && d.BdTag == bridgePrefix+it.Have.Label {
			s.add(i, ask(fmt.Sprintf("bridge_domain_add_del_v2: delete %d %q", it.Meta, d.BdTag), &l2.BridgeDomainAddDelV2{
				BdID: uint32(it.Meta),
			}, &l2.BridgeDomainAddDelV2Reply{}).fineIf(api.NO_SUCH_ENTRY))
		}
	}
	take(ctx, b.c, &s, batch)
}

func addBridge(v wire.BridgeDomain) *request {
	m := &l2.BridgeDomainAddDelV2{
		BdID: v.ID, Flood: v.Flood, UuFlood: v.UUFlood, Forward: v.Forward, Learn: v.Learn, MacAge: v.Age,
		BdTag: bridgePrefix + v.Label, IsAdd: true,
	}
	return ask(fmt.Sprintf("bridge_domain_add_del_v2: create %d %q", v.ID, m.BdTag), m, &l2.BridgeDomainAddDelV2Reply{})
}

// changeBridge adds what turns have into want. Features are switched on by one message and off by another.
func (s *steps) changeBridge(item int, have, want wire.BridgeDomain) {
	is, be := features(have), features(want)
	for _, change := range []struct {
		flags l2.BdFlags
		on    bool
	}{{be &^ is, true}, {is &^ be, false}} {
		if change.flags != 0 {
			s.add(item, ask(fmt.Sprintf("bridge_flags %d: %s %v", want.ID, change.flags, change.on), &l2.BridgeFlags{
				BdID: want.ID, Flags: change.flags, IsSet: change.on,
			}, &l2.BridgeFlagsReply{}))
		}
	}
	if have.Age != want.Age {
		s.add(item, ask(fmt.Sprintf("bridge_domain_set_mac_age %d: %d min", want.ID, want.Age), &l2.BridgeDomainSetMacAge{
			BdID: want.ID, MacAge: want.Age,
		}, &l2.BridgeDomainSetMacAgeReply{}))
	}
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

// Dump lists the bridge domains with our tags.
func (b bridges) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.BridgeDomain, Domain], error] {
	there, err := b.c.bridges(ctx)
	var found []kvscheduler.Actual[wire.BridgeDomain, Domain]
	for id, name := range there.names {
		found = append(found, kvscheduler.Actual[wire.BridgeDomain, Domain]{Name: name, V: bridgeOf(there.byID[id]), Meta: id})
	}
	return yieldAll(found, err)
}

// bridgeOf is a bridge domain as the dataplane reports it.
func bridgeOf(d *l2.BridgeDomainDetails) wire.BridgeDomain {
	return wire.BridgeDomain{
		ID: d.BdID, Label: strings.TrimPrefix(d.BdTag, bridgePrefix),
		Learn: d.Learn, Flood: d.Flood, UUFlood: d.UuFlood, Forward: d.Forward, Age: d.MacAge,
	}
}

// domains are the bridge domains of the dataplane as one dump found them.
type domains struct {
	byID  map[Domain]*l2.BridgeDomainDetails
	names map[Domain]string // of ours
}

func (c *Client) bridges(ctx context.Context) (domains, error) {
	r := askAll(&l2.BridgeDomainDump{BdID: uint32(noDomain), SwIfIndex: noIndex.api()}, &l2.BridgeDomainDetails{})
	if err := c.exchangeAll(ctx, []*request{r}); err != nil {
		return domains{}, err
	}
	there := domains{byID: map[Domain]*l2.BridgeDomainDetails{}, names: map[Domain]string{}}
	taken := map[string]bool{}
	for _, d := range listOf[*l2.BridgeDomainDetails](r) {
		id := Domain(d.BdID)
		there.byID[id] = d
		if name, ours := strings.CutPrefix(d.BdTag, bridgePrefix); ours {
			if taken[name] {
				name = fmt.Sprintf("%s#%d", name, id) // ours, but nobody's wish
			}
			there.names[id], taken[name] = name, true
		}
	}
	return there, nil
}

// nameOf names a bridge domain, in a form that no desired value has if it is not ours.
func (d domains) nameOf(id Domain) string {
	if name, ours := d.names[id]; ours {
		return name
	}
	return fmt.Sprintf("#%d", id)
}
