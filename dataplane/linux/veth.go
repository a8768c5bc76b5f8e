package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type vethItem = kvscheduler.Item[wire.Veth, netnsID]

// veths is the backend of veths with one end in the dataplane's namespace. That end, the host's, identifies a veth: it
// outlives the path of the pod's namespace.
type veths struct {
	simple[wire.Veth, netnsID]

	name     func(host, alias string, mac netaddr.MAC) (object, ifName string, ok bool) // see Options.VethName
	changes  *ChainChanges
	overfull *Overfull // records namespaces that cannot be read; may be nil
}

func vethDescriptor(o Options) kvscheduler.Descriptor[wire.Veth, netnsID] {
	b := veths{name: o.VethName, changes: o.ChainChanges, overfull: o.Overfull}
	b.simple = simple[wire.Veth, netnsID]{kind: wire.KindVeth, create: b.create, read: b.find}
	return kvscheduler.Descriptor[wire.Veth, netnsID]{
		Name: wire.KindVeth, Lane: Lane,
		Equal:    equalVeths,
		Validate: validateVeth,
		Deps:     func(_ string, v wire.Veth) []kvscheduler.Dep { return namespaceDeps(v.Namespace) },
		Recreate: func(have, want wire.Veth) bool {
			return have.Namespace != want.Namespace || have.Name != want.Name || have.HostName != want.HostName ||
				have.RxQueues != want.RxQueues || have.TxQueues != want.TxQueues
		},
		Disturbs: func(have, want wire.Veth) bool {
			had := have.MTU
			have.MTU = want.MTU
			return !onlyMTU(had, want.MTU, equalVeths(want, have))
		},
		After:   []string{wire.KindNamespace},
		Backend: b,
	}
}

func validateVeth(_ string, v wire.Veth) error {
	switch {
	case v.Namespace == "" && v.Name == v.HostName:
		return fmt.Errorf("both ends have the name %s in the node's namespace", v.Name)
	case v.MTU != 0 && (v.MTU < 68 || v.MTU > 65535):
		return fmt.Errorf("MTU %d is not within 68 and 65535", v.MTU)
	case min(v.RxQueues, v.TxQueues) < 0 || max(v.RxQueues, v.TxQueues) > wire.MaxQueues:
		return fmt.Errorf("%d RX or %d TX queues are not within 0 and %d", v.RxQueues, v.TxQueues, wire.MaxQueues)
	}
	for _, mac := range []netaddr.MAC{v.MAC, v.HostMAC} {
		if !mac.IsZero() && !mac.IsUnicast() {
			return fmt.Errorf("MAC %s is not a unicast MAC", mac)
		}
	}
	return errors.Join(validateAlias(v.Alias), validateLink(v.Name), validateLink(v.HostName))
}

// equalVeths accepts any MAC and MTU of the kernel if want leaves them open.
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

// create makes a veth, or configures the existing one. It removes a veth that it cannot configure.
func (b veths) create(it *vethItem) (failed error) {
	it.NewMeta = netnsOf(it.Handles)
	err := withHandle(func(agentNS *handle) error {
		failed = vethPair{Veth: it.Want, changes: b.changes.of(it.Name)}.ensure(agentNS, it.Have, it.NewMeta)
		return nil
	})
	if err != nil {
		return refused(err)
	}
	return failed
}

// Delete removes the host's ends, and with them the pods' ends in any namespace.
func (b veths) Delete(ctx context.Context, batch []vethItem) {
	err := withHandle(func(agentNS *handle) error {
		deleteVeths(ctx, agentNS, batch)
		return nil
	})
	if err == nil {
		return
	}
	for i := range batch {
		batch[i].Err = refused(err)
	}
}

// deleteVeths deletes all veths concurrently.
func deleteVeths(ctx context.Context, agentNS *handle, batch []vethItem) {
	begun := make([]*deletion, len(batch))
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err != nil {
			continue
		}
		l, err := agentNS.link(it.Have.HostName)
		if err == nil && isOurVeth(l, it.Have, "") {
			begun[i] = beginDeletion(l)
		}
		it.Err = deleted("veth "+it.Have.HostName, err)
	}
	for i, d := range begun {
		if d != nil {
			batch[i].Err = deleted("veth "+batch[i].Have.HostName, d.await(agentNS))
		}
	}
}

