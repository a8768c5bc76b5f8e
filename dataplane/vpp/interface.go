package vpp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type interfaceItem = kvscheduler.Item[wire.Interface, Index]

type ifaces struct{ c *Client }

func interfaceDescriptor(c *Client) kvscheduler.Descriptor[wire.Interface, Index] {
	return kvscheduler.Descriptor[wire.Interface, Index]{
		Name: wire.KindInterface, Lane: Lane,
		Equal:    equalInterfaces,
		Validate: validateInterface,
		Deps:     interfaceDeps,
		Recreate: func(have, want wire.Interface) bool { return !madeAlike(want, have) },
		Hash:     interfaceHash,
		// The hash agrees, so the end in Linux was made as the last value says.
		Merge: func(dumped, last wire.Interface) wire.Interface {
			dumped.Tap, dumped.AFPacket = last.Tap, last.AFPacket
			return dumped
		},
		Backend: ifaces{c},
	}
}

func validateInterface(name string, v wire.Interface) error {
	switch {
	case name == "" || len(name) > maxName || strings.Contains(name, "#"):
		return fmt.Errorf("name: it has 1 to %d bytes and no #, which stands before the hash in the tag", maxName)
	case !v.MAC.IsZero() && !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %s is not that of one interface", v.MAC)
	case v.MTU != 0 && (v.MTU < 68 || v.MTU > 65535):
		return fmt.Errorf("MTU %d is not within 68 and 65535", v.MTU)
	}
	return validateType(v)
}

func validateType(v wire.Interface) error {
	tap, link := v.Tap != wire.Tap{}, v.AFPacket != wire.AFPacket{}
	switch v.Type {
	case wire.TypeTap, wire.TypeAFPacket, wire.TypeLoopback:
	default:
		return fmt.Errorf("type %q is not known", v.Type)
	}
	switch {
	case tap && v.Type != wire.TypeTap:
		return errors.New("only an interface of type tap has a Linux end")
	case link && v.Type != wire.TypeAFPacket:
		return errors.New("only an interface of type af_packet has a link")
	case v.Type == wire.TypeTap:
		return validateTap(v.Tap)
	case v.Type == wire.TypeAFPacket:
		return validateAFPacket(v.AFPacket)
	}
	return nil
}

func interfaceDeps(_ string, v wire.Interface) []kvscheduler.Dep {
	switch {
	case v.Type == wire.TypeAFPacket:
		return linkOf(v.AFPacket)
	case v.Tap.Namespace != "":
		return []kvscheduler.Dep{{Label: "network namespace", On: ref(wire.KindNamespace, v.Tap.Namespace)}}
	}
	return nil
}

// equalInterfaces leaves to the dataplane what want does not say.
func equalInterfaces(want, have wire.Interface) bool {
	return madeAlike(want, have) && want.Up == have.Up &&
		(want.MAC.IsZero() || want.MAC == have.MAC) && (want.MTU == 0 || want.MTU == have.MTU)
}

// madeAlike tells whether nothing differs that is decided when an interface is made.
func madeAlike(want, have wire.Interface) bool {
	return want.Type == have.Type && want.AFPacket == have.AFPacket && equalTaps(want.Tap, have.Tap)
}

func equalTaps(want, have wire.Tap) bool {
	return want.Namespace == have.Namespace && want.Name == have.Name &&
		(want.MAC.IsZero() || want.MAC == have.MAC) && (want.MTU == 0 || want.MTU == have.MTU)
}

// Create makes the interfaces, then gives them what could not be said in one message, then takes back those that did
// not get it all.
func (b ifaces) Create(ctx context.Context, batch []interfaceItem) {
	made := b.make(ctx, batch)
	b.adopt(ctx, batch)
	b.finish(ctx, batch, made)
	b.undo(ctx, batch, made)
}

