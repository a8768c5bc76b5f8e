package modeltest

import "github.com/weftnet/weft/vswitch/forward"

// SetProxies remembers them in the place of those before.
func (e *Engine) SetProxies(p forward.Proxies) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state.Proxies = p
	e.unshown = true
}
