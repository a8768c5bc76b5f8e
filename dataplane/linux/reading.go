package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// sought is an object with a value that it may have in the kernel.
type sought[V any] struct {
	name string
	v    V
}

// Dump looks for all known objects of the kind, in the namespaces that their values speak of, and for what an agent with
// another configuration left on the node's own links. What else stands there is not ours to see.
func (r resident[V]) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[V, Place], error] {
	var names []string
	for name := range view.All(r.kind) {
		names = append(names, name)
	}
	return func(yield func(kvscheduler.Actual[V, Place], error) bool) {
		for a, err := range r.Read(ctx, view, names) {
			if !yield(a, err) || err != nil {
				return
			}
		}
		left, err := r.leftOnNode(view, names)
		if err != nil {
			yield(kvscheduler.Actual[V, Place]{}, err)
			return
		}
		for name, v := range left {
			if !yield(kvscheduler.Actual[V, Place]{Name: name, V: v}, nil) {
				return
			}
		}
	}
}

// leftOnNode lists the objects on links of the node that have none of the known names. It reads only links on which an object
// of the kind is known: addresses on other links may belong to another kind, as those of a linux.uplink do.
func (r resident[V]) leftOnNode(view kvscheduler.View, names []string) (map[string]V, error) {
	left := map[string]V{}
	if r.list == nil {
		return left, nil
	}
	err := visit("", Place{}, func(h *handle) error {
		seen := map[string]bool{}
		for _, s := range r.seek(view, names)[""] {
			if seen[r.link(s.v)] {
				continue
			}
			seen[r.link(s.v)] = true
			there, err := r.list(h, s.v)
			if err != nil && !isGone(err) {
				return fmt.Errorf("list %s: %w", r.kind, err)
			}
			maps.Copy(left, there)
		}
		return nil
	})
	for _, name := range names {
		delete(left, name)
	}
	return left, err
}

// nodeLink finds a link of the node that is all ours, as its alias says.
func (h *handle) nodeLink(name string) (l netlink.Link, ours bool, err error) {
	l, err = h.link(name)
	return l, err == nil && strings.HasPrefix(l.Attrs().Alias, wire.AliasPrefix), err
}

// Read looks for the named objects.
func (r resident[V]) Read(ctx context.Context, view kvscheduler.View, names []string) iter.Seq2[kvscheduler.Actual[V, Place], error] {
	return func(yield func(kvscheduler.Actual[V, Place], error) bool) {
		for path, list := range r.seek(view, names) {
			found, err := r.look(ctx, view, path, list)
			if err != nil {
				yield(kvscheduler.Actual[V, Place]{}, err)
				return
			}
			for _, a := range found {
				if !yield(a, nil) {
					return
				}
			}
		}
	}
}

// seek lists by namespace what to look for. An object that moves between namespaces is looked for where it was applied.
func (r resident[V]) seek(view kvscheduler.View, names []string) map[string][]sought[V] {
	lists := map[string][]sought[V]{}
	for _, name := range names {
		values := known[V](view, r.kind, name)
		for _, v := range values {
			if path := r.namespace(v); path == r.namespace(values[0]) {
				lists[path] = append(lists[path], sought[V]{name, v})
			}
		}
	}
	return lists
}

// look visits one namespace. Nothing is found in one that is gone.
func (r resident[V]) look(ctx context.Context, view kvscheduler.View, path string, list []sought[V]) (found []kvscheduler.Actual[V, Place], err error) {
	place, ok := placeOf(view, path)
	if !ok {
		return nil, nil
	}
	err = visit(path, place, func(h *handle) error {
		seen := map[string]bool{}
		for _, s := range list {
			if seen[s.name] {
				continue
			}
			v, ok, err := r.find(h, s.name, s.v)
			if err != nil && !isGone(err) {
				return fmt.Errorf("read %s/%s: %w", r.kind, s.name, err)
			}
			if ok && err == nil {
				seen[s.name] = true
				found = append(found, kvscheduler.Actual[V, Place]{Name: s.name, V: v, Meta: place})
			}
		}
		return ctx.Err()
	})
	if errors.Is(err, ErrGone) {
		return nil, nil
	}
	return found, err
}
