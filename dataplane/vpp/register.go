package vpp

import (
	"errors"

	"github.com/weftnet/weft/kvscheduler"
)

// Lane is the scheduler's lane of all kinds of this package: the dataplane handles one request after the other anyway.
const Lane = "vpp"

// Register adds the kinds of this package to a scheduler; c realises them.
func Register(s *kvscheduler.Scheduler, c *Client) error {
	return errors.Join(
		register(s, vrfDescriptor(c)),
		register(s, memifSocketDescriptor(c)),
		register(s, interfaceDescriptor(c)),
		register(s, membershipDescriptor(c)),
		register(s, addressDescriptor(c)),
		register(s, unnumberedDescriptor(c)),
		register(s, routeDescriptor(c)),
		register(s, neighbourDescriptor(c)),
		register(s, bridgeDescriptor(c)),
		register(s, bridgeMemberDescriptor(c)),
		register(s, l2FIBDescriptor(c)),
		register(s, macipDescriptor(c)),
		register(s, aclDescriptor(c)),
		register(s, interfaceACLDescriptor(c)),
		register(s, policerDescriptor(c)),
		register(s, proxyARPDescriptor(c)),
		register(s, puntRedirectDescriptor(c)),
	)
}

func register[V, M any](s *kvscheduler.Scheduler, d kvscheduler.Descriptor[V, M]) error {
	err := kvscheduler.Register(s, d)
	return err
}

// ref names an object, also one of another package's kind.
func ref(kind, name string) kvscheduler.Ref {
	return kvscheduler.Ref{Kind: kvscheduler.Kind(kind), Name: name}
}
