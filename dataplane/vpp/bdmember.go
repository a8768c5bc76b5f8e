package vpp

import (
	"context"
	"fmt"
	"iter"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/l2"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type bridgeMemberItem = kvscheduler.Item[wire.BridgeMember, Index]

type bridgeMembers struct{ c *Client }

func bridgeMemberDescriptor(c *Client) kvscheduler.Descriptor[wire.BridgeMember, Index] {
	return kvscheduler.Descriptor[wire.BridgeMember, Index]{
		Name: wire.KindBridgeMember, Lane: Lane,
		Equal:    sameBridgeMember,
		Validate: validateBridgeMember,
		// The dataplane would make a bridge domain that it does not know, with features of its own choice.
		Deps: func(_ string, v wire.BridgeMember) []kvscheduler.Dep {
			deps := judged(v.Judged, v.Interface,
				kvscheduler.Dep{Label: "interface", On: ref(wire.KindInterface, v.Interface), Mode: kvscheduler.Follow},
				kvscheduler.Dep{Label: "bridge domain", On: ref(wire.KindBridgeDomain, v.BridgeDomain)},
			)
			if v.Filtered {
				deps = append(deps, kvscheduler.Dep{Label: "ACL", On: ref(wire.KindInterfaceACL, v.Interface)})
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

// sameBridgeMember leaves out what the dataplane cannot report.
func sameBridgeMember(want, have wire.BridgeMember) bool {
	have.Judged, have.Filtered, have.LinuxEnd = want.Judged, want.Filtered, want.LinuxEnd
	return want == have
}

func validateBridgeMember(name string, v wire.BridgeMember) error {
	if _, err := kvscheduler.ParseRef(v.LinuxEnd); v.LinuxEnd != "" && err != nil {
		return fmt.Errorf("object of the Linux end: %w", err)
	}
	switch {
	case name != v.Interface:
		return fmt.Errorf("the name is that of the interface, %s", v.Interface)
	case v.BVI && v.SplitHorizonGroup != 0:
		return fmt.Errorf("a BVI is in no split-horizon group, be it %d", v.SplitHorizonGroup)
	}
	return nil
}

// Create puts the interfaces into their bridge domains.
func (b bridgeMembers) Create(ctx context.Context, batch []bridgeMemberItem) {
	p, err := b.loopbacks(ctx, batch)
	var s steps
	for i := range batch {
		it := &batch[i]
		it.NewMeta = handle[Index](it, 0)
		switch {
		case it.Want.BVI && err != nil:
			it.Err = kvscheduler.Refused(err)
		case it.Want.BVI && !p[it.NewMeta]:
			// The dataplane may take it and then lose what is sent to it.
			it.Err = permanent(fmt.Errorf("interface %s is no loopback: it cannot be a BVI", it.Want.Interface))
		default:
			s.add(i, joinBridge(it.Want, it.NewMeta, handle[Domain](it, 1)))
		}
	}
	take(ctx, b.c, &s, batch)
}

// loopbacks are looked up only if the batch has a BVI.
func (b bridgeMembers) loopbacks(ctx context.Context, batch []bridgeMemberItem) (map[Index]bool, error) {
	for i := range batch {
		if !batch[i].Want.BVI {
			continue
		}
		p, err := b.c.ports(ctx)
		if err != nil {
			return nil, err
		}
		found := map[Index]bool{}
		for _, d := range p.list {
			_, found[Index(d.SwIfIndex)] = loopbackInstance(d)
		}
		return found, nil
	}
	return nil, nil
}

// Update changes the split-horizon group, by joining again.
func (b bridgeMembers) Update(ctx context.Context, batch []bridgeMemberItem) { b.Create(ctx, batch) }

// Delete takes the interfaces back to layer 3.
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
	return ask(fmt.Sprintf("sw_interface_set_l2_bridge: %s into %s (%d)", v.Interface, v.BridgeDomain, d), &l2.SwInterfaceSetL2Bridge{
		RxSwIfIndex: i.api(), BdID: uint32(d), PortType: port, Shg: v.SplitHorizonGroup, Enable: true,
	}, &l2.SwInterfaceSetL2BridgeReply{})
}

// Dump lists our interfaces that are in a bridge domain.
func (b bridgeMembers) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.BridgeMember, Index], error] {
	return yieldAll(b.dump(ctx))
}

func (b bridgeMembers) dump(ctx context.Context) ([]kvscheduler.Actual[wire.BridgeMember, Index], error) {
	p, err := b.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	there, err := b.c.bridges(ctx)
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
				BridgeDomain: there.nameOf(id), Interface: name, SplitHorizonGroup: m.Shg, BVI: m.SwIfIndex == d.BviSwIfIndex,
			}
			found = append(found, kvscheduler.Actual[wire.BridgeMember, Index]{Name: name, V: v, Meta: Index(m.SwIfIndex)})
		}
	}
	return found, nil
}
