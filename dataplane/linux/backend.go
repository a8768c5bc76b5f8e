package linux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// simple is the backend of a kind with one operation at a time.
type simple[V, M any] struct {
	kind   kvscheduler.Kind
	only   string // name of the only object of the kind; "": any number of objects
	create func(it *kvscheduler.Item[V, M]) error
	update func(it *kvscheduler.Item[V, M]) error // nil: create
	remove func(ctx context.Context, it *kvscheduler.Item[V, M]) error
	read   func(view kvscheduler.View, name string) (v V, meta M, found bool, err error)
}

func (b simple[V, M]) Create(ctx context.Context, batch []kvscheduler.Item[V, M]) {
	each(ctx, batch, b.create)
}

func (b simple[V, M]) Update(ctx context.Context, batch []kvscheduler.Item[V, M]) {
	if b.update == nil {
		b.update = b.create
	}
	each(ctx, batch, b.update)
}

func (b simple[V, M]) Delete(ctx context.Context, batch []kvscheduler.Item[V, M]) {
	each(ctx, batch, func(it *kvscheduler.Item[V, M]) error { return b.remove(ctx, it) })
}

// each runs f for each item until ctx ends.
func each[V, M any](ctx context.Context, batch []kvscheduler.Item[V, M], f func(*kvscheduler.Item[V, M]) error) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err == nil {
			it.Err = f(it)
		}
	}
}

// Dump finds the known objects. It finds the only object of a kind also if it is not known.
func (b simple[V, M]) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[V, M], error] {
	if b.only != "" {
		return b.Read(ctx, view, []string{b.only})
	}
	return b.Read(ctx, view, knownNames(view, b.kind))
}

func (b simple[V, M]) Read(
	ctx context.Context, view kvscheduler.View, names []string,
) iter.Seq2[kvscheduler.Actual[V, M], error] {
	return yieldAll(b.readAll(ctx, view, names))
}

func (b simple[V, M]) readAll(
	ctx context.Context, view kvscheduler.View, names []string,
) (all []kvscheduler.Actual[V, M], err error) {
	for _, name := range names {
		v, meta, found, err := b.read(view, name)
		if err := errors.Join(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("read %s/%s: %w", b.kind, name, err)
		}
		if found {
			all = append(all, kvscheduler.Actual[V, M]{Name: name, V: v, Meta: meta})
		}
	}
	return all, nil
}

