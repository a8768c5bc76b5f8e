package vpp

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.fd.io/govpp/api"
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
		Disturbs: func(have, want wire.Interface) bool {
			have.MTU = want.MTU // a new one must not cut off the pods behind the interface
			return !equalInterfaces(want, have)
		},
		Hash: interfaceHash,
		// The hash agrees, so the Linux end was made from the last value.
		Merge: func(dumped, last wire.Interface) wire.Interface {
			dumped.Tap = last.Tap
			dumped.AFPacket = last.AFPacket
			dumped.Memif = last.Memif
			dumped.VXLAN = last.VXLAN
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
	tap := v.Tap != wire.Tap{}
	link := v.AFPacket != wire.AFPacket{}
	memif := v.Memif != wire.Memif{}
	tunnel := v.VXLAN != wire.VXLAN{}
	sub := v.Sub != wire.Sub{}
	switch v.Type {
	case wire.TypeTap, wire.TypeAFPacket, wire.TypeLoopback, wire.TypeMemif, wire.TypeVXLAN, wire.TypeSub:
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
		return errors.New("only an interface of type vxlan is a tunnel")
	case sub && v.Type != wire.TypeSub:
		return errors.New("only an interface of type sub has tags")
	case v.Type == wire.TypeSub:
		return validateSub(v)
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
	case v.Type == wire.TypeSub:
		return parentOf(v.Sub)
	case v.Tap.Namespace != "":
		return []kvscheduler.Dep{{Label: "network namespace", On: ref(wire.KindNamespace, v.Tap.Namespace)}}
	}
	return nil
}

// equalInterfaces ignores fields that want leaves to the dataplane.
func equalInterfaces(want, have wire.Interface) bool {
	return madeAlike(want, have) && want.Up == have.Up && !otherMAC(want, have) &&
		(want.MTU == 0 || want.MTU == have.MTU)
}

// otherMAC reports whether the MAC differs from the wanted one. A memif in mode ip has no MAC.
func otherMAC(want, have wire.Interface) bool {
	return !want.MAC.IsZero() && want.MAC != have.MAC && want.Memif.Mode != wire.MemifIP
}

// madeAlike compares the fields that cannot change after creation.
func madeAlike(want, have wire.Interface) bool {
	return want.Type == have.Type && want.GSO == have.GSO && equalLinks(want.AFPacket, have.AFPacket) &&
		want.Memif == have.Memif && equalTaps(want.Tap, have.Tap) &&
		equalVXLANs(want.VXLAN, have.VXLAN) && want.Sub == have.Sub
}

func equalTaps(want, have wire.Tap) bool {
	return want.Namespace == have.Namespace && want.Name == have.Name &&
		queuesOf(want.Queues) == queuesOf(have.Queues) &&
		(want.MAC.IsZero() || want.MAC == have.MAC) && (want.MTU == 0 || want.MTU == have.MTU)
}

func equalLinks(want, have wire.AFPacket) bool {
	return want.Link == have.Link && want.On == have.On &&
		queuesOf(want.RxQueues) == queuesOf(have.RxQueues) && queuesOf(want.TxQueues) == queuesOf(have.TxQueues)
}

// Create creates the interfaces, then configures them by further messages, then deletes those that it could not
// configure.
func (b ifaces) Create(ctx context.Context, batch []interfaceItem) {
	made := b.make(ctx, batch)
	b.adopt(ctx, batch, made)
	b.finish(ctx, batch, made)
	b.undo(ctx, batch, made)
}

// make reports which items it created. It skips existing loopbacks and taps: the dataplane would create a second
// loopback, and VPP another queue of the same tap. Loopbacks and tunnels get free numbers.
func (b ifaces) make(ctx context.Context, batch []interfaceItem) []bool {
	readers := b.admitVeths(ctx, batch)
	b.refuseOuter(ctx, batch)
	there, err := b.numbered(ctx, batch)
	loops := there.takenInstances(loopbackPrefix)
	tunnels := there.takenInstances(tunnelPrefix)
	var s steps
	for i := range batch {
		it := &batch[i]
		var r *request
		switch {
		case it.Err != nil: // refused by admitVeths or refuseOuter
		case it.Want.Type == wire.TypeTap && err != nil:
			it.Err = err
		case it.Want.Type == wire.TypeTap && there.has(it):
		case it.Want.Type == wire.TypeTap:
			var release func()
			if r, release, it.Err = newTap(it.Name, it.Want); it.Err == nil {
				defer release()
			}
		case it.Want.Type == wire.TypeAFPacket:
			r = newAFPacket(it.Name, it.Want, b.c.options.AFPacket.Rings)
		case it.Want.Type == wire.TypeMemif:
			r = newMemif(it.Name, it.Want, handle[SocketID](it, 0))
		case it.Want.Type == wire.TypeSub:
			r = newSub(it.Name, it.Want.Sub, handle[Index](it, 0))
		case err != nil:
			it.Err = err
		case it.Want.Type == wire.TypeVXLAN:
			r = newVXLAN(it.Name, it.Want, tunnels)
		case !there.has(it):
			r = newLoopback(it.Name, it.Want, loops)
		}
		if r != nil {
			s.add(i, r)
		}
	}
	b.take(ctx, &s, batch)
	made := make([]bool, len(batch))
	for n, i := range s.items {
		batch[i].NewMeta = numberIn(s.requests[n].reply)
		made[i] = batch[i].Err == nil
		b.explain(&batch[i])
	}
	if readers != nil && len(readers.queues) > 1 {
		b.spreadVeths(ctx, batch)
	}
	return made
}

