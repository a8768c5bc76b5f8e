package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type vethItem = kvscheduler.Item[wire.Veth, Place]

// veths are pairs of links with one end in a pod, or in the node's own namespace, and one where the dataplane is. The host's
// end identifies a pair of ours: it outlives the path of the pod's namespace.
type veths struct {
	name  func(host, alias string) (object, ifName string, ok bool) // nil: no veth is found by its alias
	later *Later
}

func vethDescriptor(o Options) kvscheduler.Descriptor[wire.Veth, Place] {
	return kvscheduler.Descriptor[wire.Veth, Place]{
		Name: wire.KindVeth, Lane: Lane,
		Equal:    equalVeths,
		Validate: validateVeth,
		Deps: func(_ string, v wire.Veth) []kvscheduler.Dep {
			if v.Namespace == "" {
				return nil
			}
			return []kvscheduler.Dep{{
				Label: "network namespace", On: kvscheduler.Ref{Kind: wire.KindNamespace, Name: v.Namespace},
			}}
		},
		Recreate: func(have, want wire.Veth) bool {
			return have.Namespace != want.Namespace || have.Name != want.Name || have.HostName != want.HostName ||
				have.RxQueues != want.RxQueues || have.TxQueues != want.TxQueues
		},
		After:   []string{wire.KindNamespace},
		Backend: veths{name: o.VethName, later: o.Later},
	}
}

func validateVeth(_ string, v wire.Veth) error {
	switch {
	case v.Namespace == "" && v.Name == v.HostName:
		return fmt.Errorf("both ends are named %s and are in the node's namespace", v.Name)
	case v.Alias == "" || len(v.Alias) > maxAlias:
		return fmt.Errorf("alias: it has 1 to %d bytes", maxAlias)
	case v.MTU != 0 && (v.MTU < 68 || v.MTU > 65535):
		return fmt.Errorf("MTU %d is not within 68 and 65535", v.MTU)
	case min(v.RxQueues, v.TxQueues) < 0 || max(v.RxQueues, v.TxQueues) > wire.MaxQueues:
		return fmt.Errorf("%d and %d queues are not within 0, which is the kernel's, and %d", v.RxQueues, v.TxQueues, wire.MaxQueues)
	}
	for _, mac := range []wire.MAC{v.MAC, v.HostMAC} {
		if !mac.IsZero() && !mac.IsUnicast() {
			return fmt.Errorf("MAC %s is not that of one interface", mac)
		}
	}
	return errors.Join(validateLink(v.Name), validateLink(v.HostName))
}

// equalVeths leaves to the kernel what want does not say.
func equalVeths(want, have wire.Veth) bool {
	if want.MAC.IsZero() {
		want.MAC = have.MAC
	}
	if want.HostMAC.IsZero() {
		want.HostMAC = have.HostMAC
	}
	if want.MTU == 0 {
		want.MTU = have.MTU
	}
	return want == have
}

// Create makes the pairs, or finishes those that are there. One that cannot be finished is removed again.
func (b veths) Create(ctx context.Context, batch []vethItem) {
	b.each(ctx, batch, func(home *handle, it *vethItem) error {
		it.NewMeta = Place{}
		for _, dep := range it.Handles {
			it.NewMeta, _ = dep.(Place)
		}
		return pair{it.Want, b.later.of(it.Name)}.realise(home, it.Have.Alias, it.NewMeta)
	})
}

// Update changes what differs on both ends.
func (b veths) Update(ctx context.Context, batch []vethItem) { b.Create(ctx, batch) }

// Delete removes the host's ends, and with them the pods', wherever these are by now.
func (b veths) Delete(ctx context.Context, batch []vethItem) {
	err := visit("", Place{}, func(home *handle) error {
		deleteVeths(ctx, home, batch)
		return nil
	})
	if err == nil {
		return
	}
	for i := range batch {
		batch[i].Err = refused(err)
	}
}