// make tells which items it made itself. Of loopbacks, unlike taps and links, the dataplane would make a second one: those
// that are there are not made.
func (b ifaces) make(ctx context.Context, batch []interfaceItem) []bool {
	there, err := b.loopbacks(ctx, batch)
	taken := there.takenInstances()
	requests, items := make([]*request, 0, len(batch)), make([]int, 0, len(batch))
	for i := range batch {
		it := &batch[i]
		var r *request
		switch {
		case it.Want.Type == wire.TypeTap:
			var release func()
			if r, release, it.Err = newTap(it.Name, it.Want); it.Err == nil {
				defer release()
			}
		case it.Want.Type == wire.TypeAFPacket:
			r = newAFPacket(it.Name, it.Want)
		case err != nil:
			it.Err = err
		case !there.has(it):
			r = newLoopback(it.Name, it.Want, taken)
		}
		if r != nil && it.Err == nil {
			requests, items = append(requests, r), append(items, i)
		}
	}
	b.c.exchange(ctx, requests...)
	made := make([]bool, len(batch))
	for n, r := range requests {
		it := &batch[items[n]]
		it.Err = r.fault()
		made[items[n]] = it.Err == nil
		switch reply := r.reply.(type) {
		case *tapv2.TapCreateV3Reply:
			it.NewMeta = Index(reply.SwIfIndex)
		case *interfaces.CreateLoopbackInstanceReply:
			it.NewMeta = Index(reply.SwIfIndex)
		case *af_packet.AfPacketCreateV3Reply:
			it.NewMeta = Index(reply.SwIfIndex)
		}
	}
	return made
}

// loopbacks are what is there, looked up only if the batch has a loopback.
func (b ifaces) loopbacks(ctx context.Context, batch []interfaceItem) (*ports, error) {
	for i := range batch {
		if batch[i].Want.Type == wire.TypeLoopback {
			p, err := b.c.ports(ctx)
			if err != nil {
				return &ports{}, kvscheduler.Refused(err)
			}
			return p, nil
		}
	}
	return &ports{}, nil
}

// has tells whether the wanted interface is there, made just so, and notes its number.
func (p *ports) has(it *interfaceItem) bool {
	d := p.byName[it.Name]
	if d == nil || d.Tag != interfaceTag(it.Name, it.Want) {
		return false
	}
	it.NewMeta = Index(d.SwIfIndex)
	return true
}

// adopt finds interfaces that were refused because they are there already, just as they should be or not yet finished.
func (b ifaces) adopt(ctx context.Context, batch []interfaceItem) {
	var there *ports
	for i := range batch {
		it := &batch[i]
		refusal := new(api.VPPApiError)
		if it.Err == nil || !errors.As(it.Err, refusal) {
			continue
		}
		if there == nil {
			var err error
			if there, err = b.c.ports(ctx); err != nil {
				return
			}
		}
		if there.has(it) || there.holds(it) {
			it.Err = nil
		}
	}
}

// finish sets what creation could not.
func (b ifaces) finish(ctx context.Context, batch []interfaceItem, made []bool) {
	s := settings{}
	for i := range batch {
		it := &batch[i]
		if it.Err != nil {
			continue
		}
		if it.Want.Type != wire.TypeTap {
			s.tag(i, it)
		}
		if it.Want.Type == wire.TypeAFPacket && !made[i] && !it.Want.MAC.IsZero() {
			s.mac(i, it)
		}
		if it.Want.MTU != 0 {
			s.mtu(i, it)
		}
		if it.Want.Up {
			s.flags(i, it)
		}
	}
	s.send(ctx, b.c, batch)
}

// undo deletes what was made and then not finished, so that the refusal is the whole truth.
func (b ifaces) undo(ctx context.Context, batch []interfaceItem, made []bool) {
	for i := range batch {
		it := &batch[i]
		if it.Err == nil || !made[i] {
			continue
		}
		r := remove(it.Name, it.Want, it.NewMeta)
		b.c.exchange(ctx, r)
		if err := r.fault(); err != nil {
			it.Err = fmt.Errorf("%w, and removing it again: %w", strip(it.Err), strip(err))
			continue
		}
		refusal := new(api.VPPApiError)
		hopeless := errors.As(it.Err, refusal) && hopeless[*refusal]
		it.Err = &kvscheduler.OpError{Err: strip(it.Err), Outcome: kvscheduler.NotApplied, Permanent: hopeless}
	}
}

