package modeltest

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/forward"
)

// OpenTunnel remembers the tunnel's source. Its socket works unless FailTap says otherwise.
func (e *Engine) OpenTunnel(index uint32, source netip.AddrPort) (up bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hasPortLocked(index) {
		return false, forward.ErrPortExists
	}
	e.state.Tunnels[index] = source
	return e.failTap == nil, nil
}