func yieldAll[V, M any](found []kvscheduler.Actual[V, M], err error) iter.Seq2[kvscheduler.Actual[V, M], error] {
	return func(yield func(kvscheduler.Actual[V, M], error) bool) {
		if err != nil {
			yield(kvscheduler.Actual[V, M]{}, err)
			return
		}
		for _, a := range found {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// knownNames returns the names of the known objects of a kind.
func knownNames(view kvscheduler.View, kind kvscheduler.Kind) (names []string) {
	for name := range view.All(kind) {
		names = append(names, name)
	}
	return names
}

// knownValues returns the applied value of an object, then the desired value, as far as they exist.
func knownValues[V any](view kvscheduler.View, kind kvscheduler.Kind, name string) (values []V) {
	ref := kvscheduler.Ref{Kind: kind, Name: name}
	applied, _, _ := view.Applied(ref)
	desired, _ := view.Desired(ref)
	for _, v := range []any{applied, desired} {
		if v, is := v.(V); is {
			values = append(values, v)
		}
	}
	return values
}

// namespaced is the backend of kinds of objects in network namespaces. Its functions run inside the namespace.
type namespaced[V comparable] struct {
	kind      kvscheduler.Kind
	namespace func(V) string
	put       func(h *handle, want V) error       // creates or updates
	change    func(h *handle, have, want V) error // nil: put
	remove    func(h *handle, v V) error          // may return an error of isGone for a missing object
	find      func(h *handle, v V) (V, bool, error)
	// compared turns a value that find has read into the one to compare with the desired value; nil: the same.
	compared func(h *handle, read, desired V) V
	// list returns all objects of the kind on the link of v, by name. link is the name of that link. nil: Dump finds
	// known objects only.
	list      func(h *handle, l netlink.Link, v V) (map[string]V, error)
	link      func(V) string
	on        func(V) string // key of the link's object; nil: the object is on no link
	needsIPv6 func(V) bool   // the object exists only on a link with IPv6; nil: no object does
	// identity returns the link in a pod that a value stands for; nil: the kind has no links.
	identity func(V) PodLink

	overfull *Overfull // records namespaces that cannot be read; may be nil
}

func (b namespaced[V]) Create(ctx context.Context, batch []kvscheduler.Item[V, netnsID]) {
	b.write(ctx, batch, func(h *handle, it *kvscheduler.Item[V, netnsID]) error { return b.put(h, it.Want) })
}

func (b namespaced[V]) Update(ctx context.Context, batch []kvscheduler.Item[V, netnsID]) {
	if b.change == nil {
		b.change = func(h *handle, _, want V) error { return b.put(h, want) }
	}
	b.write(ctx, batch, func(h *handle, it *kvscheduler.Item[V, netnsID]) error {
		return b.change(h, it.Have, it.Want)
	})
}

// write runs f for each item in the namespace of its desired value.
func (b namespaced[V]) write(
	ctx context.Context, batch []kvscheduler.Item[V, netnsID], f func(*handle, *kvscheduler.Item[V, netnsID]) error,
) {
	eachNamespace(ctx, batch, func(it *kvscheduler.Item[V, netnsID]) (string, netnsID) {
		it.NewMeta = netnsID{}
		path := b.namespace(it.Want)
		if path != "" {
			it.NewMeta = netnsOf(it.Handles)
		}
		return path, it.NewMeta
	}, f)
}

// netnsOf returns the namespace among the handles of dependencies.
func netnsOf(handles []any) (netns netnsID) {
	for _, h := range handles {
		if id, is := h.(netnsID); is {
			netns = id
		}
	}
	return netns
}

// Delete counts missing objects and objects of deleted namespaces as deleted.
func (b namespaced[V]) Delete(ctx context.Context, batch []kvscheduler.Item[V, netnsID]) {
	at := func(it *kvscheduler.Item[V, netnsID]) (string, netnsID) { return b.namespace(it.Have), it.Meta }
	eachNamespace(ctx, batch, at, func(h *handle, it *kvscheduler.Item[V, netnsID]) error {
		if err := b.remove(h, it.Have); err != nil {
			return fmt.Errorf("delete %s: %w", it.Name, err)
		}
		return nil
	})
	for i := range batch {
		if isGone(batch[i].Err) {
			batch[i].Err = nil
		}
	}
}

// eachNamespace runs f for each item in the namespace that at returns for it. It enters each namespace once.
func eachNamespace[V any](
	ctx context.Context,
	batch []kvscheduler.Item[V, netnsID],
	at func(*kvscheduler.Item[V, netnsID]) (string, netnsID),
	f func(*handle, *kvscheduler.Item[V, netnsID]) error,
) {
	groups := map[string][]*kvscheduler.Item[V, netnsID]{}
	ids := map[string]netnsID{}
	var paths []string // in the order of the batch
	for i := range batch {
		path, id := at(&batch[i])
		if groups[path] == nil {
			paths = append(paths, path)
			ids[path] = id
		}
		groups[path] = append(groups[path], &batch[i])
	}
	for _, path := range paths {
		err := inNamespace(path, ids[path], func(h *handle) error {
			for _, it := range groups[path] {
				if it.Err = refused(ctx.Err()); it.Err == nil {
					it.Err = f(h, it)
				}
			}
			return nil
		})
		for _, it := range groups[path] {
			if err != nil {
				it.Err = refused(err)
			}
		}
	}
}

// Dump finds the known objects, and the objects that an agent with another configuration left on the node's links.
func (b namespaced[V]) Dump(
	ctx context.Context, view kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[V, netnsID], error] {
	names := knownNames(view, b.kind)
	found, err := b.readAll(ctx, view, names)
	if err != nil || b.list == nil {
		return yieldAll(found, err)
	}
	unknown, err := b.unknownOnNode(view, names)
	for name, v := range unknown {
		found = append(found, kvscheduler.Actual[V, netnsID]{Name: name, V: v})
	}
	return yieldAll(found, err)
}

// unknownOnNode lists objects on the node's links that are not known. It reads only links that have a known object of
// the kind: other links may have addresses of another kind, such as a linux.uplink.
func (b namespaced[V]) unknownOnNode(view kvscheduler.View, names []string) (map[string]V, error) {
	unknown := map[string]V{}
	err := withHandle(func(h *handle) error {
		onLinks := map[string]V{}
		for _, c := range b.candidates(view, names)[""] {
			if _, has := onLinks[b.link(c.v)]; !has {
				onLinks[b.link(c.v)] = c.v
			}
		}
		for name, v := range onLinks {
			l, err := h.link(name)
			if err == nil && strings.HasPrefix(l.Attrs().Alias, wire.AliasPrefix) { // only Weft configures the link
				var found map[string]V
				found, err = b.list(h, l, v)
				maps.Copy(unknown, found)
			}
			if err != nil && !isGone(err) {
				return fmt.Errorf("list %s: %w", b.kind, err)
			}
		}
		return nil
	})
	maps.DeleteFunc(unknown, func(name string, _ V) bool { return slices.Contains(names, name) })
	return unknown, err
}

func (b namespaced[V]) Read(
	ctx context.Context, view kvscheduler.View, names []string,
) iter.Seq2[kvscheduler.Actual[V, netnsID], error] {
	return yieldAll(b.readAll(ctx, view, names))
}

func (b namespaced[V]) readAll(
	ctx context.Context, view kvscheduler.View, names []string,
) (all []kvscheduler.Actual[V, netnsID], err error) {
	for path, list := range b.candidates(view, names) {
		found, err := b.readIn(ctx, view, path, list)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// candidate is a value that an object may have in the kernel.
type candidate[V any] struct {
	name string
	v    V
}

// candidates returns the candidates of each namespace. An object that moves between namespaces is read where it was
// applied.
func (b namespaced[V]) candidates(view kvscheduler.View, names []string) map[string][]candidate[V] {
	lists := map[string][]candidate[V]{}
	for _, name := range names {
		values := slices.Compact(knownValues[V](view, b.kind, name))
		for _, v := range values {
			if path := b.namespace(v); path == b.namespace(values[0]) {
				lists[path] = append(lists[path], candidate[V]{name, v})
			}
		}
	}
	return lists
}

// readIn reads the objects of one namespace. A deleted namespace has no objects.
func (b namespaced[V]) readIn(
	ctx context.Context, view kvscheduler.View, path string, list []candidate[V],
) ([]kvscheduler.Actual[V, netnsID], error) {
	netns, ok := knownNamespace(view, path)
	if !ok {
		return nil, nil
	}
	var found []kvscheduler.Actual[V, netnsID]
	var overfull error
	err := inNamespace(path, netns, func(h *handle) error {
		defer func() { overfull = h.overfull }()
		seen := map[string]bool{}
		taken := map[string]bool{}
		for i, c := range list {
			if seen[c.name] {
				continue
			}
			v, ok, err := b.findFirst(h, view, list[i:], taken)
			if err != nil && !isGone(err) {
				return fmt.Errorf("read %s/%s: %w", b.kind, c.name, err)
			}
			if ok && err == nil {
				seen[c.name] = true
				found = append(found, kvscheduler.Actual[V, netnsID]{Name: c.name, V: v, Meta: netns})
			}
		}
		return ctx.Err()
	})
	switch {
	case errors.Is(err, ErrGone):
		return nil, nil
	case err != nil && path != "" && ctx.Err() == nil:
		b.overfull.note(netns, b.kind, cmp.Or(overfull, err))
		return b.assumed(list, netns), nil
	case err == nil:
		b.overfull.note(netns, b.kind, nil)
	}
	return found, err
}

// findFirst finds the first candidate. A link that the pod took over, and the objects on it, count as unchanged. So do
// objects of IPv6 on a link from which the pod removed IPv6. taken has the links that earlier calls in this namespace
// looked for.
func (b namespaced[V]) findFirst(
	h *handle, view kvscheduler.View, list []candidate[V], taken map[string]bool,
) (V, bool, error) {
	first := list[0].v
	switch {
	case !h.ofPod: // no pod takes links of the node over
	case b.identity != nil:
		v, ok, err := b.readFirst(h, list)
		if ok || err != nil {
			return v, ok, err
		}
		at, err := h.placeOf(b.identity(first))
		return lastOf(list), at == takenOver && err == nil, err
	case b.on != nil:
		on := b.on(first)
		isTaken, known := taken[on]
		if !known {
			var err error
			if isTaken, err = h.isTakenOver(view, on); err != nil {
				return first, false, err
			}
			taken[on] = isTaken
		}
		if isTaken {
			return lastOf(list), true, nil
		}
	}
	if h.ofPod && b.needsIPv6 != nil && b.needsIPv6(first) {
		if lacks, err := h.lacksIPv6(b.link(first)); err != nil || lacks {
			return lastOf(list), lacks, err
		}
	}
	return b.readFirst(h, list)
}

// readFirst reads the first candidate. The result is compared with the last value of the object, the desired one: the
// first is the applied value, which the last check has read.
func (b namespaced[V]) readFirst(h *handle, list []candidate[V]) (V, bool, error) {
	v, ok, err := b.find(h, list[0].v)
	if ok && err == nil && b.compared != nil {
		v = b.compared(h, v, lastOf(list))
	}
	return v, ok, err
}

// lastOf returns the last value of the first object: a dump may have found the first value while a program in the
// pod was taking the link over.
func lastOf[V any](list []candidate[V]) V {
	last := list[0]
	for _, c := range list {
		if c.name == last.name {
			last = c
		}
	}
	return last.v
}

// assumed returns the known objects of a pod's namespace that cannot be read, because it has too many objects or a link
// that the library cannot decode. Only this pod is affected, and all others are compared. Without the known objects the
// agent would repair objects forever that it cannot check.
func (b namespaced[V]) assumed(list []candidate[V], netns netnsID) (all []kvscheduler.Actual[V, netnsID]) {
	seen := map[string]bool{}
	for _, c := range list {
		if !seen[c.name] {
			seen[c.name] = true
			all = append(all, kvscheduler.Actual[V, netnsID]{Name: c.name, V: c.v, Meta: netns})
		}
	}
	return all
}