// explain names the link that has the name of a tap that the dataplane refused with a number.
func (b ifaces) explain(it *interfaceItem) {
	known := new(kvscheduler.OpError)
	inTheWay := b.c.options.InTheWay
	if it.Want.Type != wire.TypeTap || inTheWay == nil || !errors.As(it.Err, &known) ||
		known.Outcome != kvscheduler.NotApplied {
		return
	}
	where := "the node's network namespace"
	if it.Want.Tap.Namespace != "" {
		where = "network namespace " + it.Want.Tap.Namespace
	}
	if err := inTheWay(it.Want.Tap.Namespace, it.Want.Tap.Name); err != nil {
		err = fmt.Errorf("create tap %s in %s: %w", it.Want.Tap.Name, where, err)
		it.Err = &kvscheduler.OpError{Err: err, Outcome: known.Outcome, Permanent: known.Permanent}
	}
}

// take is the function take, with expedited grace periods for interfaces of type af_packet.
func (b ifaces) take(ctx context.Context, s *steps, batch []interfaceItem) {
	isLink := func(it interfaceItem) bool {
		return it.Want.Type == wire.TypeAFPacket || it.Have.Type == wire.TypeAFPacket
	}
	if g := b.c.options.AFPacket.GracePeriods; g != nil && slices.ContainsFunc(batch, isLink) {
		end, err := g.expedite()
		defer end()
		if err != nil {
			b.c.options.Logger.Debug("veths take longer", "err", err)
		}
	}
	take(ctx, b.c, s, batch)
}

// spreadVeths moves receive queues to workers that can read them. It fails the interfaces if that fails, because VPP
// could hang.
func (b ifaces) spreadVeths(ctx context.Context, batch []interfaceItem) {
	err := b.c.options.spreadQueues(ctx, b.c.Version(), b.c.exchangeAll)
	for _, it := range afPacketItems(batch) {
		if it.Err == nil {
			it.Err = err
		}
	}
}

func numberIn(created api.Message) Index {
	return Index(reflect.ValueOf(created).Elem().FieldByName("SwIfIndex").Uint())
}

// numbered returns the existing interfaces if the batch has a loopback, a tunnel or a tap.
func (b ifaces) numbered(ctx context.Context, batch []interfaceItem) (*ports, error) {
	if !slices.ContainsFunc(batch, func(it interfaceItem) bool {
		return it.Want.Type == wire.TypeLoopback || it.Want.Type == wire.TypeVXLAN || it.Want.Type == wire.TypeTap
	}) {
		return &ports{}, nil
	}
	p, err := b.c.ports(ctx)
	if err != nil {
		return &ports{}, kvscheduler.Refused(err)
	}
	return p, nil
}

// finish sends the settings that the message of creation lacks.
func (b ifaces) finish(ctx context.Context, batch []interfaceItem, made []bool) {
	var s steps
	for i := range batch {
		it := &batch[i]
		if it.Err != nil {
			continue
		}
		if it.Want.Type != wire.TypeTap && !it.Want.GSO {
			s.tag(i, it)
		}
		tunnel := it.Want.Type == wire.TypeVXLAN // the dataplane creates it up, with a MAC of its own
		if (tunnel || it.Want.Type == wire.TypeAFPacket && !made[i]) && !it.Want.MAC.IsZero() {
			s.mac(i, it)
		}
		if it.Want.MTU != 0 {
			s.mtu(i, it)
		}
		if it.Want.GSO { // VPP does not report it, so the tag follows
			s.gso(i, it)
			s.tag(i, it)
		}
		if it.Want.Up || tunnel {
			s.flags(i, it)
		}
	}
	take(ctx, b.c, &s, batch)
}

