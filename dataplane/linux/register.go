package linux

import (
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Lane is the scheduler's lane of the kinds of this package but files: the kernel does them under one lock.
const Lane = "netlink"

// Kinds are the kinds of this package, typed.
type Kinds struct {
	Namespace  kvscheduler.KindOf[wire.Namespace]
	TapPeer    kvscheduler.KindOf[wire.TapPeer]
	Veth       kvscheduler.KindOf[wire.Veth]
	Link       kvscheduler.KindOf[wire.Link]
	VLAN       kvscheduler.KindOf[wire.VLAN]
	Address    kvscheduler.KindOf[wire.LinuxAddress]
	Route      kvscheduler.KindOf[wire.LinuxRoute]
	Neighbour  kvscheduler.KindOf[wire.LinuxNeighbour]
	Hardening  kvscheduler.KindOf[wire.Hardening]
	Sysctl     kvscheduler.KindOf[wire.Sysctl]
	Masquerade kvscheduler.KindOf[wire.Masquerade]
	TunnelNAT  kvscheduler.KindOf[wire.TunnelNAT]
	Uplink     kvscheduler.KindOf[wire.Uplink]
	File       kvscheduler.KindOf[wire.File]
}

// All names the kinds.
func (k Kinds) All() []kvscheduler.Kind {
	return []kvscheduler.Kind{
		k.Namespace.ID(), k.TapPeer.ID(), k.Veth.ID(), k.Link.ID(), k.VLAN.ID(), k.Address.ID(), k.Route.ID(), k.Neighbour.ID(),
		k.Hardening.ID(), k.Sysctl.ID(), k.Masquerade.ID(), k.TunnelNAT.ID(), k.Uplink.ID(), k.File.ID(),
	}
}

// Options say what the kinds are told of the names of objects. The zero value is right where no object outlives its scheduler.
type Options struct {
	// VethName names the object that a veth belongs to, from the name and the alias of the node's end, and its name in the
	// pod; ok is false for a link of another kind or owner. With it, veths are found that an earlier agent made and did not
	// record.
	VethName func(host, alias string) (object, ifName string, ok bool)

	// Later knows what later plugins of CNI chains changed of pods' links; nil: nothing.
	Later *Later
}

// Register adds the kinds to a scheduler.
func Register(s *kvscheduler.Scheduler, o Options) (k Kinds, err error) {
	if k.Namespace, err = kvscheduler.Register(s, namespaceDescriptor()); err != nil {
		return k, err
	}
	if k.TapPeer, err = kvscheduler.Register(s, tapPeerDescriptor(o.Later)); err != nil {
		return k, err
	}
	if k.Veth, err = kvscheduler.Register(s, vethDescriptor(o)); err != nil {
		return k, err
	}
	if k.Link, err = kvscheduler.Register(s, linkDescriptor()); err != nil {
		return k, err
	}
	if k.VLAN, err = kvscheduler.Register(s, vlanDescriptor()); err != nil {
		return k, err
	}
	if k.Address, err = kvscheduler.Register(s, addressDescriptor()); err != nil {
		return k, err
	}
	if k.Route, err = kvscheduler.Register(s, routeDescriptor(o.Later)); err != nil {
		return k, err
	}
	if k.Neighbour, err = kvscheduler.Register(s, neighbourDescriptor()); err != nil {
		return k, err
	}
	if k.Hardening, err = kvscheduler.Register(s, hardeningDescriptor()); err != nil {
		return k, err
	}
	if k.Sysctl, err = kvscheduler.Register(s, sysctlDescriptor()); err != nil {
		return k, err
	}
	if k.Masquerade, err = kvscheduler.Register(s, masqueradeDescriptor()); err != nil {
		return k, err
	}
	if k.TunnelNAT, err = kvscheduler.Register(s, tunnelNATDescriptor()); err != nil {
		return k, err
	}
	if k.Uplink, err = kvscheduler.Register(s, uplinkDescriptor()); err != nil {
		return k, err
	}
	k.File, err = kvscheduler.Register(s, fileDescriptor())
	return k, err
}
