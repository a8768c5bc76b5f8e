package vpp

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vxlan"

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
			dumped.Tap, dumped.AFPacket, dumped.Memif, dumped.VXLAN = last.Tap, last.AFPacket, last.Memif, last.VXLAN
			dumped.GSO = last.GSO // VPP does not report it
			return dumped
		},
		Redact:  redactInterface,
		Encode:  encodeInterface,
		Decode:  decodeInterface,
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
	tap, link, memif, tunnel := v.Tap != wire.Tap{}, v.AFPacket != wire.AFPacket{}, v.Memif != wire.Memif{}, v.VXLAN != wire.VXLAN{}
	switch v.Type {
	case wire.TypeTap, wire.TypeAFPacket, wire.TypeLoopback, wire.TypeMemif, wire.TypeVXLAN:
	default:
		return fmt.Errorf("type %q is not known", v.Type)
	}
	switch {
	case tap && v.Type != wire.TypeTap:
		return errors.New("only an interface of type tap has a Linux end")
	case link && v.Type != wire.TypeAFPacket:
		return errors.New("only an interface of type af_packet has a link")
	case memif && v.Type != wire.TypeMemif:
		return errors.New("only an interface of type memif has a socket")
	case tunnel && v.Type != wire.TypeVXLAN:
		return errOnlyVXLAN
	case v.Type == wire.TypeTap:
		return validateTap(v.Tap)
	case v.Type == wire.TypeAFPacket:
		return validateAFPacket(v.AFPacket)
	case v.Type == wire.TypeMemif:
		return validateMemif(v.Memif)
	case v.Type == wire.TypeVXLAN:
		return validateVXLAN(v.VXLAN)
	}
	return nil
}

func interfaceDeps(_ string, v wire.Interface) []kvscheduler.Dep {
	switch {
	case v.Type == wire.TypeAFPacket:
		return linkOf(v.AFPacket)
	case v.Type == wire.TypeMemif:
		return socketOf(v.Memif)
	case v.Type == wire.TypeVXLAN:
		return tableOf(v.VXLAN)
	case v.Tap.Namespace != "":
		return []kvscheduler.Dep{{Label: "network namespace", On: ref(wire.KindNamespace, v.Tap.Namespace)}}
	}
	return nil
}

// equalInterfaces leaves to the dataplane what want does not say.
func equalInterfaces(want, have wire.Interface) bool {
	return madeAlike(want, have) && want.Up == have.Up && !otherMAC(want, have) && (want.MTU == 0 || want.MTU == have.MTU)
}

// otherMAC tells whether the MAC is not the wanted one. Where packets begin with IP there is none to have.
func otherMAC(want, have wire.Interface) bool {
	return !want.MAC.IsZero() && want.MAC != have.MAC && want.Memif.Mode != wire.MemifIP
}

// madeAlike tells whether nothing differs that is decided when an interface is made.
func madeAlike(want, have wire.Interface) bool {
	return want.Type == have.Type && want.GSO == have.GSO && equalLinks(want.AFPacket, have.AFPacket) && want.Memif == have.Memif && equalTaps(want.Tap, have.Tap) &&
		equalVXLANs(want.VXLAN, have.VXLAN)
}

func equalTaps(want, have wire.Tap) bool {
	return want.Namespace == have.Namespace && want.Name == have.Name && queuesOf(want.Queues) == queuesOf(have.Queues) &&
		(want.MAC.IsZero() || want.MAC == have.MAC) && (want.MTU == 0 || want.MTU == have.MTU)
}

func equalLinks(want, have wire.AFPacket) bool {
	return want.Link == have.Link && want.On == have.On &&
		queuesOf(want.RxQueues) == queuesOf(have.RxQueues) && queuesOf(want.TxQueues) == queuesOf(have.TxQueues)
}

// Create makes the interfaces, then gives them what could not be said in one message, then takes back those that did
// not get it all.
func (b ifaces) Create(ctx context.Context, batch []interfaceItem) {
	made := b.make(ctx, batch)
	b.adopt(ctx, batch, made)
	b.finish(ctx, batch, made)
	b.undo(ctx, batch, made)
}

