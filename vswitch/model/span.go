package model

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// SpanState selects the frames of a mirror, with the numbers of VPP's API.
type SpanState uint32

// The directions of a mirror, as seen by the dataplane. SpanOff removes the mirror.
const (
	SpanOff SpanState = 0
	SpanRx  SpanState = 1
	SpanTx  SpanState = 2
	spanAll SpanState = SpanRx | SpanTx
)

// Span is a mirror: copies of an interface's frames go to another interface.
type Span struct {
	From, To uint32
	State    SpanState
}

// Spans are the mirrors of interfaces.
type Spans struct {
	*barrier
	interfaces *Interfaces
}

// Set sets or removes a mirror between two interfaces with ports. An interface may have several mirrors. To NoIndex
// with SpanOff removes all mirrors of From.
//
// The errors are those of span_add_delete_entry (VPP 25.10, src/vnet/span/span.c): an unknown state (UNIMPLEMENTED), no
// interface, or the same one (INVALID_INTERFACE). Unlike VPP, which stores any number, SetSpan refuses interfaces that
// do not exist, and interfaces without a port (UNSUPPORTED). The deletion of an interface removes its mirrors.
func (ss *Spans) Set(s Span) error {
	if s.State > spanAll {
		return Unimplemented
	}
	if s.From == NoIndex || s.To == NoIndex && s.State != SpanOff || s.From == s.To {
		return InvalidInterface
	}
	return ss.interfaces.with(s.From, func(i *iface) error {
		if s.State == SpanOff {
			i.unmirror(s.To)
			ss.interfaces.syncLocked(i)
			return nil
		}
		to, err := ss.interfaces.findLocked(s.To)
		if err != nil {
			return err
		}
		if !i.hasPort() || !to.hasPort() {
			return Unsupported
		}
		if i.mirrors == nil {
			i.mirrors = map[uint32]SpanState{}
		}
		i.mirrors[s.To] = s.State
		ss.interfaces.syncLocked(i)
		return nil
	})
}

// List lists the mirrors by interface and target.
func (ss *Spans) List() []Span {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	var all []Span
	for _, from := range ss.interfaces.indexesLocked() {
		mirrors := ss.interfaces.byIndex[from].mirrors
		for _, to := range slices.Sorted(maps.Keys(mirrors)) {
			all = append(all, Span{From: from, To: to, State: mirrors[to]})
		}
	}
	return all
}

// unmirror removes the mirror to an interface, or all mirrors for NoIndex.
func (i *iface) unmirror(to uint32) {
	if to == NoIndex {
		clear(i.mirrors)
	}
	delete(i.mirrors, to)
}

// detachLocked removes the mirrors to an interface that is being deleted.
func (ss *Spans) detachLocked(target *iface) {
	for _, i := range ss.interfaces.byIndex {
		if _, mirrored := i.mirrors[target.Index]; mirrored {
			i.unmirror(target.Index)
			ss.interfaces.syncLocked(i)
		}
	}
}

func (ss *Spans) configureLocked(i *iface, f *forward.Interface) {
	for _, to := range slices.Sorted(maps.Keys(i.mirrors)) {
		state := i.mirrors[to]
		f.Mirrors = append(f.Mirrors, forward.Mirror{To: to, Rx: state&SpanRx != 0, Tx: state&SpanTx != 0})
	}
}

// checkLocked checks that the targets of an interface exist.
func (ss *Spans) checkLocked(i *iface) error {
	for target, state := range i.mirrors {
		if ss.interfaces.byIndex[target] == nil || state == SpanOff || state > spanAll {
			return fmt.Errorf("%w: %s has a mirror to interface %d", errState, i.Name, target)
		}
	}
	return nil
}
