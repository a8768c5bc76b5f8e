package linux

import (
	"context"
	"fmt"

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

// resident is the backend of the kinds that stand in a namespace. What differs from kind to kind is in its functions;
// they run inside the namespace.
type resident[V comparable] struct {
	kind      kvscheduler.Kind
	namespace func(V) string
	put       func(h *handle, name string, want V) error         // makes it so
	change    func(h *handle, name string, have, want V) error   // nil: put
	remove    func(h *handle, v V) error                         // what is missing may be an error of isGone
	find      func(h *handle, name string, v V) (V, bool, error) // reads v back
	// list reads back, by name, all that the link of v has of the kind, and link is its name. Without them nothing but what is
	// known is looked for.
	list func(h *handle, v V) (map[string]V, error)
	link func(V) string
}

// dependencies are what a value on a link needs: the link's object, then the namespace.
func dependencies(on kvscheduler.Ref, mode kvscheduler.DepMode, namespace string) []kvscheduler.Dep {
	deps := []kvscheduler.Dep{{Label: "link", On: on, Mode: mode}}
	if namespace != "" {
		deps = append(deps, kvscheduler.Dep{
			Label: "network namespace", On: kvscheduler.Ref{Kind: wire.KindNamespace, Name: namespace},
		})
	}
	return deps
}

// Create makes the objects.
func (r resident[V]) Create(ctx context.Context, batch []kvscheduler.Item[V, Place]) {
	r.each(ctx, batch, func(h *handle, it *kvscheduler.Item[V, Place]) error { return r.put(h, it.Name, it.Want) })
}

// Update changes them in place.
func (r resident[V]) Update(ctx context.Context, batch []kvscheduler.Item[V, Place]) {
	r.each(ctx, batch, func(h *handle, it *kvscheduler.Item[V, Place]) error {
		if r.change == nil {
			return r.put(h, it.Name, it.Want)
		}
		return r.change(h, it.Name, it.Have, it.Want)
	})
}

// each runs f for each item, one visit for the items of a namespace.
func (r resident[V]) each(ctx context.Context, batch []kvscheduler.Item[V, Place], f func(*handle, *kvscheduler.Item[V, Place]) error) {
	for i := range batch {
		it := &batch[i]
		it.NewMeta = Place{}
		for _, dep := range it.Handles {
			if place, ok := dep.(Place); ok && r.namespace(it.Want) != "" {
				it.NewMeta = place
			}
		}
	}
	path := func(it *kvscheduler.Item[V, Place]) string { return r.namespace(it.Want) }
	place := func(it *kvscheduler.Item[V, Place]) Place { return it.NewMeta }
	for _, group := range grouped(batch, path) {
		err := visit(path(group[0]), place(group[0]), func(h *handle) error {
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

// Delete takes what is gone, with or without its namespace, for deleted.
func (r resident[V]) Delete(ctx context.Context, batch []kvscheduler.Item[V, Place]) {
	path := func(it *kvscheduler.Item[V, Place]) string { return r.namespace(it.Have) }
	for _, group := range grouped(batch, path) {
		err := visit(path(group[0]), group[0].Meta, func(h *handle) error {
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

// grouped are the items of a batch by namespace; order is kept within one.
func grouped[V any](batch []kvscheduler.Item[V, Place], path func(*kvscheduler.Item[V, Place]) string) [][]*kvscheduler.Item[V, Place] {
	groups := map[string][]*kvscheduler.Item[V, Place]{}
	var order []string
	for i := range batch {
		p := path(&batch[i])
		if groups[p] == nil {
			order = append(order, p)
		}
		groups[p] = append(groups[p], &batch[i])
	}
	var list [][]*kvscheduler.Item[V, Place]
	for _, p := range order {
		list = append(list, groups[p])
	}
	return list
}
