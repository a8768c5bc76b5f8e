package vpp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/policer"
	"go.fd.io/govpp/binapi/policer_types"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type policerItem = kvscheduler.Item[wire.Policer, Index]

// policers are token buckets with one rate and two colours. Each interface has its own for each direction, with the
// name of the object. The dataplane does not list which interface has which policer: it only says whether an interface
// has one.
type policers struct{ c *Client }

func policerDescriptor(c *Client) kvscheduler.Descriptor[wire.Policer, Index] {
	return kvscheduler.Descriptor[wire.Policer, Index]{
		Name: wire.KindPolicer, Lane: Lane,
		Equal:    equalPolicers,
		Validate: validatePolicer,
		Deps:     policerDeps,
		Recreate: func(have, want wire.Policer) bool { return false },
		After:    []string{wire.KindInterface, wire.KindBridgeMember},
		Backend:  policers{c},
	}
}

// policerDeps returns the dependencies of a policer. From 26.06 on VPP polices the members of a bridge domain by a
// feature that an interface loses when it leaves one (set_int_l2_mode in src/vnet/l2/l2_input.c), without a word.
func policerDeps(_ string, v wire.Policer) []kvscheduler.Dep {
	deps := []kvscheduler.Dep{{Label: "interface", On: ref(wire.KindInterface, v.Interface)}}
	if v.Bridged {
		member := ref(wire.KindBridgeMember, v.Interface)
		deps = append(deps, kvscheduler.Dep{
			Label: "member of the bridge domain", On: member, Mode: kvscheduler.Follow,
		})
	}
	return deps
}

// equalPolicers compares the fields that the dataplane reports.
func equalPolicers(want, have wire.Policer) bool {
	want.Bridged = have.Bridged
	want.Bare = have.Bare
	want.Trunk = have.Trunk
	return want.Equal(have)
}

// maxDSCP is the largest value of six bits.
const maxDSCP = 1<<6 - 1

func validatePolicer(name string, v wire.Policer) error {
	switch {
	case v.Direction != wire.PoliceInput && v.Direction != wire.PoliceOutput:
		return fmt.Errorf("unknown direction %q", v.Direction)
	case name != wire.PolicerName(v.Interface, v.Direction):
		return fmt.Errorf("interface and direction make the name %s", wire.PolicerName(v.Interface, v.Direction))
	case v.Rate == 0 || v.Burst == 0:
		return errors.New("rate and burst are required")
	case v.DSCP != nil && *v.DSCP > maxDSCP:
		return fmt.Errorf("DSCP %d is more than %d", *v.DSCP, maxDSCP)
	}
	return nil
}

// policesBridges is the release from which VPP polices frames that leave a bridge domain. There the policer is a
// plugin, and its features have other places.
var policesBridges = release{26, 6}

// refusal returns why the connected dataplane cannot enforce a policer; nil if it can. VPP 25.10 polices output only on
// the arcs ip4-output and ip6-output (src/vnet/policer/policer.c, policer_input), and all releases look for an Ethernet
// header before they mark (vnet_policer_mark). VPP 25.10 polices input on the arc device-input, which packets of a
// memif in mode ip do not enter (src/plugins/memif/node.c). VPP 26.06 polices a trunk and its sub-interfaces apart
// (policer_input in src/plugins/policer/policer_op.c), and the rate of a pod includes all its frames.
func (b policers) refusal(v wire.Policer) error {
	r, isVPP := releaseOf(b.c.Version())
	switch {
	case isVPP && v.DSCP != nil && v.Bare:
		return errors.New("VPP does not mark packets of a memif in mode ip: remove dscp, or use mode ethernet")
	case isVPP && v.Bare && v.Direction == wire.PoliceInput && r.before(policesBridges):
		return fmt.Errorf("VPP before %d.%02d does not limit the rate from a memif in mode ip: "+
			"limit the other direction only, use mode ethernet, or use weft-vswitch",
			policesBridges.year, policesBridges.month)
	case isVPP && v.DSCP != nil && v.Trunk:
		return errors.New(
			"VPP does not mark tagged frames: remove dscp or the vlans of the interface, or use weft-vswitch")
	case isVPP && v.Bridged && v.Direction == wire.PoliceOutput && r.before(policesBridges):
		return fmt.Errorf("VPP before %d.%02d does not limit the rate to an interface on a network of type L2: "+
			"limit the other direction only, or use weft-vswitch", policesBridges.year, policesBridges.month)
	case isVPP && v.Trunk && !r.before(policesBridges):
		return fmt.Errorf("VPP from %d.%02d on does not limit the rate of tagged frames: "+
			"remove the limit or the vlans of the interface, or use weft-vswitch",
			policesBridges.year, policesBridges.month)
	}
	return nil
}

