package model

import (
	"context"

	"github.com/weftnet/weft/vswitch/forward"
)

// Watch takes in what the packet path does by itself, until ctx ends.
func (m *Model) Watch(ctx context.Context, events <-chan forward.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			m.Take(e)
		}
	}
}

// Take takes in one event. One about an interface that is gone is late, and nothing.
func (m *Model) Take(e forward.Event) {
	defer m.change()()
	i, ok := m.interfaces[e.Interface]
	if !ok {
		return
	}
	switch e.Kind {
	case forward.NeighbourLearned:
		n := Neighbour{Index: e.Interface, Addr: e.Addr, MAC: e.MAC}
		if err := m.addNeighbourLocked(i, n); err != nil {
			m.log.Debug("neighbour not learned", "interface", i.Name, "address", e.Addr, "err", err)
		}
	case forward.PortDown:
		m.log.Warn("port failed", "interface", i.Name, "err", e.Err)
		m.setPortLocked(i, true)
	case forward.PortUp:
		m.log.Info("port recovered", "interface", i.Name)
		m.setPortLocked(i, false)
	}
}

func (m *Model) setPortLocked(i *iface, failed bool) {
	if !i.hasPort() || i.portFailed == failed {
		return
	}
	i.portFailed = failed
	i.LinkUp = !failed && i.AdminUp
	m.reviewLocked(i)
	m.notify(InterfaceEvent{Index: i.Index, LinkUp: i.LinkUp})
}