// make tells which items it made itself. Of loopbacks, unlike links and tunnels, the dataplane would make a second one, and so
// would VPP of taps, by another queue of the same link: those that are there are not made. Loopbacks and tunnels get numbers
// that are free.
func (b ifaces) make(ctx context.Context, batch []interfaceItem) []bool {
	readers := b.admitVeths(ctx, batch)
	there, err := b.numbered(ctx, batch)
	loops, tunnels := there.takenInstances(loopbackInstance), there.takenInstances(vxlanInstance)
	requests, items := make([]*request, 0, len(batch)), make([]int, 0, len(batch))
	for i := range batch {
		it := &batch[i]
		var r *request
		switch {
		case it.Err != nil: // no room for it
		case it.Want.Type == wire.TypeTap && err != nil:
			it.Err = err
		case it.Want.Type == wire.TypeTap && there.has(it):
		case it.Want.Type == wire.TypeTap:
			var release func()
			if r, release, it.Err = newTap(it.Name, it.Want); it.Err == nil {
				defer release()
			}
		case it.Want.Type == wire.TypeAFPacket:
			r = newAFPacket(it.Name, it.Want, b.c.options.Rings)
		case it.Want.Type == wire.TypeMemif:
			r = newMemif(it.Name, it.Want, handle[SocketID](it, 0))
		case err != nil:
			it.Err = err
		case it.Want.Type == wire.TypeVXLAN:
			r = newVXLAN(it.Name, it.Want, tunnels)
		case !there.has(it):
			r = newLoopback(it.Name, it.Want, loops)
		}
		if r != nil && it.Err == nil {
			requests, items = append(requests, r), append(items, i)
		}
	}
	b.exchange(ctx, batch, requests)
	made := make([]bool, len(batch))
	for n, r := range requests {
		it := &batch[items[n]]
		it.Err = r.fault()
		it.NewMeta = numberIn(r.reply)
		made[items[n]] = it.Err == nil
	}
	if readers != nil && len(readers.queues) > 1 {
		b.spreadVeths(ctx, batch)
	}
	return made
}

// exchange sends the requests for a batch. It expedites the kernel's part of interfaces of type af_packet.
func (b ifaces) exchange(ctx context.Context, batch []interfaceItem, requests []*request) {
	isLink := func(it interfaceItem) bool {
		return it.Want.Type == wire.TypeAFPacket || it.Have.Type == wire.TypeAFPacket
	}
	if g := b.c.options.GracePeriods; g != nil && slices.ContainsFunc(batch, isLink) {
		end, err := g.expedite()
		defer end()
		if err != nil {
			b.c.options.Logger.Debug("veths take longer", "err", err)
		}
	}
	b.c.exchange(ctx, requests...)
}

// spreadVeths moves receive queues to workers that can read them. Interfaces whose queues could not be moved could hang VPP and
// fail.
func (b ifaces) spreadVeths(ctx context.Context, batch []interfaceItem) {
	err := b.c.options.spreadQueues(ctx, b.c.Version(), b.c.exchangeAll)
	for _, it := range afPacketItems(batch) {
		if it.Err == nil {
			it.Err = err
		}
	}
}

// numberIn is the number of the interface that was made.
func numberIn(reply api.Message) Index {
	switch reply := reply.(type) {
	case *tapv2.TapCreateV3Reply:
		return Index(reply.SwIfIndex)
	case *interfaces.CreateLoopbackInstanceReply:
		return Index(reply.SwIfIndex)
	case *af_packet.AfPacketCreateV3Reply:
		return Index(reply.SwIfIndex)
	case *memif.MemifCreateV2Reply:
		return Index(reply.SwIfIndex)
	case *vxlan.VxlanAddDelTunnelV3Reply:
		return Index(reply.SwIfIndex)
	}
	return noIndex
}

// numbered are what is there, looked up only if the batch has what gets a number.
func (b ifaces) numbered(ctx context.Context, batch []interfaceItem) (*ports, error) {
	for i := range batch {
		if t := batch[i].Want.Type; t == wire.TypeLoopback || t == wire.TypeVXLAN || t == wire.TypeTap {
			p, err := b.c.ports(ctx)
			if err != nil {
				return &ports{}, kvscheduler.Refused(err)
			}
			return p, nil
		}
	}
	return &ports{}, nil
}

// finish sets what creation could not.
func (b ifaces) finish(ctx context.Context, batch []interfaceItem, made []bool) {
	s := settings{}
	for i := range batch {
		it := &batch[i]
		if it.Err != nil {
			continue
		}
		if it.Want.Type != wire.TypeTap && !it.Want.GSO {
			s.tag(i, it)
		}
		tunnel := it.Want.Type == wire.TypeVXLAN // which is made up, and with a MAC that it chooses
		if (tunnel || it.Want.Type == wire.TypeAFPacket && !made[i]) && !it.Want.MAC.IsZero() {
			s.mac(i, it)
		}
		if it.Want.MTU != 0 {
			s.mtu(i, it)
		}
		if it.Want.GSO { // VPP does not report it, so the tag that says it comes after
			s.gso(i, it)
			s.tag(i, it)
		}
		if it.Want.Up || tunnel {
			s.flags(i, it)
		}
	}
	s.send(ctx, b.c, batch)
}

