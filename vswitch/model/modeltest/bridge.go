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

// bridging is a model.Bridging.
type bridging struct{ *recorder }

// Learn makes a bridge domain learn a MAC on an interface.
func (bs *bridging) Learn(bridge uint32, m frame.MAC, on uint32) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	bs.state.Learned[BridgedMAC{bridge, m}] = on
}

// SetBridge records a bridge domain.
func (bs *bridging) SetBridge(b forward.Bridge) error {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	all := slices.Clone(b.Members)
	if b.BVI != forward.NoInterface {
		all = append(all, forward.BridgeMember{Interface: b.BVI})
	}
	for _, m := range all {
		if _, ok := bs.state.Interfaces[m.Interface]; !ok {
			return forward.ErrNoInterface
		}
	}
	b.Members = slices.Clone(b.Members)
	b.Configured = slices.Clone(b.Configured)
	bs.state.Bridges[b.ID] = b
	bs.unpublished = true
	return nil
}

// DelBridge deletes a bridge domain and its learned MACs.
func (bs *bridging) DelBridge(id uint32) {
	bs.FlushMACs(forward.MACFilter{Bridge: id, Interface: forward.NoInterface})
	bs.mu.Lock()
	defer bs.mu.Unlock()
	delete(bs.state.Bridges, id)
}

// FlushMACs deletes learned MACs, and publishes.
func (bs *bridging) FlushMACs(f forward.MACFilter) {
	bs.Publish()
	bs.mu.Lock()
	defer bs.mu.Unlock()
	maps.DeleteFunc(bs.state.Learned, func(m BridgedMAC, on uint32) bool {
		return (f.Bridge == 0 || f.Bridge == m.Bridge) && (f.Interface == forward.NoInterface || f.Interface == on)
	})
}

// ForgetMAC deletes a learned MAC, and publishes.
func (bs *bridging) ForgetMAC(bridge uint32, m frame.MAC, on uint32) bool {
	bs.Publish()
	bs.mu.Lock()
	defer bs.mu.Unlock()
	was, ok := bs.state.Learned[BridgedMAC{bridge, m}]
	if !ok || on != forward.NoInterface && on != was {
		return false
	}
	delete(bs.state.Learned, BridgedMAC{bridge, m})
	return true
}

// LearnedMACs lists the learned MACs.
func (bs *bridging) LearnedMACs(bridge uint32) []forward.LearnedMAC {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	var list []forward.LearnedMAC
	for m, on := range bs.state.Learned {
		if bridge == 0 || bridge == m.Bridge {
			list = append(list, forward.LearnedMAC{Bridge: m.Bridge, MAC: m.MAC, Interface: on})
		}
	}
	return list
}