// undo deletes interfaces that were created but not configured, also after the end of ctx. Then the object is refused
// as a whole.
func (b ifaces) undo(ctx context.Context, batch []interfaceItem, made []bool) {
	for i := range batch {
		it := &batch[i]
		if it.Err == nil || !made[i] || !undo(ctx, b.c, it, remove(it.Name, it.Want, it.NewMeta)) {
			continue
		}
		refusal := new(api.VPPApiError)
		forever := errors.As(it.Err, refusal) && isPermanent(*refusal)
		it.Err = &kvscheduler.OpError{Err: strip(it.Err), Outcome: kvscheduler.NotApplied, Permanent: forever}
	}
}

func (b ifaces) Update(ctx context.Context, batch []interfaceItem) {
	var s steps
	for i := range batch {
		it := &batch[i]
		want := it.Want
		have := it.Have
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
	take(ctx, b.c, &s, batch)
}

// Dump lists the interfaces with our tags, and interfaces of interrupted creations.
func (b ifaces) Dump(
	ctx context.Context, _ kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[wire.Interface, Index], error] {
	p, err := b.c.ports(ctx)
	if err != nil {
		return yieldAll[wire.Interface, Index](nil, err)
	}
	var found []kvscheduler.Actual[wire.Interface, Index]
	for _, d := range p.list {
		if _, hash, ours := p.identity(d); ours {
			found = append(found, kvscheduler.Actual[wire.Interface, Index]{
				Name:    p.byIndex[Index(d.SwIfIndex)],
				V:       p.value(d),
				Meta:    Index(d.SwIfIndex),
				Hash:    hash,
				HasHash: d.Tag != "",
			})
		}
	}
	return yieldAll(found, nil)
}

func (p *ports) value(d *interfaces.SwInterfaceDetails) wire.Interface {
	v := wire.Interface{MAC: mac(d), Up: d.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0}
	if len(d.Mtu) > 0 {
		v.MTU = int(d.Mtu[0])
	}
	t, isTap := p.taps[Index(d.SwIfIndex)]
	link, isLink := p.links[Index(d.SwIfIndex)]
	m, isMemif := p.memifs.byIndex[Index(d.SwIfIndex)]
	tunnel, isTunnel := p.vxlans[Index(d.SwIfIndex)]
	_, isLoopback := instanceIn(d, loopbackPrefix)
	switch {
	case isSub(d):
		v.Type = wire.TypeSub
		v.Sub = p.subOf(d)
	case isTap:
		v.Type = wire.TypeTap
		v.Tap = tapOf(t)
	case isLink:
		v.Type = wire.TypeAFPacket
		v.AFPacket.Link = link
	case isMemif:
		v.Type = wire.TypeMemif
		v.Memif = p.memifs.value(m)
	case isTunnel:
		v.Type = wire.TypeVXLAN
		v.VXLAN = tunnel
	case isLoopback:
		v.Type = wire.TypeLoopback
	}
	return v
}

// adopt accepts refused interfaces that exist already, as wanted or left by an interrupted creation.
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
		if there.has(it) || there.leftover(it) {
			it.Err = nil
		} else if other, taken := there.memifs.at(it); taken {
			made[i] = b.replace(ctx, it, there, other)
		}
	}
}

// replace replaces a memif without a tag. Its secret cannot be read back and may differ, so it is not adopted. A memif
// with a tag is an error and stays.
func (b ifaces) replace(ctx context.Context, it *interfaceItem, there *ports, other Index) (made bool) {
	for _, d := range there.list {
		if Index(d.SwIfIndex) == other && d.Tag != "" {
			owner, _, _ := strings.Cut(d.Tag, "#")
			it.Err = kvscheduler.Refused(fmt.Errorf("%w: they are those of %s, interface %s", strip(it.Err), owner,
				d.InterfaceName))
			return false
		}
	}
	gone := deleteMemif(it.Name, other)
	again := newMemif(it.Name, it.Want, handle[SocketID](it, 0))
	b.c.exchange(ctx, gone, again)
	if it.Err = again.fault(); it.Err != nil {
		return false
	}
	it.NewMeta = numberIn(again.reply)
	return true
}

// has reports whether the wanted interface exists with the wanted tag. It sets NewMeta then.
func (p *ports) has(it *interfaceItem) bool {
	d := p.byName[it.Name]
	if d == nil || d.Tag != interfaceTag(it.Name, it.Want) {
		return false
	}
	it.NewMeta = Index(d.SwIfIndex)
	return true
}