// Create creates the policers and applies them. It replaces existing ones.
func (b policers) Create(ctx context.Context, batch []policerItem) {
	var s steps
	for i := range batch {
		it := &batch[i]
		if err := b.refusal(it.Want); err != nil {
			it.Err = permanent(err)
			continue
		}
		it.NewMeta = handle[Index](it, 0)
		for _, r := range removePolicer(it.Name, it.NewMeta) {
			s.add(i, r)
		}
		s.add(i, addPolicer(it.Name, it.Want))
		// VPP enables a feature as often as it is applied: a policer that was deleted while it was applied left one.
		for _, r := range unapplyPolicer(it.Name, it.NewMeta) {
			s.add(i, r)
		}
		s.add(i, applyPolicer(it.Name, it.NewMeta, true))
	}
	take(ctx, b.c, &s, batch)
}

// Update replaces the policers. Packets of a few microseconds are not policed.
func (b policers) Update(ctx context.Context, batch []policerItem) { b.Create(ctx, batch) }

// Delete removes the policers from their interfaces first: VPP does not check whether one is in use.
func (b policers) Delete(ctx context.Context, batch []policerItem) {
	several(ctx, b.c, batch, func(it *policerItem) []*request { return removePolicer(it.Name, it.Meta) })
}

// removePolicer removes a policer that may exist, from an interface that may exist.
func removePolicer(name string, i Index) (requests []*request) {
	if i != noIndex {
		requests = unapplyPolicer(name, i)
	}
	return append(requests, ask("policer_add_del: delete "+name, &policer.PolicerAddDel{
		Name: policerTag(name),
	}, &policer.PolicerAddDelReply{}).fineIf(api.NO_SUCH_ENTRY))
}

// unapplyPolicer ends the policing of an interface that may exist, in one direction, whether it is policed or not. It
// applies the policer first. VPP writes behind the list of policers by interface, and crashes, when it ends the
// policing of an interface with a higher index than any interface that ever had a policer (policer_input in
// src/vnet/policer/policer.c of 25.10, and in src/plugins/policer/policer_op.c of 26.06). Then the feature is enabled
// twice at most.
func unapplyPolicer(name string, i Index) (requests []*request) {
	for _, apply := range []bool{true, false, false} {
		requests = append(requests, applyPolicer(name, i, apply).fineIf(api.NO_SUCH_ENTRY, api.INVALID_SW_IF_INDEX))
	}
	return requests
}

func addPolicer(name string, v wire.Policer) *request {
	m := &policer.PolicerAddDel{
		IsAdd: true, Name: policerTag(name), Cir: v.Rate, Cb: uint64(v.Burst),
		RateType:      policer_types.SSE2_QOS_RATE_API_KBPS,
		RoundType:     policer_types.SSE2_QOS_ROUND_API_TO_CLOSEST,
		Type:          policer_types.SSE2_QOS_POLICER_TYPE_API_1R2C,
		ConformAction: policer_types.Sse2QosAction{Type: policer_types.SSE2_QOS_ACTION_API_TRANSMIT},
	}
	if v.DSCP != nil {
		m.ConformAction.Type = policer_types.SSE2_QOS_ACTION_API_MARK_AND_TRANSMIT
		m.ConformAction.Dscp = *v.DSCP
	}
	return ask(fmt.Sprintf("policer_add_del: add %s, %d kbit/s", name, v.Rate), m, &policer.PolicerAddDelReply{})
}

func applyPolicer(name string, i Index, apply bool) *request {
	if _, direction := splitPolicer(name); direction == wire.PoliceInput {
		return ask(fmt.Sprintf("policer_input %s: %v", name, apply), &policer.PolicerInput{
			Name: policerTag(name), SwIfIndex: i.api(), Apply: apply,
		}, &policer.PolicerInputReply{})
	}
	return ask(fmt.Sprintf("policer_output %s: %v", name, apply), &policer.PolicerOutput{
		Name: policerTag(name), SwIfIndex: i.api(), Apply: apply,
	}, &policer.PolicerOutputReply{})
}

