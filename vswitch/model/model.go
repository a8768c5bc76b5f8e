// Package model is the control plane of the embedded dataplane: it validates the requests of the binary API, answers
// its dumps with VPP's semantics, and configures the packet path.
package model

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

// Model is the state of the control plane. Its methods are safe for concurrent use; the workers see each change as a
// whole. An error is a Retval where VPP would return one. Other errors are bugs or failures of the host.
type Model struct {
	*barrier
	log *slog.Logger

	Interfaces *Interfaces
	Kinds
	Features
	Layer2
	Layer3
	Traces *Traces

	fib *fib
}

// Kinds are the kinds of interfaces, which clients create and delete, and the sockets of memifs.
type Kinds struct {
	Loopbacks     *Loopbacks
	Taps          *Taps
	AFPackets     *AFPackets
	Memifs        *Memifs
	MemifSockets  *MemifSockets
	VXLANs        *VXLANs
	SubInterfaces *SubInterfaces
}

// Features act on the packets of the interfaces that they are applied to.
type Features struct {
	ACLs     *ACLs
	MACIPs   *MACIPs
	Policers *Policers
	Spans    *Spans
	Punt     *Punt
}

// Layer2 is the bridging of frames.
type Layer2 struct {
	Bridges *Bridges
	L2FIB   *L2FIB
}

// Layer3 is the forwarding of packets.
type Layer3 struct {
	Addresses  *Addresses
	IP6        *IP6
	Tables     *Tables
	Routes     *Routes
	Neighbours *Neighbours
	Proxies    *Proxies
}

// New returns a model with local0 and the default VRFs.
func New(engine Engine, log *slog.Logger) *Model {
	b := &barrier{engine: engine}
	interfaces := newInterfaces(b, log)
	fb := newFIB(engine, log, interfaces.byIndex)
	m := &Model{
		barrier:    b,
		log:        log,
		Interfaces: interfaces,
		Kinds:      newKinds(interfaces, fb),
		Features:   newFeatures(interfaces),
		Layer2:     newLayer2(interfaces),
		Layer3:     newLayer3(interfaces, fb),
		Traces:     &Traces{barrier: b, interfaces: interfaces},
		fib:        fb,
	}
	fb.tableDeleted = m.Proxies.deleteTableLocked
	fb.coverChanged = m.Neighbours.coverChangedLocked
	m.Interfaces.deleteLocked = m.deleteInterfaceLocked
	m.Interfaces.features = []feature{m.ACLs, m.MACIPs, m.Policers, m.Spans, m.Punt}
	defer m.change()()
	for _, family := range families {
		m.fib.makeTable(forward.TableKey{Family: family}, "")
	}
	m.Interfaces.byIndex[0] = newIface(Interface{Name: "local0", DevType: "local"})
	m.Interfaces.syncLocked(m.Interfaces.byIndex[0])
	return m
}

func newKinds(is *Interfaces, fb *fib) Kinds {
	sockets := &MemifSockets{barrier: is.barrier, byID: map[uint32]*memifSocket{}}
	return Kinds{
		Loopbacks:     &Loopbacks{barrier: is.barrier, interfaces: is},
		Taps:          &Taps{barrier: is.barrier, log: is.log, interfaces: is},
		AFPackets:     &AFPackets{barrier: is.barrier, log: is.log, interfaces: is},
		Memifs:        &Memifs{barrier: is.barrier, log: is.log, interfaces: is, sockets: sockets},
		MemifSockets:  sockets,
		VXLANs:        &VXLANs{barrier: is.barrier, interfaces: is, fib: fb},
		SubInterfaces: &SubInterfaces{barrier: is.barrier, interfaces: is},
	}
}

func newFeatures(is *Interfaces) Features {
	return Features{
		ACLs:     newACLs(is.barrier, is),
		MACIPs:   newMACIPs(is.barrier, is),
		Policers: newPolicers(is.barrier, is),
		Spans:    &Spans{barrier: is.barrier, interfaces: is},
		Punt:     newPunt(is.barrier, is),
	}
}

func newLayer2(is *Interfaces) Layer2 {
	domains := &bridgeDomains{engine: is.engine, log: is.log, byID: map[uint32]*bridge{}}
	return Layer2{
		Bridges: &Bridges{barrier: is.barrier, interfaces: is, domains: domains},
		L2FIB:   &L2FIB{barrier: is.barrier, interfaces: is, domains: domains},
	}
}

