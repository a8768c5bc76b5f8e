package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

// L2Entry is an entry of the MAC table of a bridge domain.
type L2Entry struct {
	Bridge    uint32
	MAC       frame.MAC
	Interface uint32 // NoIndex for a filter
	Static    bool   // learning does not change it
	Filter    bool   // drop frames from and to the MAC; always static
	BVI       bool
	Learned   bool
	Age       time.Duration // time since a learned MAC was last seen
}

// L2FIB has the MAC tables of bridge domains.
type L2FIB struct {
	*barrier
	interfaces *Interfaces
	domains    *bridgeDomains
}

// Add adds or replaces an entry. As in VPP the interface must be in a bridge domain; if that is another one,
// frames to the MAC are dropped.
func (l *L2FIB) Add(e L2Entry) error {
	defer l.change()()
	b := l.domains.byID[e.Bridge]
	if b == nil {
		return NoSuchEntry
	}
	if e.Filter {
		e.Interface = NoIndex
		e.Static = true
		e.BVI = false
	} else if i := l.interfaces.byIndex[e.Interface]; i == nil || i.bridge == nil {
		return InvalidSwIfIndex
	}
	return l.domains.fix(b, e)
}

// Delete deletes a configured or learned entry. An interface other than 0 must match.
func (l *L2FIB) Delete(e L2Entry) error {
	defer l.change()()
	b := l.domains.byID[e.Bridge]
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
		forgotten = l.engine.ForgetMAC(b.ID, e.MAC, on)
	}
	if !forgotten && (!fixed || e.Interface != 0 && e.Interface != old.Interface) {
		return NoSuchEntry
	}
	delete(b.fixed, e.MAC)
	return l.domains.sync(b)
}

// List lists the MAC table of a bridge domain, or all tables for NoIndex, by bridge domain and MAC.
func (l *L2FIB) List(id uint32) []L2Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	type key struct {
		bridge uint32
		mac    frame.MAC
	}
	all := map[key]L2Entry{}
	for _, b := range l.domains.byID {
		for mac, e := range b.fixed {
			all[key{b.ID, mac}] = e
		}
	}
	for _, l := range l.engine.LearnedMACs(0) {
		if k := (key{l.Bridge, l.MAC}); !all[k].Static {
			all[k] = L2Entry{Bridge: l.Bridge, MAC: l.MAC, Interface: l.Interface, Learned: true, Age: l.Age}
		}
	}
	maps.DeleteFunc(all, func(k key, _ L2Entry) bool { return id != NoIndex && id != k.bridge })
	return slices.SortedFunc(maps.Values(all), func(a, b L2Entry) int {
		return cmp.Or(cmp.Compare(a.Bridge, b.Bridge), compareMACs(a.MAC, b.MAC))
	})
}

// FlushBridge deletes the learned MACs of a bridge domain.
func (l *L2FIB) FlushBridge(id uint32) error {
	defer l.change()()
	if l.domains.byID[id] == nil && id != 0 {
		return NoSuchEntry
	}
	if id != 0 {
		l.engine.FlushMACs(forward.MACFilter{Bridge: id, Interface: NoIndex})
	}
	return nil
}

// FlushInterface deletes the MACs learned on an interface.
func (l *L2FIB) FlushInterface(index uint32) error {
	return l.interfaces.with(index, func(*iface) error {
		l.engine.FlushMACs(forward.MACFilter{Interface: index})
		return nil
	})
}

// FlushAll deletes all learned MACs.
func (l *L2FIB) FlushAll() {
	defer l.change()()
	l.engine.FlushMACs(forward.MACFilter{Interface: NoIndex})
}
