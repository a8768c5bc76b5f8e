package modeltest

import (
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/port"
)

// OpenAFPacket remembers the link. Any is there; none is attached to twice.
func (e *Engine) OpenAFPacket(index uint32, c port.AFPacketConfig) (port.AFPacketInfo, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failTap != nil {
		return port.AFPacketInfo{}, e.failTap
	}
	if e.hasPortLocked(index) {
		return port.AFPacketInfo{}, forward.ErrPortExists
	}
	e.state.AFPackets[index] = c
	return port.AFPacketInfo{Ifindex: int(index) + 1, MTU: 1500}, nil
}