// Dump finds known veths, and veths of pods by the host's end: an agent that stopped during an ADD, or a change of a
// pod, has not recorded the veth that it made.
func (b veths) Dump(
	ctx context.Context, view kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[wire.Veth, netnsID], error] {
	names := knownNames(view, wire.KindVeth)
	found, err := b.readAll(ctx, view, names)
	if err != nil {
		return yieldAll(found, err)
	}
	unrecorded, err := b.unrecorded(view, names)
	return yieldAll(append(found, unrecorded...), err)
}

// unrecorded lists unknown veths of pods by the host's end, without the values of the pod's end.
func (b veths) unrecorded(
	view kvscheduler.View, known []string,
) (list []kvscheduler.Actual[wire.Veth, netnsID], err error) {
	if b.name == nil {
		return nil, nil
	}
	hosts := make(map[string]bool)
	for _, name := range known {
		for _, v := range knownValues[wire.Veth](view, wire.KindVeth, name) {
			hosts[v.HostName] = true
		}
	}
	err = withHandle(func(agentNS *handle) error {
		links, err := agentNS.LinkList()
		for _, l := range links {
			a := l.Attrs()
			object, ifName, isPods := b.name(a.Name, a.Alias, macOf(l))
			if isPods && isVeth(l) && !hosts[a.Name] && !slices.Contains(known, object) {
				v := wire.Veth{
					Name:     ifName,
					HostName: a.Name,
					HostMAC:  macOf(l),
					MTU:      a.MTU,
					Alias:    a.Alias,
					Up:       isUp(l),
				}
				list = append(list, kvscheduler.Actual[wire.Veth, netnsID]{Name: object, V: v})
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list veths of pods: %w", err)
	}
	return list, nil
}

// find finds a veth by its applied or its desired value.
func (b veths) find(view kvscheduler.View, name string) (found wire.Veth, netns netnsID, ok bool, err error) {
	err = withHandle(func(agentNS *handle) error {
		values := knownValues[wire.Veth](view, wire.KindVeth, name)
		for _, v := range values {
			l, err := agentNS.link(v.HostName)
			if errors.Is(err, errNoLink) || err == nil && !isOurVeth(l, v, "") {
				continue
			}
			if err != nil {
				return err
			}
			netns, _ = knownNamespace(view, v.Namespace)
			pair := vethPair{Veth: v, changes: b.changes.of(name), last: values[len(values)-1]}
			found, err = pair.read(l, netns)
			if v.Namespace != "" && netns != (netnsID{}) {
				b.overfull.note(netns, wire.KindVeth, err)
				if err != nil { // of this pod alone
					found = pair.assumed(found)
					err = nil
				}
			}
			ok = err == nil
			return err
		}
		return nil
	})
	return found, netns, ok, err
}

// isOurVeth reports whether a link is the host's end of v. oldAlias is the alias that it may have. Without an alias,
// which an agent that stopped did not set, name and MAC identify it.
func isOurVeth(l netlink.Link, v wire.Veth, oldAlias string) bool {
	a := l.Attrs()
	switch {
	case !isVeth(l):
		return false
	case a.Alias == "":
		return v.Alias == "" || v.HostMAC.IsZero() || macOf(l) == v.HostMAC
	}
	return a.Alias == v.Alias || a.Alias == oldAlias
}

// vethPair is a veth with the changes that later plugins made to the pod's end.
type vethPair struct {
	wire.Veth
	changes LinkChanges

	// last is the last value of the object, if Veth is its first: a dump may have found that one while a program in
	// the pod was changing the link.
	last wire.Veth
}

// ensure makes a veth, or configures the existing one. It does not change foreign links. have is the applied value,
// zero for a new veth: only the pod's end of an applied veth can be in use elsewhere.
func (p vethPair) ensure(agentNS *handle, have wire.Veth, netns netnsID) error {
	v := p.Veth
	oldAlias := have.Alias
	l, err := agentNS.link(v.HostName)
	if err == nil && !isOurVeth(l, v, oldAlias) {
		return permanent(foreignLink(l))
	}
	if err != nil && !errors.Is(err, errNoLink) {
		return refused(err)
	}
	at := lost
	complete := false
	if err := inNamespace(v.Namespace, netns, func(h *handle) (err error) {
		if l != nil && h.ofPod && have != (wire.Veth{}) {
			at, err = h.placeOfPeer(l, v.Name)
		}
		if err == nil && at != takenOver {
			complete, err = clearPodEnd(h, l, v, oldAlias)
		}
		return err
	}); err != nil {
		return refused(err)
	}
	if at == takenOver {
		return p.configureHost(agentNS, l)
	}
	if complete && hasQueues(l, v) {
		return p.configure(agentNS, l, netns)
	}
	if l != nil {
		if err := agentNS.LinkDel(l); err != nil && !isGone(err) {
			return refused(fmt.Errorf("delete incomplete veth %s: %w", v.HostName, err))
		}
		delete(agentNS.links, v.HostName)
	}
	return p.add(agentNS, netns)
}

// clearPodEnd reports whether the pod's end exists as the peer of host. It removes an end of another veth of ours.
func clearPodEnd(h *handle, host netlink.Link, v wire.Veth, oldAlias string) (complete bool, err error) {
	l, err := h.link(v.Name)
	if errors.Is(err, errNoLink) {
		return false, nil
	}
	if err != nil || host != nil && isPair(host, l) {
		return err == nil, err
	}
	alias := l.Attrs().Alias
	if !isVeth(l) || alias == "" || alias != v.Alias && alias != oldAlias {
		return false, permanent(fmt.Errorf("network namespace %s: %w", v.Namespace, foreignLink(l)))
	}
	if err := h.LinkDel(l); err != nil {
		return false, fmt.Errorf("delete old veth %s in network namespace %s: %w", v.Name, v.Namespace, err)
	}
	return false, nil
}

// isPair reports whether two links are the peers of each other.
func isPair(a, b netlink.Link) bool {
	return a.Type() == b.Type() && a.Attrs().ParentIndex == b.Attrs().Index && b.Attrs().ParentIndex == a.Attrs().Index
}

// add makes both ends in their namespaces with one message: a link loses its settings when it moves, and has no alias
// meanwhile.
func (p vethPair) add(agentNS *handle, netns netnsID) error {
	v := p.Veth
	attrs := netlink.NewLinkAttrs() // the kernel's default queue length; the zero value means no queue
	attrs.Name = v.HostName
	attrs.HardwareAddr = kernelMAC(v.HostMAC)
	attrs.MTU = v.MTU
	link := netlink.NewVeth(attrs)
	link.PeerName = v.Name
	link.PeerHardwareAddr = kernelMAC(v.MAC)
	link.PeerMTU = uint32(v.MTU)
	if v.Namespace != "" {
		fd, current, err := open(v.Namespace)
		if err != nil {
			return refused(err)
		}
		defer unix.Close(fd)
		if netns != (netnsID{}) && current != netns {
			return permanent(fmt.Errorf("network namespace %s %w: another one has taken its path", v.Namespace,
				ErrGone))
		}
		link.PeerNamespace = netlink.NsFd(fd)
	}
	addQueues(link, v)
	if err := agentNS.LinkAdd(link); err != nil {
		return refused(fmt.Errorf("create veth %s with peer %s in network namespace %s: %w", v.HostName, v.Name,
			v.Namespace, err))
	}
	l, err := agentNS.link(v.HostName)
	if err == nil {
		err = p.configure(agentNS, l, netns)
	}
	if err != nil {
		return agentNS.undoAdd(link, err)
	}
	return nil
}

// addQueues sets the number of queues of both ends. The host's TX queues are the pod's RX queues. The kernel's default
// would be the number of the other end or of processors.
func addQueues(pair *netlink.Veth, v wire.Veth) {
	if v.RxQueues == 0 && v.TxQueues == 0 {
		return
	}
	rx := max(v.RxQueues, 1)
	tx := max(v.TxQueues, 1)
	pair.PeerNumRxQueues = uint32(rx)
	pair.PeerNumTxQueues = uint32(tx)
	pair.NumRxQueues = tx
	pair.NumTxQueues = rx
}

// hasQueues reports whether a host's end has the desired number of queues.
func hasQueues(host netlink.Link, v wire.Veth) bool {
	actual := readQueues(host, v)
	return actual.RxQueues == v.RxQueues && actual.TxQueues == v.TxQueues
}

// readQueues sets the queues of v to the queues of the host's end. It keeps 0: without a request, the kernel returns
// the possible number of queues.
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

// configure applies the settings that the ends do not have yet.
func (p vethPair) configure(agentNS *handle, host netlink.Link, netns netnsID) error {
	v := p.Veth
	if err := p.configureHost(agentNS, host); err != nil {
		return err
	}
	return inNamespace(v.Namespace, netns, func(h *handle) error {
		l, err := h.link(v.Name)
		if err == nil {
			err = dropOffloads(l) // before it is up
		}
		if err != nil {
			return err
		}
		return configure(h, l, linkConfig{
			alias:      v.Alias,
			mac:        v.MAC,
			mtu:        p.changes.mtu(v.MTU),
			up:         v.Up,
			maxSegment: v.MaxSegment,
			harden:     true,
			namespace:  v.Namespace,
		})
	})
}

// configureHost applies the settings that the host's end does not have yet.
func (p vethPair) configureHost(agentNS *handle, host netlink.Link) error {
	v := p.Veth
	if err := isolate(agentNS, host); err != nil {
		return err
	}
	if err := configure(agentNS, host, linkConfig{alias: v.Alias, mac: v.HostMAC, mtu: v.MTU, up: v.Up}); err != nil {
		return err
	}
	return isolate(agentNS, host) // an MTU raised to 1280 has enabled IPv6 with the kernel's default settings
}

// isolation are the settings that keep packets of pods from the host's kernel: only the dataplane validates them.
// Strict reverse path filtering drops all packets from a link without routes. If the setting of all links selects loose
// filtering, which wins, the last two settings still protect hosts behind the node and drop broadcasts.
var isolation = []setting{
	{"ipv6/conf/%s/addr_gen_mode", "1"}, // none, in case IPv6 is enabled for all links
	{"ipv6/conf/%s/disable_ipv6", "1"},
	{"ipv4/conf/%s/rp_filter", "1"},
	{"ipv4/conf/%s/forwarding", "0"},
	{"ipv4/conf/%s/drop_unicast_in_l2_multicast", "1"},
}

func isolationOf(l netlink.Link) (list []setting) {
	for _, s := range isolation {
		list = append(list, setting{fmt.Sprintf(s.file, l.Attrs().Name), s.value})
	}
	return list
}

// isolate makes the kernel ignore packets that the host's end receives; the dataplane gets them. It runs in the
// namespace of that end.
func isolate(agentNS *handle, l netlink.Link) error {
	if l.Attrs().RawFlags&unix.IFF_NOARP == 0 {
		if err := agentNS.LinkSetARPOff(l); err != nil {
			return fmt.Errorf("set ARP off on %s: %w", l.Attrs().Name, err)
		}
	}
	if err := apply(isolationOf(l)); err != nil {
		return fmt.Errorf("isolate link %s: %w", l.Attrs().Name, err)
	}
	return nil
}

func isIsolated(l netlink.Link) bool {
	return l.Attrs().RawFlags&unix.IFF_NOARP != 0 && areSet(isolationOf(l))
}

// read reads the veth of a host's end. Name is empty if the pod's namespace does not exist. A veth counts as down if
// its host's end is not isolated, or if its pod's end leaves to the dataplane what it cannot do. An end that the pod
// took over counts as unchanged: it exists as long as the host's.
func (p vethPair) read(host netlink.Link, netns netnsID) (wire.Veth, error) {
	a := host.Attrs()
	want := p.Veth
	v := readQueues(host, want)
	v.Name = ""
	v.HostMAC = macOf(host)
	v.MTU = a.MTU
	v.Alias = a.Alias
	v.Up = isUp(host) && isIsolated(host)
	if want.Namespace != "" && netns == (netnsID{}) {
		return v, nil
	}
	err := inNamespace(v.Namespace, netns, func(h *handle) error {
		if h.ofPod {
			if at, err := h.placeOfPeer(host, want.Name); err != nil || at == takenOver {
				v = p.assumed(v)
				return err
			}
		}
		l, err := h.link(want.Name)
		if err != nil || !isPair(host, l) {
			return err
		}
		offloads, err := offloadsOf(l)
		if err != nil {
			return err
		}
		a := l.Attrs()
		v.Name = want.Name
		v.MAC = macOf(l)
		v.Up = v.Up && isUp(l) && len(offloads) == 0
		if want.MaxSegment != 0 {
			v.MaxSegment = int(a.GSOMaxSize)
		}
		// A difference of either end from the desired value counts. Veth may be the value of the last check.
		if desired := p.last.MTU; v.MTU == desired {
			mtu := a.MTU
			if h.ofPod {
				mtu = p.changes.unlowered(mtu, desired)
			}
			v.MTU = p.changes.readMTU(mtu, desired)
		}
		if v.Alias == p.last.Alias {
			v.Alias = a.Alias
		}
		return nil
	})
	if isGone(err) {
		err = nil
	}
	return v, err
}

// assumed returns v, which has the values of the host's end, with an unchanged end in the pod.
func (p vethPair) assumed(v wire.Veth) wire.Veth {
	v.Name = p.Name
	v.MAC = p.last.MAC
	v.MaxSegment = p.last.MaxSegment
	return v
}

// macOf returns the zero MAC for a link without a MAC of six bytes.
func macOf(l netlink.Link) (mac netaddr.MAC) {
	if a := l.Attrs().HardwareAddr; len(a) == len(mac) {
		mac = netaddr.MAC(a)
	}
	return mac
}

// kernelMAC is nil for the zero MAC: the kernel chooses.
func kernelMAC(m netaddr.MAC) net.HardwareAddr {
	if m.IsZero() {
		return nil
	}
	return m[:]
}

const (
	// lookupInterval is the pause between lookups of a link that is being deleted.
	lookupInterval = 50 * time.Microsecond
	// maxDeletions bounds the pending deletions: each takes a thread.
	maxDeletions = 32
)

// deletions has a token for each pending deletion.
var deletions = make(chan struct{}, maxDeletions)

// deletion is the pending deletion of a link of the node. The kernel removes the link under RTNL within 1 ms, and then
// waits some 20 ms for RCU callbacks before it replies. Once RTNL is released, the names of the link and of its peer
// are free. The kernel completes the deletion even if the agent is killed, and waits for several deletions at the same
// time.
type deletion struct {
	link  netlink.Link
	ended <-chan error
}

// beginDeletion deletes a link on a separate thread and socket. It blocks while maxDeletions deletions are pending.
func beginDeletion(l netlink.Link) *deletion {
	ended := make(chan error, 1)
	deletions <- struct{}{}
	go func() {
		defer func() { <-deletions }()
		ended <- withHandle(func(h *handle) error { return h.LinkDel(l) })
	}()
	return &deletion{l, ended}
}

// await returns when the link is deleted, or when the kernel has replied. A lookup of the link waits for RTNL, too.
func (d *deletion) await(agentNS *handle) error {
	for {
		select {
		case err := <-d.ended:
			return err
		case <-time.After(lookupInterval):
		}
		switch _, err := agentNS.LinkByIndex(d.link.Attrs().Index); {
		case errors.As(err, new(netlink.LinkNotFoundError)):
			return nil
		case err != nil:
			return <-d.ended
		}
	}
}