func newLayer3(is *Interfaces, fb *fib) Layer3 {
	b := is.barrier
	neighbours := newNeighbours(b, is, fb)
	v6 := &IP6{barrier: b, interfaces: is}
	return Layer3{
		Addresses:  &Addresses{barrier: b, interfaces: is, neighbours: neighbours, ip6: v6, fib: fb},
		IP6:        v6,
		Tables:     &Tables{barrier: b, interfaces: is, neighbours: neighbours, fib: fb},
		Routes:     &Routes{barrier: b, fib: fb},
		Neighbours: neighbours,
		Proxies:    &Proxies{barrier: b, interfaces: is, neighbours: neighbours, fib: fb},
	}
}

// SetAdminUp sets an interface up or down. As in VPP the link of Ethernet interfaces follows, and a sub-interface
// cannot be up while its parent is down.
func (m *Model) SetAdminUp(index uint32, up bool) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if i.AdminUp == up {
			return nil
		}
		if sub := kindOf[Sub](i); sub != nil && up && !m.Interfaces.byIndex[sub.Parent].AdminUp {
			return Unspecified
		}
		wasUp := i.LinkUp
		i.AdminUp = up
		if i.ethernet || i.hasPort() {
			i.LinkUp = up && !i.portFailed
		}
		if !up {
			m.Neighbours.deleteLearnedLocked(i, func(netip.Addr) bool { return true })
		}
		m.Interfaces.syncLocked(i)
		m.Addresses.updateConnectedLocked(i)
		m.fib.reinstall(i)
		if !up {
			m.Bridges.domains.flush(i.bridge, i)
		}
		m.Interfaces.notify(InterfaceEvent{Index: index, AdminUp: up, LinkUp: i.LinkUp && !wasUp})
		return nil
	})
}

// SetMAC sets the MAC address of an Ethernet interface. As in VPP its IPv6 link-local address does not change.
func (m *Model) SetMAC(index uint32, mac frame.MAC) error {
	return m.Interfaces.with(index, func(i *iface) error {
		if !i.ethernet {
			return Unimplemented
		}
		old := i.MAC
		i.MAC = mac
		m.Interfaces.syncLocked(i)
		m.Bridges.domains.updateBVI(i, old)
		return nil
	})
}

// deleteInterfaceLocked deletes an interface, its sub-interfaces, its port and all state that depends on it.
func (m *Model) deleteInterfaceLocked(i *iface) {
	for sub := range m.Interfaces.subsLocked(i) {
		m.deleteInterfaceLocked(sub)
	}
	m.Interfaces.closePortLocked(i)
	m.Memifs.detachLocked(i)
	m.Bridges.domains.leave(i)
	m.Neighbours.detachLocked(i)
	m.Addresses.detachLocked(i)
	m.Spans.detachLocked(i)
	m.Proxies.detachLocked(i)
	m.fib.detach(i)
	m.Punt.detachLocked(i)
	m.Tables.detachLocked(i)
	m.Interfaces.removeLocked(i)
	m.VXLANs.releaseLocked(i)
}

// Watch handles the events of the packet path until ctx ends.
func (m *Model) Watch(ctx context.Context, events <-chan forward.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			m.Handle(e)
		}
	}
}

// Handle handles one event. It ignores events of deleted interfaces.
func (m *Model) Handle(e forward.Event) {
	_ = m.Interfaces.with(e.Interface, func(i *iface) error {
		switch e.Kind {
		case forward.NeighbourLearned:
			n := Neighbour{Index: e.Interface, Addr: e.Addr, MAC: e.MAC}
			if err := m.Neighbours.addLocked(i, n); err != nil {
				m.log.Debug("neighbour not learned", "interface", i.Name, "address", e.Addr, "err", err)
			}
		case forward.PortDown:
			m.log.Warn("port failed", "interface", i.Name, "err", e.Err)
			m.setPortLocked(i, true)
		case forward.PortUp:
			m.log.Info("port recovered", "interface", i.Name)
			m.setPortLocked(i, false)
		case forward.PeerConnected, forward.PeerGone:
			m.Memifs.logPeerLocked(i, e)
			i.peer.MemifPeer = e.Peer
			m.setPortLocked(i, e.Kind == forward.PeerGone)
		}
		return nil
	})
}

func (m *Model) setPortLocked(i *iface, failed bool) {
	if !i.hasPort() || i.portFailed == failed {
		return
	}
	i.portFailed = failed
	// As in VPP the link of a memif is up while a client is connected, even if the interface is down.
	i.LinkUp = !failed && (i.AdminUp || kindOf[Memif](i) != nil)
	m.fib.reinstall(i)
	m.Interfaces.notify(InterfaceEvent{Index: i.Index, LinkUp: i.LinkUp})
}

// Drops returns the number of dropped packets by reason.
func (m *Model) Drops() map[string]uint64 { return m.engine.Drops() }

// Loads returns the load of the workers.
func (m *Model) Loads() []forward.Load { return m.engine.Loads() }
