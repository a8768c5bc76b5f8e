package model

import (
	"github.com/weftnet/weft/vswitch/forward"
)

// Traffic is an interface with what has passed through it.
type Traffic struct {
	Interface
	forward.Counters
}

// Traffic lists all interfaces with their counters.
func (m *Model) Traffic() []Traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Traffic
	for _, n := range m.indexesLocked() {
		list = append(list, Traffic{Interface: m.interfaces[n].Interface, Counters: m.engine.Counters(n)})
	}
	return list
}

// Drops are the packet path's drops by reason.
func (m *Model) Drops() map[string]uint64 { return m.engine.Drops() }

// Trace is what an interface's port received last.
type Trace struct {
	Name  string
	Lines []string
}

// SetTrace says how many frames of each port Traces tells; 0 for none. The packet path
// remembers the last ones always.
func (m *Model) SetTrace(frames int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.traced = frames
}

// Traces lists the ports that received something, with their last frames.
func (m *Model) Traces() []Trace {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Trace
	for _, n := range m.indexesLocked() {
		if m.traced == 0 || !m.interfaces[n].hasPort() {
			continue
		}
		if lines := m.engine.Trace(n, m.traced); len(lines) > 0 {
			list = append(list, Trace{Name: m.interfaces[n].Name, Lines: lines})
		}
	}
	return list
}
