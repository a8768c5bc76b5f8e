package model

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// Engine is the packet path, implemented by *forward.Engine. The model calls all methods except the methods
// of Meter under its lock.
type Engine interface {
	Ports
	Links
	Fibs
	Bridging
	Observer
}

// Observer shows the packet path.
type Observer interface {
	Meter
	Tracer
	Sessions
}

// Ports opens and closes the host side of interfaces.
type Ports interface {
	OpenTap(index uint32, c port.TapConfig) (port.TapInfo, error)
	OpenAFPacket(index uint32, c port.AFPacketConfig) (port.AFPacketInfo, error)
	OpenMemif(index uint32, c port.MemifConfig) error
	ClosePort(index uint32) error
	Adopter
}

// Adopter continues the ports of another process.
type Adopter interface {
	AdoptTap(index uint32, c port.TapConfig, descriptors []int) error
	AdoptAFPacket(index uint32, c port.AFPacketConfig, descriptors []int) error
	AdoptMemifSocket(s forward.OpenSocket) error
	AdoptMemif(index uint32, from forward.OpenPort) (*port.MemifPeer, error)
}

// Links changes interfaces and their neighbours. Publish makes all changes of Links and Fibs visible to the workers.
type Links interface {
	SetInterface(index uint32, i forward.Interface) error
	DelInterface(index uint32)
	SetNeighbour(index uint32, a netip.Addr, m frame.MAC, static bool) error
	DelNeighbour(index uint32, a netip.Addr)
	Publish()
}

// Fibs changes the routing tables and the proxied addresses.
type Fibs interface {
	AddTable(k forward.TableKey)
	DelTable(k forward.TableKey)
	SetRoute(k forward.TableKey, p netip.Prefix, r forward.Route) error
	DelRoute(k forward.TableKey, p netip.Prefix)
	SetProxies(p forward.Proxies)
}

// Bridging changes bridge domains. All methods but SetBridge publish and wait for the workers.
type Bridging interface {
	SetBridge(b forward.Bridge) error
	DelBridge(id uint32)
	FlushMACs(f forward.MACFilter)
	ForgetMAC(bridge uint32, m frame.MAC, on uint32) bool
	LearnedMACs(bridge uint32) []forward.LearnedMAC
}

// Sessions are the sessions that ACLs opened, which a handover continues.
type Sessions interface {
	Sessions(index uint32) []forward.Session
	RestoreSessions(index uint32, all []forward.Session)
}

// Meter returns counters of the packet path.
type Meter interface {
	Counters(index uint32) forward.Counters
	Drops() map[string]uint64
	Loads() []forward.Load
}

// Tracer shows what happened to packets.
type Tracer interface {
	Trace(index uint32, n int) []string
	StartTrace(node forward.InputNode, n int)
	ClearTrace()
	TracePaths(nameOf func(index uint32) string) [][]string
}
