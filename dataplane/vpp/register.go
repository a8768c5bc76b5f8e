package vpp

import (
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Lane is the scheduler's lane of all kinds of this package: the dataplane does one thing after the other anyway.
const Lane = "vpp"

// Kinds are the kinds of this package, typed.
type Kinds struct {
	VRF          kvscheduler.KindOf[wire.VRF]
	MemifSocket  kvscheduler.KindOf[wire.MemifSocket]
	Interface    kvscheduler.KindOf[wire.Interface]
	InterfaceVRF kvscheduler.KindOf[wire.InterfaceVRF]
	Address      kvscheduler.KindOf[wire.Address]
	Unnumbered   kvscheduler.KindOf[wire.Unnumbered]
	Route        kvscheduler.KindOf[wire.Route]
	Neighbour    kvscheduler.KindOf[wire.Neighbour]
	Bridge       kvscheduler.KindOf[wire.BridgeDomain]
	BridgeMember kvscheduler.KindOf[wire.BridgeMember]
	L2FIB        kvscheduler.KindOf[wire.L2FIB]
	MACIP        kvscheduler.KindOf[wire.MACIP]
	ACL          kvscheduler.KindOf[wire.ACL]
	InterfaceACL kvscheduler.KindOf[wire.InterfaceACL]
	ProxyARP     kvscheduler.KindOf[wire.ProxyARP]
	PuntRedirect kvscheduler.KindOf[wire.PuntRedirect]
}

// All names the kinds, for Scheduler.Lost when a new connection to the dataplane was made.
func (k Kinds) All() []kvscheduler.Kind {
	return []kvscheduler.Kind{
		k.VRF.ID(), k.MemifSocket.ID(), k.Interface.ID(), k.InterfaceVRF.ID(), k.Address.ID(), k.Unnumbered.ID(), k.Route.ID(), k.Neighbour.ID(),
		k.Bridge.ID(), k.BridgeMember.ID(), k.L2FIB.ID(), k.MACIP.ID(), k.ACL.ID(), k.InterfaceACL.ID(), k.ProxyARP.ID(), k.PuntRedirect.ID(),
	}
}

// Register adds the kinds to a scheduler; c realises them.
func Register(s *kvscheduler.Scheduler, c *Client) (k Kinds, err error) {
	if k.VRF, err = kvscheduler.Register(s, vrfDescriptor(c)); err != nil {
		return k, err
	}
	if k.MemifSocket, err = kvscheduler.Register(s, memifSocketDescriptor(c)); err != nil {
		return k, err
	}
	if k.Interface, err = kvscheduler.Register(s, interfaceDescriptor(c)); err != nil {
		return k, err
	}
	if k.InterfaceVRF, err = kvscheduler.Register(s, membershipDescriptor(c)); err != nil {
		return k, err
	}
	if k.Address, err = kvscheduler.Register(s, addressDescriptor(c)); err != nil {
		return k, err
	}
	if k.Unnumbered, err = kvscheduler.Register(s, unnumberedDescriptor(c)); err != nil {
		return k, err
	}
	if k.Route, err = kvscheduler.Register(s, routeDescriptor(c)); err != nil {
		return k, err
	}
	if k.Neighbour, err = kvscheduler.Register(s, neighbourDescriptor(c)); err != nil {
		return k, err
	}
	if err = k.registerL2(s, c); err != nil {
		return k, err
	}
	if err = k.registerACLs(s, c); err != nil {
		return k, err
	}
	if k.ProxyARP, err = kvscheduler.Register(s, proxyARPDescriptor(c)); err != nil {
		return k, err
	}
	k.PuntRedirect, err = kvscheduler.Register(s, puntRedirectDescriptor(c))
	return k, err
}

// registerL2 adds the kinds of layer 2.
func (k *Kinds) registerL2(s *kvscheduler.Scheduler, c *Client) (err error) {
	if k.Bridge, err = kvscheduler.Register(s, bridgeDescriptor(c)); err != nil {
		return err
	}
	if k.BridgeMember, err = kvscheduler.Register(s, bridgeMemberDescriptor(c)); err != nil {
		return err
	}
	k.L2FIB, err = kvscheduler.Register(s, l2FIBDescriptor(c))
	return err
}

// registerACLs adds the kinds of the ACL plugin.
func (k *Kinds) registerACLs(s *kvscheduler.Scheduler, c *Client) (err error) {
	if k.MACIP, err = kvscheduler.Register(s, macipDescriptor(c)); err != nil {
		return err
	}
	if k.ACL, err = kvscheduler.Register(s, aclDescriptor(c)); err != nil {
		return err
	}
	k.InterfaceACL, err = kvscheduler.Register(s, interfaceACLDescriptor(c))
	return err
}

// ref names an object of any room's kind.
func ref(kind, name string) kvscheduler.Ref {
	return kvscheduler.Ref{Kind: kvscheduler.Kind(kind), Name: name}
}