// undo deletes what was made and then not finished, so that the refusal is the whole truth. It does so after the end of ctx
// too: the interface may have been created since.
func (b ifaces) undo(ctx context.Context, batch []interfaceItem, made []bool) {
	ctx = context.WithoutCancel(ctx)
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
		if otherMAC(want, have) {
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

// Dump lists the interfaces with our tags, and those that died before they got one.
func (b ifaces) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Interface, Index], error] {
	p, err := b.c.ports(ctx)
	if err != nil {
		return yieldAll[wire.Interface, Index](nil, err)
	}
	var found []kvscheduler.Actual[wire.Interface, Index]
	for _, d := range p.list {
		if _, hash, ours := p.identity(d); ours {
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
	t, isTap := p.taps[Index(d.SwIfIndex)]
	link, isLink := p.links[Index(d.SwIfIndex)]
	m, isMemif := p.memifs[Index(d.SwIfIndex)]
	tunnel, isTunnel := p.vxlans[Index(d.SwIfIndex)]
	_, isLoopback := loopbackInstance(d)
	switch {
	case isTap:
		v.Type, v.Tap = wire.TypeTap, tapOf(t)
	case isLink:
		v.Type, v.AFPacket.Link = wire.TypeAFPacket, link
	case isMemif:
		v.Type, v.Memif = wire.TypeMemif, p.memifOf(m)
	case isTunnel:
		v.Type, v.VXLAN = wire.TypeVXLAN, tunnel
	case isLoopback:
		v.Type = wire.TypeLoopback
	}
	return v
}

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

// replace replaces a memif without a tag. It is not adopted, because its secret cannot be read back and may be another one. A memif with a tag
// is reported and left alone.
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

const (
	// maxName leaves room for the hash: a tag has at most 63 bytes.
	maxName = 48
	// hashBits is what twelve hexadecimal digits hold.
	hashBits   = 48
	hashDigits = hashBits / 4
)

// interfaceHash sums up what an interface was made with and the dataplane cannot be trusted to report.
func interfaceHash(v wire.Interface) uint64 {
	h := fnv.New64a()
	switch v.Type {
	case wire.TypeAFPacket:
		fmt.Fprintf(h, "%s|%q|%q", v.Type, v.AFPacket.Link, v.AFPacket.On)
		addQueues(h, v.AFPacket.RxQueues, v.AFPacket.TxQueues)
	case wire.TypeMemif:
		m := v.Memif
		// Every client of the API can read the tag. Its 48 bits do not reveal a secret of 23 random characters: millions of secrets have
		// the same hash.
		fmt.Fprintf(h, "%s|%q|%d|%q|%q|%d|%d|%d|%d", v.Type, m.Socket, m.ID, m.Mode, string(m.Secret), m.RingSize, m.BufferSize, m.RxQueues, m.TxQueues)
	case wire.TypeVXLAN:
		fmt.Fprintf(h, "%s|%s|%s|%d|%d", v.Type, v.VXLAN.Source, v.VXLAN.Destination, v.VXLAN.VNI, portOf(v.VXLAN))
		if v.VXLAN.Table != 0 { // tunnels of the dataplane's own table keep the hash of earlier versions
			fmt.Fprintf(h, "|%d", v.VXLAN.Table)
		}
	default:
		fmt.Fprintf(h, "%s|%q|%q|%s|%d", v.Type, v.Tap.Namespace, v.Tap.Name, v.Tap.MAC, v.Tap.MTU)
		addQueues(h, v.Tap.Queues, v.Tap.Queues)
	}
	if v.GSO {
		fmt.Fprint(h, "|gso")
	}
	return folded(h.Sum64())
}

// addQueues leaves the sum of a link with one queue each way what it was before there were more.
func addQueues(h io.Writer, rx, tx int) {
	if rx > 1 || tx > 1 {
		fmt.Fprintf(h, "|%d|%d", queuesOf(rx), queuesOf(tx))
	}
}

// folded is a sum as a tag has room for.
func folded(sum uint64) uint64 { return (sum>>hashBits ^ sum) & (1<<hashBits - 1) }

// interfaceTag is what the dataplane keeps for us of an interface.
func interfaceTag(name string, v wire.Interface) string { return newTag(name, interfaceHash(v)) }

// newTag holds a name and a hash.
func newTag(name string, hash uint64) string { return fmt.Sprintf("%s#%0*x", name, hashDigits, hash) }

// parseTag is the inverse of newTag; ok is false for a foreign tag.
func parseTag(tag string) (name string, hash uint64, ok bool) {
	i := strings.LastIndexByte(tag, '#')
	if i <= 0 || len(tag)-i-1 != hashDigits {
		return "", 0, false
	}
	hash, err := strconv.ParseUint(tag[i+1:], 16, 64)
	return tag[:i], hash, err == nil
}

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
