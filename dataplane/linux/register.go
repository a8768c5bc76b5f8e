package linux

import (
	"errors"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Lane is the scheduler's lane of all kinds of this package except files: the kernel changes them under one lock
// (RTNL).
const Lane = "netlink"

// Options configure the kinds. The zero value suits a scheduler that no object outlives.
type Options struct {
	// VethName returns the object that a veth belongs to and the name of its end in the pod, given name, alias and
	// MAC of the host's end. ok is false for foreign links. It finds veths that an agent created but did not record
	// before it stopped.
	VethName func(host, alias string, mac netaddr.MAC) (object, ifName string, ok bool)

	// ChainChanges has the changes that later plugins of CNI chains made; nil: none.
	ChainChanges *ChainChanges

	// Overfull records the network namespaces that cannot be read; nil: they are not recorded.
	Overfull *Overfull

	// Unannounced is told why an address was not announced, which is no error; nil: the reason is dropped.
	Unannounced func(v wire.Announcement, err error)
}

// Register adds the kinds of this package to a scheduler.
func Register(s *kvscheduler.Scheduler, o Options) error {
	return errors.Join(
		register(s, namespaceDescriptor()),
		register(s, tapPeerDescriptor(o)),
		register(s, vethDescriptor(o)),
		register(s, linkDescriptor()),
		register(s, vlanDescriptor()),
		register(s, addressDescriptor(o.Overfull)),
		register(s, routeDescriptor(o)),
		register(s, neighbourDescriptor(o.Overfull)),
		register(s, hardeningDescriptor(o.Overfull)),
		register(s, sysctlDescriptor(o.Overfull)),
		register(s, announcementDescriptor(o)),
		register(s, masqueradeDescriptor()),
		register(s, tunnelNATDescriptor()),
		register(s, uplinkDescriptor()),
		register(s, fileDescriptor()),
	)
}

func register[V, M any](s *kvscheduler.Scheduler, d kvscheduler.Descriptor[V, M]) error {
	err := kvscheduler.Register(s, d)
	return err
}

// onLink returns the descriptor of a kind of objects on links. at returns the key of the link's object, and the path of
// the namespace.
func onLink[V comparable](
	mode kvscheduler.DepMode, at func(V) (on, namespace string), b namespaced[V],
) kvscheduler.Descriptor[V, netnsID] {
	b.namespace = func(v V) string {
		_, namespace := at(v)
		return namespace
	}
	b.on = func(v V) string {
		on, _ := at(v)
		return on
	}
	if b.needsIPv6 != nil {
		b.put = unlessWithoutIPv6(b.link, b.needsIPv6, b.put)
		b.remove = unlessWithoutIPv6(b.link, b.needsIPv6, b.remove)
	}
	if b.link != nil {
		b.put = unlessTakenOver(b.link, b.put)
		b.remove = unlessTakenOver(b.link, b.remove)
	}
	return kvscheduler.Descriptor[V, netnsID]{
		Name: string(b.kind), Lane: Lane, Equal: equal[V], Backend: b,
		Deps: func(_ string, v V) []kvscheduler.Dep {
			on, namespace := at(v)
			return linkDeps(parseRef(on), mode, namespace)
		},
		After: []string{wire.KindNamespace, wire.KindTapPeer, wire.KindVeth},
	}
}

// linkDeps returns the dependencies of an object on a link: the link's object, then the namespace.
func linkDeps(on kvscheduler.Ref, mode kvscheduler.DepMode, namespace string) []kvscheduler.Dep {
	return append([]kvscheduler.Dep{{Label: "link", On: on, Mode: mode}}, namespaceDeps(namespace)...)
}

func namespaceDeps(path string) []kvscheduler.Dep {
	if path == "" {
		return nil
	}
	return []kvscheduler.Dep{{Label: "network namespace", On: kvscheduler.Ref{Kind: wire.KindNamespace, Name: path}}}
}

// always is Descriptor.Recreate of kinds with objects that cannot be changed in place.
func always[V any](have, want V) bool { return true }

// equal is Descriptor.Equal of kinds that the kernel reports completely.
func equal[V comparable](want, have V) bool { return want == have }
