package modeltest

import (
	"maps"
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

// BridgedMAC is the key of a learned MAC.
type BridgedMAC struct {
	Bridge uint32
	MAC    frame.MAC
}

// Learn makes a bridge domain learn a MAC on an interface.
func (e *Engine) Learn(bridge uint32, m frame.MAC, on uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state.Learned[BridgedMAC{bridge, m}] = on
}

// SetBridge records a bridge domain.
func (e *Engine) SetBridge(b forward.Bridge) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := slices.Clone(b.Members)
	if b.BVI != forward.NoInterface {
		all = append(all, forward.BridgeMember{Interface: b.BVI})
	}
	for _, m := range all {
		if _, ok := e.state.Interfaces[m.Interface]; !ok {
			return forward.ErrNoInterface
		}
	}
	b.Members = slices.Clone(b.Members)
	b.Configured = slices.Clone(b.Configured)
	e.state.Bridges[b.ID] = b
	e.unpublished = true
	return nil
}

// DelBridge deletes a bridge domain and its learned MACs.
func (e *Engine) DelBridge(id uint32) {
	e.FlushMACs(forward.MACFilter{Bridge: id, Interface: forward.NoInterface})
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.state.Bridges, id)
}

// FlushMACs deletes learned MACs, and publishes.
func (e *Engine) FlushMACs(f forward.MACFilter) {
	e.Publish()
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.state.Learned, func(m BridgedMAC, on uint32) bool {
		return (f.Bridge == 0 || f.Bridge == m.Bridge) && (f.Interface == forward.NoInterface || f.Interface == on)
	})
}

// ForgetMAC deletes a learned MAC, and publishes.
func (e *Engine) ForgetMAC(bridge uint32, m frame.MAC, on uint32) bool {
	e.Publish()
	e.mu.Lock()
	defer e.mu.Unlock()
	was, ok := e.state.Learned[BridgedMAC{bridge, m}]
	if !ok || on != forward.NoInterface && on != was {
		return false
	}
	delete(e.state.Learned, BridgedMAC{bridge, m})
	return true
}

// LearnedMACs lists the learned MACs.
func (e *Engine) LearnedMACs(bridge uint32) []forward.LearnedMAC {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []forward.LearnedMAC
	for m, on := range e.state.Learned {
		if bridge == 0 || bridge == m.Bridge {
			list = append(list, forward.LearnedMAC{Bridge: m.Bridge, MAC: m.MAC, Interface: on})
		}
	}
	return list
}
