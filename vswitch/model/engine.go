package model

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// Engine is the packet path as the model drives it; *forward.Engine is one. The model calls all
// but Meter's methods under its lock, one at a time.
type Engine interface {
	Ports
	Links
	Fibs
	Bridges
	Meter
}

// Ports opens and closes the machine's ends of interfaces.
type Ports interface {
	OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error)
	OpenAFPacket(index uint32, c port.AFPacketConfig) (port.AFPacketInfo, error)
	OpenMemif(index uint32, c port.MemifConfig) error
	ClosePort(index uint32) error
}

// Links are interfaces and their neighbours. Publish shows the workers what all of Links and Fibs have changed.
type Links interface {
	SetInterface(index uint32, i forward.Interface) error
	DelInterface(index uint32)
	SetNeighbour(index uint32, a netip.Addr, m frame.MAC, static bool) error
	DelNeighbour(index uint32, a netip.Addr)
	Publish()
}

// Fibs are the tables that packets are routed by, and the addresses in them that interfaces answer for.
type Fibs interface {
	AddTable(k forward.TableKey)
	DelTable(k forward.TableKey)
	SetRoute(k forward.TableKey, p netip.Prefix, r forward.Route) error
	DelRoute(k forward.TableKey, p netip.Prefix)
	SetProxies(p forward.Proxies)
}

// Bridges are bridge domains. All but SetBridge publish, and wait for the workers.
type Bridges interface {
	SetBridge(b forward.Bridge) error
	DelBridge(id uint32)
	FlushMACs(f forward.MACFilter)
	ForgetMAC(bridge uint32, m frame.MAC, on uint32) bool
	LearnedMACs(bridge uint32) []forward.LearnedMAC
}

// Meter tells what the packet path has done.
type Meter interface {
	Counters(index uint32) forward.Counters
	Drops() map[string]uint64
	Trace(index uint32, n int) []string
}
