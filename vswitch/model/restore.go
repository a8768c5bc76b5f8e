package model

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/forward"
)

// errState means that a state contradicts itself.
var errState = errors.New("invalid state")

// Passed are the descriptors that belong to a state.
type Passed struct {
	Ports   map[uint32]forward.OpenPort // by interface
	Sockets []forward.OpenSocket
}

// Restore puts a state into a new model, before its engine forwards packets. Ports continue with the descriptors of
// their interface, which Restore removes from the map and owns, as it does with the sockets. A tap or packet socket
// without descriptors, or with unusable ones, is opened as a failed port is; such a memif waits for a client. After an
// error the model is of no use.
func (m *Model) Restore(s *State, passed *Passed) error {
	defer m.change()()
	m.Interfaces.lastIndex = s.LastIndex
	m.Traces.frames = s.Traced
	for _, step := range []func(*State) error{
		m.Tables.restoreLocked, m.MemifSockets.restoreLocked, m.ACLs.restoreLocked, m.MACIPs.restoreLocked,
		m.Policers.restoreLocked, m.Proxies.restoreLocked, m.Punt.restoreLocked, m.restoreInterfacesLocked,
		m.checkReferencesLocked,
	} {
		if err := step(s); err != nil {
			return err
		}
	}
	if err := m.restorePortsLocked(passed); err != nil {
		return err
	}
	for _, step := range []func(*State) error{
		m.restoreLinksLocked, m.Bridges.restoreLocked, m.Routes.restoreLocked,
	} {
		if err := step(s); err != nil {
			return err
		}
	}
	m.Proxies.syncLocked()
	return nil
}

func (m *Model) restoreInterfacesLocked(s *State) error {
	clear(m.Interfaces.byIndex)
	for n := range s.Interfaces {
		one := &s.Interfaces[n]
		kind, valid := one.kind()
		if one.Index >= forward.MaxInterfaces || m.Interfaces.byIndex[one.Index] != nil || !valid ||
			(kind == nil) != (one.Index == 0) {
			return fmt.Errorf("%w: interface %d (%s)", errState, one.Index, one.Name)
		}
		i := newIface(one.Interface)
		i.kind = kind
		i.ethernet = kind != nil && !(one.Memif != nil && one.Memif.Mode == MemifIP)
		i.macip = one.MACIP
		i.acls = one.ACLs
		i.proxyARP = one.ProxyARP
		i.proxyND = one.ProxyND
		i.portFailed = one.PortFailed
		if one.Mirrors != nil {
			i.mirrors = one.Mirrors
		}
		i.policers = one.Policers
		i.addresses = one.Addresses
		i.donor = one.Donor
		i.ip6 = ip6{one.LinkLocal, one.IP6Locks}
		i.vrfs = map[forward.Family]uint32{forward.IP4: one.VRF4, forward.IP6: one.VRF6}
		for _, h := range one.ProxyHosts {
			i.proxyHosts[h.Addr] = forward.TableKey{Family: forward.IP6, ID: h.Table}
		}
		if err := m.Neighbours.restoreLocked(i, one.Neighbours); err != nil {
			return err
		}
		m.Interfaces.byIndex[i.Index] = i
	}
	if m.Interfaces.byIndex[0] == nil {
		return fmt.Errorf("%w: no interface 0", errState)
	}
	return nil
}

// checker checks an interface of a state after all interfaces are known.
type checker interface {
	// checkLocked checks that the objects that the interface refers to exist.
	checkLocked(i *iface) error
}

// checkReferencesLocked checks that the objects that interfaces refer to exist, and counts the users of VRFs.
func (m *Model) checkReferencesLocked(*State) error {
	checkers := []checker{m.SubInterfaces, m.Memifs, m.Tables, m.Addresses, m.ACLs, m.Policers, m.Spans}
	for _, i := range m.Interfaces.byIndex {
		for _, part := range checkers {
			if err := part.checkLocked(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// restorePortsLocked continues the ports of interfaces.
func (m *Model) restorePortsLocked(passed *Passed) error {
	for n, socket := range passed.Sockets {
		if err := m.engine.AdoptMemifSocket(socket); err != nil {
			passed.Sockets = passed.Sockets[n+1:]
			return err
		}
	}
	passed.Sockets = nil
	for _, index := range m.Interfaces.indexesLocked() {
		i := m.Interfaces.byIndex[index]
		from, is := passed.Ports[index]
		delete(passed.Ports, index)
		err := m.restorePortLocked(i, from)
		if err != nil && is {
			m.log.Warn("port not taken over; it is opened again", "interface", i.Name, "err", err)
			from = forward.OpenPort{}
			is = false
			err = m.restorePortLocked(i, from)
		}
		if err != nil {
			return fmt.Errorf("port of %s: %w", i.Name, err)
		}
		if i.hasPort() && kindOf[Memif](i) == nil && !is {
			i.portFailed = true
			i.LinkUp = false
		}
	}
	return nil
}

func (m *Model) restorePortLocked(i *iface, from forward.OpenPort) error {
	switch kind := i.kind.(type) {
	case *Tap:
		config, err := kind.config()
		if err != nil {
			return errors.Join(err, closeEach(from.Descriptors))
		}
		return m.engine.AdoptTap(i.Index, config, from.Descriptors)
	case *AFPacket:
		return m.engine.AdoptAFPacket(i.Index, kind.config(), from.Descriptors)
	case *Memif:
		if err := m.engine.OpenMemif(i.Index, kind.config(m.MemifSockets.byID[kind.Socket], i.Name)); err != nil {
			return errors.Join(err, closeEach(from.Descriptors))
		}
		m.restorePeerLocked(i, from)
		return nil
	}
	return closeEach(from.Descriptors)
}

// restorePeerLocked continues the connection of a memif, if it has one.
func (m *Model) restorePeerLocked(i *iface, from forward.OpenPort) {
	if from.Memif != nil {
		var err error
		if i.peer.MemifPeer, err = m.engine.AdoptMemif(i.Index, from); err != nil {
			m.log.Warn("memif not taken over; its client has to connect again", "interface", i.Name, "err", err)
		}
	}
	connected := i.peer.MemifPeer != nil
	i.portFailed = !connected
	i.LinkUp = connected
}

func closeEach(descriptors []int) error {
	var errs []error
	for _, fd := range descriptors {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

// restoreLinksLocked writes interfaces and neighbours to the engine.
func (m *Model) restoreLinksLocked(s *State) error {
	for _, index := range m.Interfaces.indexesLocked() {
		i := m.Interfaces.byIndex[index]
		m.Interfaces.syncLocked(i)
		for a, n := range i.neighbours {
			if err := m.engine.SetNeighbour(index, a, n.mac, n.static); err != nil {
				return fmt.Errorf("neighbour %v of %s: %w", a, i.Name, err)
			}
		}
		if i.AdminUp {
			i.connected = i.connectedRoutes()
		}
	}
	for n := range s.Interfaces {
		m.engine.RestoreSessions(s.Interfaces[n].Index, s.Interfaces[n].Sessions)
	}
	return nil
}
