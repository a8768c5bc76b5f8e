package linux

import (
	"context"
	"fmt"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Lane is the scheduler's lane of all kinds of this package except files: the kernel changes them under one lock (RTNL).
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

// Options configure the kinds. The zero value suits a scheduler that no object outlives.
type Options struct {
	// VethName returns the object that a veth belongs to and the name of its end in the pod, given name and alias of the host's end. ok
	// is false for foreign links. It finds veths that an agent created but did not record before it stopped.
	VethName func(host, alias string) (object, ifName string, ok bool)

	// ChainChanges has the changes that later plugins of CNI chains made; nil: none.
	ChainChanges *ChainChanges
}

// Register adds the kinds to a scheduler.
func Register(s *kvscheduler.Scheduler, o Options) (k Kinds, err error) {
	if k.Namespace, err = kvscheduler.Register(s, namespaceDescriptor()); err != nil {
		return k, err
	}
	if k.TapPeer, err = kvscheduler.Register(s, tapPeerDescriptor(o.ChainChanges)); err != nil {
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
	if k.Route, err = kvscheduler.Register(s, routeDescriptor(o.ChainChanges)); err != nil {
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

// namespaced is the backend of kinds of objects in network namespaces. Its functions run inside the namespace.
type namespaced[V comparable] struct {
	kind      kvscheduler.Kind
	namespace func(V) string
	put       func(h *handle, name string, want V) error       // creates or updates
	change    func(h *handle, name string, have, want V) error // nil: put
	remove    func(h *handle, v V) error                       // may return an error of isGone for a missing object
	find      func(h *handle, name string, v V) (V, bool, error)
	// list returns all objects of the kind on the link of v, by name. link is the name of that link. nil: Dump finds known objects only.
	list func(h *handle, v V) (map[string]V, error)
	link func(V) string
}

// linkDeps returns the dependencies of an object on a link: the link's object, then the namespace.
func linkDeps(on kvscheduler.Ref, mode kvscheduler.DepMode, namespace string) []kvscheduler.Dep {
	deps := []kvscheduler.Dep{{Label: "link", On: on, Mode: mode}}
	if namespace != "" {
		deps = append(deps, kvscheduler.Dep{
			Label: "network namespace", On: kvscheduler.Ref{Kind: wire.KindNamespace, Name: namespace},
		})
	}
	return deps
}

func (r namespaced[V]) Create(ctx context.Context, batch []kvscheduler.Item[V, netnsID]) {
	r.each(ctx, batch, func(h *handle, it *kvscheduler.Item[V, netnsID]) error { return r.put(h, it.Name, it.Want) })
}

func (r namespaced[V]) Update(ctx context.Context, batch []kvscheduler.Item[V, netnsID]) {
	r.each(ctx, batch, func(h *handle, it *kvscheduler.Item[V, netnsID]) error {
		if r.change == nil {
			return r.put(h, it.Name, it.Want)
		}
		return r.change(h, it.Name, it.Have, it.Want)
	})
}

// each runs f for each item. It enters each namespace once.
func (r namespaced[V]) each(ctx context.Context, batch []kvscheduler.Item[V, netnsID], f func(*handle, *kvscheduler.Item[V, netnsID]) error) {
	for i := range batch {
		it := &batch[i]
		it.NewMeta = netnsID{}
		for _, dep := range it.Handles {
			if netns, ok := dep.(netnsID); ok && r.namespace(it.Want) != "" {
				it.NewMeta = netns
			}
		}
	}
	path := func(it *kvscheduler.Item[V, netnsID]) string { return r.namespace(it.Want) }
	netns := func(it *kvscheduler.Item[V, netnsID]) netnsID { return it.NewMeta }
	for _, group := range groupByNamespace(batch, path) {
		err := inNamespace(path(group[0]), netns(group[0]), func(h *handle) error {
			for _, it := range group {
				if it.Err = refused(ctx.Err()); it.Err == nil {
					it.Err = f(h, it)
				}
			}
			return nil
		})
		for _, it := range group {
			if err != nil {
				it.Err = refused(err)
			}
		}
	}
}

// Delete counts missing objects and objects of deleted namespaces as deleted.
func (r namespaced[V]) Delete(ctx context.Context, batch []kvscheduler.Item[V, netnsID]) {
	path := func(it *kvscheduler.Item[V, netnsID]) string { return r.namespace(it.Have) }
	for _, group := range groupByNamespace(batch, path) {
		err := inNamespace(path(group[0]), group[0].Meta, func(h *handle) error {
			for _, it := range group {
				if it.Err = refused(ctx.Err()); it.Err != nil {
					continue
				}
				if err := r.remove(h, it.Have); err != nil && !isGone(err) {
					it.Err = fmt.Errorf("delete %s: %w", it.Name, err)
				}
			}
			return nil
		})
		for _, it := range group {
			if err != nil && !isGone(err) {
				it.Err = refused(err)
			}
		}
	}
}

// groupByNamespace groups the items of a batch and keeps their order.
func groupByNamespace[V any](batch []kvscheduler.Item[V, netnsID], path func(*kvscheduler.Item[V, netnsID]) string) [][]*kvscheduler.Item[V, netnsID] {
	groups := map[string][]*kvscheduler.Item[V, netnsID]{}
	var order []string
	for i := range batch {
		p := path(&batch[i])
		if groups[p] == nil {
			order = append(order, p)
		}
		groups[p] = append(groups[p], &batch[i])
	}
	var list [][]*kvscheduler.Item[V, netnsID]
	for _, p := range order {
		list = append(list, groups[p])
	}
	return list
}
