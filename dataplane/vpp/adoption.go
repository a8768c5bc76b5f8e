package vpp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.fd.io/govpp/api"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// adopt finds interfaces that were refused because they are there already, just as they should be or not yet finished.
func (b ifaces) adopt(ctx context.Context, batch []interfaceItem, made []bool) {
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
		if there.has(it) || there.holds(it) || there.tunnels(it) {
			it.Err = nil
		} else if other, taken := there.memifAt(it); taken {
			made[i] = b.replace(ctx, it, there, other)
		}
	}
}

// replace makes a memif in the place of one that got no tag. That one may have been made with another secret, which
// nobody can read back, so it is not taken over. One with a tag is named and left alone.
func (b ifaces) replace(ctx context.Context, it *interfaceItem, there *ports, other Index) (made bool) {
	for _, d := range there.list {
		if Index(d.SwIfIndex) == other && d.Tag != "" {
			owner, _, _ := strings.Cut(d.Tag, "#")
			it.Err = kvscheduler.Refused(fmt.Errorf("%w: they are those of %s, interface %s", strip(it.Err), owner, d.InterfaceName))
			return false
		}
	}
	gone, again := deleteMemif(it.Name, other), newMemif(it.Name, it.Want, handle[SocketID](it, 0))
	b.c.exchange(ctx, gone, again)
	if it.Err = again.fault(); it.Err != nil {
		return false
	}
	it.NewMeta = numberIn(again.reply)
	return true
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

// holds tells whether the link that is wanted is held by an interface that got no tag, and notes its number: it is what
// a creation left that was not finished.
func (p *ports) holds(it *interfaceItem) bool {
	for _, d := range p.list {
		link, ok := p.links[Index(d.SwIfIndex)]
		if ok && it.Want.Type == wire.TypeAFPacket && link == it.Want.AFPacket.Link && d.Tag == "" {
			it.NewMeta = Index(d.SwIfIndex)
			return true
		}
	}
	return false
}
