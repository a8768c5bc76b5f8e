package modeltest

import (
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/port"
)

// OpenMemif remembers the memif. Nobody connects by itself: see forward.PeerConnected.
func (e *Engine) OpenMemif(index uint32, c port.MemifConfig) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failTap != nil {
		return e.failTap
	}
	if e.hasPortLocked(index) {
		return forward.ErrPortExists
	}
	e.state.Memifs[index] = c
	return nil
}

func (e *Engine) hasPortLocked(index uint32) bool {
	_, tap := e.state.Taps[index]
	_, link := e.state.AFPackets[index]
	_, memif := e.state.Memifs[index]
	return tap || link || memif
}
