package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

// L2Entry is an entry of a bridge domain's MAC table.
type L2Entry struct {
	Bridge    uint32
	MAC       frame.MAC
	Interface uint32 // NoIndex of a filter
	Static    bool   // it never moves
	Filter    bool   // frames from and to it are dropped; always static
	BVI       bool
	Learned   bool
	Age       time.Duration // of a learned one, since it was seen last
}

// AddL2Entry sets an entry, in place of one that was set or learned. As in VPP the interface must be in a bridge domain; if
// it is another one, nothing is forwarded there.
func (m *Model) AddL2Entry(e L2Entry) error {
	defer m.change()()
	b := m.bridges[e.Bridge]
	if b == nil {
		return NoSuchEntry
	}
	if e.Filter {
		e.Interface, e.Static, e.BVI = NoIndex, true, false
	} else if i := m.interfaces[e.Interface]; i == nil || i.bridge == nil {
		return InvalidSwIfIndex
	}
	return m.fixLocked(b, e)
}

// DeleteL2Entry removes an entry, a learned one too. An interface other than 0 must be the entry's.
func (m *Model) DeleteL2Entry(e L2Entry) error {
	defer m.change()()
	b := m.bridges[e.Bridge]
	if b == nil {
		return NoSuchEntry
	}
	old, fixed := b.fixed[e.MAC]
	forgotten := false
	if !(fixed && old.Static) && e.Interface != NoIndex {
		on := e.Interface
		if on == 0 {
			on = NoIndex
		}
		forgotten = m.engine.ForgetMAC(b.ID, e.MAC, on)
	}
	if !forgotten && (!fixed || e.Interface != 0 && e.Interface != old.Interface) {
		return NoSuchEntry
	}
	delete(b.fixed, e.MAC)
	return m.setBridgeLocked(b)
}

// L2Entries lists the MAC table of a bridge domain, or all for NoIndex, by bridge domain and MAC.
func (m *Model) L2Entries(id uint32) []L2Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	type key struct {
		bridge uint32
		mac    frame.MAC
	}
	all := map[key]L2Entry{}
	for _, b := range m.bridges {
		for mac, e := range b.fixed {
			all[key{b.ID, mac}] = e
		}
	}
	for _, l := range m.engine.LearnedMACs(0) {
		if k := (key{l.Bridge, l.MAC}); !all[k].Static {
			all[k] = L2Entry{Bridge: l.Bridge, MAC: l.MAC, Interface: l.Interface, Learned: true, Age: l.Age}
		}
	}
	maps.DeleteFunc(all, func(k key, _ L2Entry) bool { return id != NoIndex && id != k.bridge })
	return slices.SortedFunc(maps.Values(all), func(a, b L2Entry) int {
		return cmp.Or(cmp.Compare(a.Bridge, b.Bridge), compareMACs(a.MAC, b.MAC))
	})
}

// FlushBridge forgets what a bridge domain has learned.
func (m *Model) FlushBridge(id uint32) error {
	defer m.change()()
	if m.bridges[id] == nil && id != 0 {
		return NoSuchEntry
	}
	if id != 0 {
		m.engine.FlushMACs(forward.MACFilter{Bridge: id, Interface: NoIndex})
	}
	return nil
}

// FlushInterface forgets what was learned on an interface.
func (m *Model) FlushInterface(index uint32) error {
	defer m.change()()
	if _, err := m.interfaceLocked(index); err != nil {
		return err
	}
	m.engine.FlushMACs(forward.MACFilter{Interface: index})
	return nil
}

// FlushBridges forgets all that was learned.
func (m *Model) FlushBridges() {
	defer m.change()()
	m.engine.FlushMACs(forward.MACFilter{Interface: NoIndex})
}

// fixLocked takes in an entry; what was learned of its MAC is forgotten.
func (m *Model) fixLocked(b *bridge, e L2Entry) error {
	b.fixed[e.MAC] = e
	err := m.setBridgeLocked(b)
	m.engine.ForgetMAC(b.ID, e.MAC, NoIndex)
	return err
}