// leftover reports whether an interrupted creation left the wanted link or tunnel without a tag. It sets NewMeta then.
func (p *ports) leftover(it *interfaceItem) bool {
	for _, d := range p.list {
		i := Index(d.SwIfIndex)
		found := false
		switch it.Want.Type {
		case wire.TypeAFPacket:
			link, isLink := p.links[i]
			found = isLink && link == it.Want.AFPacket.Link
		case wire.TypeVXLAN:
			tunnel, isTunnel := p.vxlans[i]
			n, numbered := instanceIn(d, tunnelPrefix)
			found = isTunnel && numbered && n >= firstInstance && equalVXLANs(it.Want.VXLAN, tunnel)
		case wire.TypeSub:
			found = isSub(d) && p.subOf(d) == it.Want.Sub
		}
		if found && d.Tag == "" {
			it.NewMeta = i
			return true
		}
	}
	return false
}

const (
	// maxName leaves room for the hash: a tag has at most 63 bytes.
	maxName    = 48
	hashBits   = 48
	hashDigits = hashBits / 4
)

// interfaceHash returns a hash of the fields of creation that dataplanes do not report reliably.
func interfaceHash(v wire.Interface) uint64 {
	h := fnv.New64a()
	switch v.Type {
	case wire.TypeAFPacket:
		fmt.Fprintf(h, "%s|%q|%q", v.Type, v.AFPacket.Link, v.AFPacket.On)
		addQueues(h, v.AFPacket.RxQueues, v.AFPacket.TxQueues)
	case wire.TypeMemif:
		m := v.Memif
		// Every client of the API can read the tag. Its 48 bits do not reveal a secret of 23 random characters:
		// millions of secrets have the same hash.
		fmt.Fprintf(h, "%s|%q|%d|%q|%q|%d|%d|%d|%d", v.Type, m.Socket, m.ID, m.Mode, string(m.Secret), m.RingSize,
			m.BufferSize, m.RxQueues, m.TxQueues)
	case wire.TypeVXLAN:
		fmt.Fprintf(h, "%s|%s|%s|%d|%d", v.Type, v.VXLAN.Source, v.VXLAN.Destination, v.VXLAN.VNI, portOf(v.VXLAN))
		if v.VXLAN.Table != 0 { // tunnels of the dataplane's own table keep the hash of earlier versions
			fmt.Fprintf(h, "|%d", v.VXLAN.Table)
		}
	case wire.TypeSub:
		fmt.Fprintf(h, "%s|%q|%d|%d", v.Type, v.Sub.Parent, v.Sub.Outer, v.Sub.VLAN)
	default:
		fmt.Fprintf(h, "%s|%q|%q|%s|%d", v.Type, v.Tap.Namespace, v.Tap.Name, v.Tap.MAC, v.Tap.MTU)
		addQueues(h, v.Tap.Queues, v.Tap.Queues)
	}
	if v.GSO {
		fmt.Fprint(h, "|gso")
	}
	return folded(h.Sum64())
}

// addQueues keeps the hash of earlier versions for a link with one queue in each direction.
func addQueues(h io.Writer, rx, tx int) {
	if rx > 1 || tx > 1 {
		fmt.Fprintf(h, "|%d|%d", queuesOf(rx), queuesOf(tx))
	}
}

// folded folds a hash to the bits that a tag has room for.
func folded(sum uint64) uint64 { return (sum>>hashBits ^ sum) & (1<<hashBits - 1) }

func interfaceTag(name string, v wire.Interface) string { return newTag(name, interfaceHash(v)) }

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

// Delete first checks that the number still belongs to our interface: the dataplane may have restarted.
func (b ifaces) Delete(ctx context.Context, batch []interfaceItem) {
	looks := newRequests(batch, func(it *interfaceItem) *request {
		return askAll(&interfaces.SwInterfaceDump{SwIfIndex: it.Meta.api()}, &interfaces.SwInterfaceDetails{})
	})
	memifs := dumpMemifs()
	sockets := dumpSockets()
	b.c.exchange(ctx, append(slices.Clone(looks), memifs, sockets)...)
	there := &ports{memifs: newMemifs(memifs, sockets), socketsDir: b.c.options.Sockets}
	var s steps
	for i, look := range looks {
		it := &batch[i]
		if err := errors.Join(look.fault(), memifs.fault(), sockets.fault()); err != nil {
			it.Err = kvscheduler.Refused(err)
			continue
		}
		if there.present(look, it) {
			s.add(i, remove(it.Name, it.Have, it.Meta))
		}
	}
	b.take(ctx, &s, batch)
}

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
	case wire.TypeSub:
		return deleteSub(name, i)
	}
	return ask("delete_loopback "+name, &interfaces.DeleteLoopback{SwIfIndex: i.api()},
		&interfaces.DeleteLoopbackReply{}).
		fineIf(api.INVALID_SW_IF_INDEX)
}