// deleteVeths deletes all pairs at once.
func deleteVeths(ctx context.Context, home *handle, batch []vethItem) {
	begun := make([]*deletion, len(batch))
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err != nil {
			continue
		}
		l, err := home.link(it.Have.HostName)
		if err == nil && isOurVeth(l, it.Have, "") {
			begun[i] = beginDeletion(l)
		}
		it.Err = notDeleted(it, err)
	}
	for i, d := range begun {
		if d != nil {
			batch[i].Err = notDeleted(&batch[i], d.await(home))
		}
	}
}

func notDeleted(it *vethItem, err error) error {
	if err == nil || isGone(err) {
		return nil
	}
	return fmt.Errorf("delete veth %s: %w", it.Have.HostName, err)
}

// each runs f for each item, with a netlink socket of the namespace of agent and dataplane.
func (veths) each(ctx context.Context, batch []vethItem, f func(home *handle, it *vethItem) error) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err != nil {
			continue
		}
		var fault error
		err := visit("", Place{}, func(home *handle) error {
			fault = f(home, it)
			return nil
		})
		if it.Err = fault; err != nil {
			it.Err = refused(err)
		}
	}
}

// Dump looks for all known pairs, and for those that are a pod's by their alias: an agent that ended in the middle of an ADD has
// not recorded the pair that it made.
func (b veths) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Veth, Place], error] {
	var names []string
	for name := range view.All(wire.KindVeth) {
		names = append(names, name)
	}
	return func(yield func(kvscheduler.Actual[wire.Veth, Place], error) bool) {
		for a, err := range b.Read(ctx, view, names) {
			if !yield(a, err) || err != nil {
				return
			}
		}
		unrecorded, err := b.unrecorded(names)
		if err != nil {
			yield(kvscheduler.Actual[wire.Veth, Place]{}, err)
			return
		}
		for _, a := range unrecorded {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// unrecorded lists the pairs that are a pod's by their alias and that are none of the known ones, as far as the node's end tells.
func (b veths) unrecorded(known []string) (list []kvscheduler.Actual[wire.Veth, Place], err error) {
	if b.name == nil {
		return nil, nil
	}
	err = visit("", Place{}, func(home *handle) error {
		links, err := whole(home.LinkList)
		for _, l := range links {
			a := l.Attrs()
			object, ifName, isPods := b.name(a.Name, a.Alias)
			if isPods && isVeth(l) && !slices.Contains(known, object) {
				v := wire.Veth{Name: ifName, HostName: a.Name, HostMAC: macOf(l), MTU: a.MTU, Alias: a.Alias, Up: isUp(l)}
				list = append(list, kvscheduler.Actual[wire.Veth, Place]{Name: object, V: v})
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for veths of pods: %w", err)
	}
	return list, nil
}

// Read looks for the named pairs.
func (b veths) Read(ctx context.Context, view kvscheduler.View, names []string) iter.Seq2[kvscheduler.Actual[wire.Veth, Place], error] {
	return func(yield func(kvscheduler.Actual[wire.Veth, Place], error) bool) {
		for _, name := range names {
			a, ok, err := b.seek(view, name)
			if err == nil {
				err = ctx.Err()
			}
			if (ok || err != nil) && !yield(a, err) || err != nil {
				return
			}
		}
	}
}

// seek looks for a pair in all forms that it may have: as it was applied, and as it is desired.
func (b veths) seek(view kvscheduler.View, name string) (a kvscheduler.Actual[wire.Veth, Place], found bool, err error) {
	err = visit("", Place{}, func(home *handle) error {
		for _, v := range known[wire.Veth](view, wire.KindVeth, name) {
			l, err := home.link(v.HostName)
			if errors.Is(err, errNoLink) || err == nil && !isOurVeth(l, v, "") {
				continue
			}
			if err != nil {
				return fmt.Errorf("read %s/%s: %w", wire.KindVeth, name, err)
			}
			place, _ := placeOf(view, v.Namespace)
			v, err = pair{v, b.later.of(name)}.read(l, place)
			a, found = kvscheduler.Actual[wire.Veth, Place]{Name: name, V: v, Meta: place}, err == nil
			return err
		}
		return nil
	})
	return a, found, err
}

// isOurVeth tells whether a link is the host's end of v; was is the alias that we gave it before. One that died before
// it got its alias is known by its name and MAC.
func isOurVeth(l netlink.Link, v wire.Veth, was string) bool {
	a := l.Attrs()
	switch {
	case l.Type() != (&netlink.Veth{}).Type():
		return false
	case a.Alias == "":
		return v.Alias == "" || v.HostMAC.IsZero() || macOf(l) == v.HostMAC
	}
	return a.Alias == v.Alias || a.Alias == was
}

// pair is a veth with what later plugins changed of the pod's end.
type pair struct {
	wire.Veth
	later Changes
}

// realise makes a pair, or finishes what is there of it. It touches no foreign link; was is the alias
// that we gave ours before.
func (p pair) realise(home *handle, was string, place Place) error {
	v := p.Veth
	l, err := home.link(v.HostName)
	if err == nil && !isOurVeth(l, v, was) {
		return permanent(fmt.Errorf("link %s is there already, a %s that belongs to %q", v.HostName, l.Type(), l.Attrs().Alias))
	}
	if err != nil && !errors.Is(err, errNoLink) {
		return refused(err)
	}
	whole := false
	if err := visit(v.Namespace, place, func(h *handle) (err error) {
		whole, err = clearVeth(h, l, v, was)
		return err
	}); err != nil {
		return refused(err)
	}
	if whole && hasQueues(l, v) {
		return p.finish(home, l, place)
	}
	if l != nil {
		if err := home.LinkDel(l); err != nil && !isGone(err) {
			return refused(fmt.Errorf("remove veth %s, which is not as it should be: %w", v.HostName, err))
		}
		delete(home.links, v.HostName)
	}
	return p.add(home, place)
}

// clearVeth looks at the pod's end: whole says that it is there, as the other end of host. What is left of an older pair
// of ours is removed.
func clearVeth(h *handle, host netlink.Link, v wire.Veth, was string) (whole bool, err error) {
	l, err := h.link(v.Name)
	if errors.Is(err, errNoLink) {
		return false, nil
	}
	if err != nil || host != nil && isPair(host, l) {
		return err == nil, err
	}
	alias := l.Attrs().Alias
	if l.Type() != (&netlink.Veth{}).Type() || alias == "" || alias != v.Alias && alias != was {
		return false, permanent(fmt.Errorf("link %s in network namespace %s is there already, a %s that belongs to %q", v.Name, v.Namespace, l.Type(), alias))
	}
	if err := h.LinkDel(l); err != nil {
		return false, fmt.Errorf("remove veth %s in network namespace %s, whose other end is not where it was: %w", v.Name, v.Namespace, err)
	}
	return false, nil
}

// isPair tells whether each of two links names the other as its peer.
func isPair(a, b netlink.Link) bool {
	return a.Type() == b.Type() && a.Attrs().ParentIndex == b.Attrs().Index && b.Attrs().ParentIndex == a.Attrs().Index
}

// add makes both ends where they stay, in one message: a link that moves loses its settings, and for a
// while is marked as no object's.
func (p pair) add(home *handle, place Place) error {
	v := p.Veth
	attrs := netlink.NewLinkAttrs() // the kernel's length of a queue; the zero value would be none at all
	attrs.Name, attrs.HardwareAddr, attrs.MTU = v.HostName, kernelMAC(v.HostMAC), v.MTU
	link := netlink.NewVeth(attrs)
	link.PeerName, link.PeerHardwareAddr, link.PeerMTU = v.Name, kernelMAC(v.MAC), uint32(v.MTU)
	if v.Namespace != "" {
		fd, there, err := open(v.Namespace)
		if err != nil {
			return refused(err)
		}
		defer unix.Close(fd)
		if place != (Place{}) && there != place {
			return permanent(fmt.Errorf("network namespace %s %w: another one has taken its path", v.Namespace, ErrGone))
		}
		link.PeerNamespace = netlink.NsFd(fd)
	}
	addQueues(link, v)
	if err := home.LinkAdd(link); err != nil {
		return refused(fmt.Errorf("create veth %s with its other end %s in network namespace %s: %w", v.HostName, v.Name, v.Namespace, err))
	}
	l, err := home.link(v.HostName)
	if err == nil {
		err = p.finish(home, l, place)
	}
	if err == nil {
		return nil
	}
	if undo := home.LinkDel(link); undo != nil && !isGone(undo) {
		return fmt.Errorf("%w, and removing it again: %w", err, undo)
	}
	return refused(err)
}

// addQueues asks for several queues. The host's end writes to those that the pod reads from. What is left out would be
// another end's number, or as many as there are processors.
func addQueues(pair *netlink.Veth, v wire.Veth) {
	if v.RxQueues == 0 && v.TxQueues == 0 {
		return
	}
	rx, tx := max(v.RxQueues, 1), max(v.TxQueues, 1)
	pair.PeerNumRxQueues, pair.PeerNumTxQueues = uint32(rx), uint32(tx)
	pair.NumRxQueues, pair.NumTxQueues = tx, rx
}

// hasQueues tells whether a host's end has as many queues as are wanted.
func hasQueues(host netlink.Link, v wire.Veth) bool {
	now := readQueues(host, v)
	return now.RxQueues == v.RxQueues && now.TxQueues == v.TxQueues
}

// readQueues is v with the queues of the pair that a host's end is of. Of a pair for which none were asked the kernel tells
// how many it could have: that is not looked at.
func readQueues(host netlink.Link, v wire.Veth) wire.Veth {
	a := host.Attrs()
	if v.RxQueues > 0 {
		v.RxQueues = a.NumTxQueues
	}
	if v.TxQueues > 0 {
		v.TxQueues = a.NumRxQueues
	}
	return v
}

// finish gives both ends what they lack.
func (p pair) finish(home *handle, host netlink.Link, place Place) error {
	v := p.Veth
	if err := seal(home, host); err != nil {
		return err
	}
	if err := dress(home, host, dressing{alias: v.Alias, mac: v.HostMAC, mtu: v.MTU, up: v.Up}); err != nil {
		return err
	}
	if err := seal(home, host); err != nil { // again: an MTU raised to 1280 has brought IPv6 back with the kernel's defaults
		return err
	}
	return visit(v.Namespace, place, func(h *handle) error {
		l, err := h.link(v.Name)
		if err != nil {
			return err
		}
		return dress(h, l, dressing{
			alias: v.Alias, mac: v.MAC, mtu: p.later.wanted(v.MTU), up: v.Up, maxSegment: v.MaxSegment, harden: true, namespace: v.Namespace,
		})
	})
}

// seals are the settings that keep the kernel of the host from what a pod sends: it is the dataplane's to judge. Strict
// reverse path filtering drops all that comes by a link that no route leads through; where the host filters all links
// loosely, which wins, the other two still keep packets from what is behind the host and from broadcasts.
var seals = []struct{ setting, value string }{
	{"ipv6/conf/%s/addr_gen_mode", "1"}, // none, for when IPv6 is enabled for all links at once
	{"ipv6/conf/%s/disable_ipv6", "1"},
	{"ipv4/conf/%s/rp_filter", "1"},
	{"ipv4/conf/%s/forwarding", "0"},
	{"ipv4/conf/%s/drop_unicast_in_l2_multicast", "1"},
}

// seal makes the host's end deaf but for the dataplane. It runs where that end is.
func seal(home *handle, l netlink.Link) error {
	if l.Attrs().RawFlags&unix.IFF_NOARP == 0 {
		if err := home.LinkSetARPOff(l); err != nil {
			return fmt.Errorf("set ARP off on %s: %w", l.Attrs().Name, err)
		}
	}
	for _, s := range seals {
		file := "/proc/sys/net/" + fmt.Sprintf(s.setting, l.Attrs().Name)
		if isSet(file, s.value) {
			continue
		}
		if err := os.WriteFile(file, []byte(s.value), 0); err != nil {
			return fmt.Errorf("keep the kernel from what comes by %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}

func isSealed(l netlink.Link) bool {
	sealed := l.Attrs().RawFlags&unix.IFF_NOARP != 0
	for _, s := range seals {
		sealed = sealed && isSet("/proc/sys/net/"+fmt.Sprintf(s.setting, l.Attrs().Name), s.value)
	}
	return sealed
}

// isSet reads a setting; one that the kernel does not have, as without IPv6, needs not be set.
func isSet(file, value string) bool {
	now, err := os.ReadFile(file)
	return errors.Is(err, os.ErrNotExist) || err == nil && string(now) == value+"\n"
}

// read is the pair of a host's end as it is. Of one without a pod's end, as of one whose namespace is gone, the name
// in the pod is empty; one that is not sealed is not up.
func (p pair) read(host netlink.Link, place Place) (wire.Veth, error) {
	a, want := host.Attrs(), p.Veth
	v := readQueues(host, want)
	v.Name, v.HostMAC, v.MTU, v.Alias, v.Up = "", macOf(host), a.MTU, a.Alias, isUp(host) && isSealed(host)
	if want.Namespace != "" && place == (Place{}) {
		return v, nil
	}
	err := visit(v.Namespace, place, func(h *handle) error {
		l, err := h.link(want.Name)
		if err != nil || !isPair(host, l) {
			return err
		}
		a := l.Attrs()
		v.Name, v.MAC, v.Up = want.Name, macOf(l), v.Up && isUp(l)
		if want.MaxSegment != 0 {
			v.MaxSegment = int(a.GSOMaxSize)
		}
		if want.MTU == v.MTU { // of two ends the one that is not as it should be tells
			v.MTU = p.later.read(a.MTU, want.MTU)
		}
		if want.Alias == v.Alias {
			v.Alias = a.Alias
		}
		return nil
	})
	if isGone(err) {
		err = nil
	}
	return v, err
}

// macOf is the zero MAC for a link that has none of six bytes.
func macOf(l netlink.Link) (mac wire.MAC) {
	if a := l.Attrs().HardwareAddr; len(a) == len(mac) {
		mac = wire.MAC(a)
	}
	return mac
}

// kernelMAC is nil for the zero MAC: the kernel chooses.
func kernelMAC(m wire.MAC) net.HardwareAddr {
	if m.IsZero() {
		return nil
	}
	return m[:]
}

const (
	// lookAgain is the pause before a lookup of a link, whose deletion may not have begun yet.
	lookAgain = 50 * time.Microsecond
	// maxDeletions bounds the deletions that the kernel has not answered: each takes a thread.
	maxDeletions = 32
)

// deletions has a token for each deletion that the kernel has not answered.
var deletions = make(chan struct{}, maxDeletions)

// deletion is the deletion of a link of the node. The kernel removes the link under its lock of links (RTNL) within 1 ms, and then waits
// some 20 ms for RCU callbacks before it answers. Once that lock is free, the names of the link and of its peer are free, too. The kernel
// completes the deletion even if the agent is killed, and several deletions at once.
type deletion struct {
	link  netlink.Link
	ended <-chan error
}

// beginDeletion deletes a link on a thread and a socket of its own, which end with the kernel's answer. It waits while maxDeletions
// deletions are not answered.
func beginDeletion(l netlink.Link) *deletion {
	ended := make(chan error, 1)
	deletions <- struct{}{}
	go func() {
		defer func() { <-deletions }()
		ended <- visit("", Place{}, func(h *handle) error { return h.LinkDel(l) })
	}()
	return &deletion{l, ended}
}

// await returns when the link is gone, or when the kernel has answered. A lookup of the link waits for the lock, too.
func (d *deletion) await(home *handle) error {
	for {
		select {
		case err := <-d.ended:
			return err
		case <-time.After(lookAgain):
		}
		switch _, err := home.LinkByIndex(d.link.Attrs().Index); {
		case errors.As(err, new(netlink.LinkNotFoundError)):
			return nil
		case err != nil:
			return <-d.ended
		}
	}
}
