package vpp

import (
	"context"
	"errors"
	"slices"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Delete looks first whether the number still means our interface: the dataplane may have been restarted meanwhile.
func (b ifaces) Delete(ctx context.Context, batch []interfaceItem) {
	looks := newRequests(batch, func(it *interfaceItem) *request {
		return askAll(&interfaces.SwInterfaceDump{SwIfIndex: it.Meta.api()}, &interfaces.SwInterfaceDetails{})
	})
	memifs, sockets := dumpMemifs(), dumpSockets()
	b.c.exchange(ctx, append(slices.Clone(looks), memifs, sockets)...)
	there := &ports{memifs: memifsIn(memifs), sockets: socketsIn(sockets), socketsDir: b.c.options.Sockets}
	var requests []*request
	var items []*interfaceItem
	for i, look := range looks {
		it := &batch[i]
		if err := errors.Join(look.fault(), memifs.fault(), sockets.fault()); err != nil {
			it.Err = kvscheduler.Refused(err)
			continue
		}
		if there.present(look, it) {
			requests, items = append(requests, remove(it.Name, it.Have, it.Meta)), append(items, it)
		}
	}
	b.exchange(ctx, batch, requests)
	for i, r := range requests {
		items[i].Err = r.fault()
	}
}

// present tells whether a look found the item's interface, with its name.
func (p *ports) present(look *request, it *interfaceItem) bool {
	for _, d := range listOf[*interfaces.SwInterfaceDetails](look) {
		name, _, ours := p.identity(d)
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
	case wire.TypeMemif:
		return deleteMemif(name, i)
	case wire.TypeVXLAN:
		return deleteVXLAN(name, v)
	}
	return ask("delete_loopback "+name, &interfaces.DeleteLoopback{SwIfIndex: i.api()}, &interfaces.DeleteLoopbackReply{}).
		fineIf(api.INVALID_SW_IF_INDEX)
}
