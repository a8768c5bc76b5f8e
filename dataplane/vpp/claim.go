package vpp

import (
	"sync"

	"github.com/weftnet/weft/wire"
)

// claims say which object needs which parts of the dataplane's proxy ARP: the dataplane does not know, and the last one
// of them takes the part along. A claim too many leaves a part behind until the next dump.
type claims struct {
	mu sync.Mutex
	of map[string]claim // by object
}

// claim is what an object needs; doubted: the last dump did not know the object.
type claim struct {
	Proxy
	doubted bool
}

func (c *claims) set(name string, m Proxy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[name] = claim{Proxy: m}
}

func (c *claims) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, name)
}

// keep drops the claims of objects that nobody knows, two dumps in a row: one may run beside the transaction that makes
// an object, and not know it yet.
func (c *claims) keep(known map[string]wire.ProxyARP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, old := range c.of {
		if _, ok := known[name]; ok {
			continue
		}
		if old.doubted {
			delete(c.of, name)
			continue
		}
		c.of[name] = claim{old.Proxy, true}
	}
}

// need tells whether an object needs the range, and whether one needs the interface.
func (c *claims) need(m Proxy) (needsRange, needsInterface bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.of {
		needsRange = needsRange || other.Range == m.Range
		needsInterface = needsInterface || other.Interface == m.Interface
	}
	return needsRange, needsInterface
}