// tagPrefix begins the names of our policers in the dataplane: a name has at most 63 bytes.
const tagPrefix = "weft/"

func policerTag(name string) string { return tagPrefix + name }

// splitPolicer splits the name of an object.
func splitPolicer(name string) (iface string, d wire.PolicerDirection) {
	at := strings.LastIndexByte(name, '/')
	return name[:max(at, 0)], wire.PolicerDirection(name[at+1:])
}

// Dump lists our policers. One that is not applied has no interface.
func (b policers) Dump(
	ctx context.Context, _ kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[wire.Policer, Index], error] {
	return yieldAll(b.dump(ctx))
}

func (b policers) dump(ctx context.Context) ([]kvscheduler.Actual[wire.Policer, Index], error) {
	p, err := b.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	list := askAll(&policer.PolicerDump{}, &policer.PolicerDetails{})
	if err := b.c.exchangeAll(ctx, []*request{list}); err != nil {
		return nil, err
	}
	var found []kvscheduler.Actual[wire.Policer, Index]
	var looks steps // of the policers in found
	for _, d := range listOf[*policer.PolicerDetails](list) {
		name, ours := strings.CutPrefix(d.Name, tagPrefix)
		iface, direction := splitPolicer(name)
		if !ours || direction != wire.PoliceInput && direction != wire.PoliceOutput {
			continue
		}
		one := kvscheduler.Actual[wire.Policer, Index]{Name: name, V: policerOf(d, direction), Meta: noIndex}
		if i, there := p.byName[iface]; there {
			one.V.Interface = iface
			one.Meta = Index(i.SwIfIndex)
			for _, r := range b.asksForPolicer(one.Meta, direction) {
				looks.add(len(found), r)
			}
		}
		found = append(found, one)
	}
	if err := b.c.exchangeAll(ctx, looks.requests); err != nil {
		return nil, err
	}
	for n, r := range looks.requests {
		if !r.reply.(*feature.FeatureIsEnabledReply).IsEnabled {
			found[looks.items[n]].V.Interface = ""
		}
	}
	return found, nil
}

// policerOf returns the value of a policer. One that Weft would not create has no rate.
func policerOf(d *policer.PolicerDetails, direction wire.PolicerDirection) wire.Policer {
	v := wire.Policer{Direction: direction}
	drops := d.ExceedAction.Type == policer_types.SSE2_QOS_ACTION_API_DROP &&
		d.ViolateAction.Type == policer_types.SSE2_QOS_ACTION_API_DROP
	if d.RateType != policer_types.SSE2_QOS_RATE_API_KBPS || d.Type != policer_types.SSE2_QOS_POLICER_TYPE_API_1R2C ||
		!drops || d.Cb > 1<<32-1 {
		return v
	}
	switch d.ConformAction.Type {
	case policer_types.SSE2_QOS_ACTION_API_TRANSMIT:
	case policer_types.SSE2_QOS_ACTION_API_MARK_AND_TRANSMIT:
		v.DSCP = &d.ConformAction.Dscp
	default:
		return v
	}
	v.Rate = d.Cir
	v.Burst = uint32(d.Cb)
	return v
}

// asksForPolicer asks whether an interface is policed in a direction.
func (b policers) asksForPolicer(i Index, d wire.PolicerDirection) (requests []*request) {
	node := "policer-" + string(d)
	arcs := []string{"device-input"}
	if d == wire.PoliceOutput {
		arcs = []string{"ip4-output", "ip6-output"}
	} else if r, isVPP := releaseOf(b.c.Version()); isVPP && !r.before(policesBridges) {
		arcs = []string{"ip4-unicast", "ip6-unicast"}
	}
	for _, arc := range arcs {
		r := ask(fmt.Sprintf("feature_is_enabled %s %s", arc, node), &feature.FeatureIsEnabled{
			ArcName: arc, FeatureName: node, SwIfIndex: i.api(),
		}, &feature.FeatureIsEnabledReply{})
		r.read = true
		requests = append(requests, r)
	}
	return requests
}