// Update sets what differs.
func (b ifaces) Update(ctx context.Context, batch []interfaceItem) {
	s := settings{}
	for i := range batch {
		it := &batch[i]
		want, have := it.Want, it.Have
		if !want.MAC.IsZero() && want.MAC != have.MAC {
			s.mac(i, it)
		}
		if want.MTU != 0 && want.MTU != have.MTU {
			s.mtu(i, it)
		}
		if want.Up != have.Up {
			s.flags(i, it)
		}
	}
	s.send(ctx, b.c, batch)
}

// Delete looks first whether the number still means our interface: the dataplane may have been restarted meanwhile.
func (b ifaces) Delete(ctx context.Context, batch []interfaceItem) {
	looks := newRequests(batch, func(it *interfaceItem) *request {
		return askAll(&interfaces.SwInterfaceDump{SwIfIndex: it.Meta.api()}, &interfaces.SwInterfaceDetails{})
	})
	b.c.exchange(ctx, looks...)
	var requests []*request
	var items []*interfaceItem
	for i, look := range looks {
		it := &batch[i]
		if err := look.fault(); err != nil {
			it.Err = kvscheduler.Refused(err)
			continue
		}
		if b.present(look, it) {
			requests, items = append(requests, remove(it.Name, it.Have, it.Meta)), append(items, it)
		}
	}
	b.c.exchange(ctx, requests...)
	for i, r := range requests {
		items[i].Err = r.fault()
	}
}

func (b ifaces) present(look *request, it *interfaceItem) bool {
	for _, d := range listOf[*interfaces.SwInterfaceDetails](look) {
		name, _, ours := identity(d)
		if Index(d.SwIfIndex) == it.Meta && ours && (name == it.Name || duplicate(name, it.Meta) == it.Name) {
			return true
		}
	}
	return false
}

func remove(name string, v wire.Interface, i Index) *request {
	switch v.Type {
	case wire.TypeTap:
		return ask("tap_delete_v2 "+name, &tapv2.TapDeleteV2{SwIfIndex: i.api()}, &tapv2.TapDeleteV2Reply{}).
			fineIf(api.INVALID_SW_IF_INDEX)
	case wire.TypeAFPacket:
		return deleteAFPacket(name, v)
	}
	return ask("delete_loopback "+name, &interfaces.DeleteLoopback{SwIfIndex: i.api()}, &interfaces.DeleteLoopbackReply{}).
		fineIf(api.INVALID_SW_IF_INDEX)
}

// Dump lists the interfaces with our tags, and those that died before they got one.
func (b ifaces) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Interface, Index], error] {
	p, err := b.c.ports(ctx)
	if err != nil {
		return yieldAll[wire.Interface, Index](nil, err)
	}
	var found []kvscheduler.Actual[wire.Interface, Index]
	for _, d := range p.list {
		if _, hash, ours := identity(d); ours {
			found = append(found, kvscheduler.Actual[wire.Interface, Index]{
				Name: p.byIndex[Index(d.SwIfIndex)], V: p.value(d), Meta: Index(d.SwIfIndex), Hash: hash, HasHash: d.Tag != "",
			})
		}
	}
	return yieldAll(found, nil)
}

// value is an interface as the dataplane reports it.
func (p *ports) value(d *interfaces.SwInterfaceDetails) wire.Interface {
	v := wire.Interface{MAC: mac(d), Up: d.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0}
	if len(d.Mtu) > 0 {
		v.MTU = int(d.Mtu[0])
	}
	if t, ok := p.taps[Index(d.SwIfIndex)]; ok {
		v.Type, v.Tap = wire.TypeTap, tapOf(t)
	} else if link, ok := p.links[Index(d.SwIfIndex)]; ok {
		v.Type, v.AFPacket.Link = wire.TypeAFPacket, link
	} else if _, ok := loopbackInstance(d); ok {
		v.Type = wire.TypeLoopback
	}
	return v
}
