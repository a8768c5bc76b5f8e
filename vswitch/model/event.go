package model

import (
	"context"
	"log/slog"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
)

// peerPause is how soon after the last news of a memif's client the next is not worth a line at Info.
const peerPause = 2 * time.Second

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
	case forward.PeerConnected, forward.PeerGone:
		m.logPeerLocked(i, e)
		i.peer = e.Peer
		m.setPortLocked(i, e.Kind == forward.PeerGone)
	}
}

// logPeerLocked says who came and went, but not of a client that does so all the time: it would fill the log.
func (m *Model) logPeerLocked(i *iface, e forward.Event) {
	level, now := slog.LevelInfo, m.now()
	if now.Sub(i.peerSeen) < peerPause && e.Kind == forward.PeerConnected {
		i.peerQuiet = true
	} else if e.Kind == forward.PeerConnected {
		i.peerQuiet = false
	}
	if i.peerQuiet {
		level = slog.LevelDebug
	}
	i.peerSeen = now
	if e.Kind == forward.PeerGone {
		m.log.Log(context.Background(), level, "memif disconnected", "interface", i.Name, "err", e.Err)
		return
	}
	m.log.Log(context.Background(), level, "memif connected", "interface", i.Name, "peer", e.Peer.Name, "peerInterface", e.Peer.Interface)
}

func (m *Model) setPortLocked(i *iface, failed bool) {
	if !i.hasPort() || i.portFailed == failed {
		return
	}
	i.portFailed = failed
	// As in VPP a memif connects while it is down, and its link is up then.
	i.LinkUp = !failed && (i.AdminUp || i.memif != nil)
	m.reviewLocked(i)
	m.notify(InterfaceEvent{Index: i.Index, LinkUp: i.LinkUp})
}
