package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type namespaceItem = kvscheduler.Item[wire.Namespace, Place]

// namespaces are made by container runtimes: to create one is to find it as it was, to delete it is to forget it.
type namespaces struct{}

func namespaceDescriptor() kvscheduler.Descriptor[wire.Namespace, Place] {
	return kvscheduler.Descriptor[wire.Namespace, Place]{
		Name: wire.KindNamespace, Lane: Lane,
		Equal:    func(want, have wire.Namespace) bool { return want == have },
		Validate: validateNamespace,
		Recreate: func(have, want wire.Namespace) bool { return true },
		Backend:  namespaces{},
	}
}

func validateNamespace(name string, v wire.Namespace) error {
	switch {
	case !filepath.IsAbs(v.Path) || filepath.Clean(v.Path) != v.Path:
		return fmt.Errorf("path %q is not absolute and clean", v.Path)
	case name != v.Path:
		return fmt.Errorf("the name is the path, %s", v.Path)
	case v.Inode == 0:
		return errors.New("the inode is not known")
	}
	return nil
}

// Create looks whether the namespaces are what they were.
func (namespaces) Create(_ context.Context, batch []namespaceItem) {
	for i := range batch {
		it := &batch[i]
		it.NewMeta = Place{it.Want.Inode, it.Want.Device}
		it.Err = refused(check(it.Want))
	}
}

// check sees whether the path still leads where it did.
func check(v wire.Namespace) error {
	fd, place, err := open(v.Path)
	if err != nil {
		return err
	}
	unix.Close(fd)
	if place != (Place{v.Inode, v.Device}) {
		return fmt.Errorf("network namespace %s %w: another one has taken its path (inode %d, was %d)", v.Path, ErrGone, place.Inode, v.Inode)
	}
	return nil
}

// Update is never called: every difference recreates.
func (n namespaces) Update(ctx context.Context, batch []namespaceItem) { n.Create(ctx, batch) }

// Delete leaves the namespace to its owner.
func (namespaces) Delete(context.Context, []namespaceItem) {}

// Dump lists the known namespaces that are still what they were.
func (n namespaces) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Namespace, Place], error] {
	return func(yield func(kvscheduler.Actual[wire.Namespace, Place], error) bool) {
		for name := range view.All(wire.KindNamespace) {
			for _, v := range known[wire.Namespace](view, wire.KindNamespace, name) {
				err := check(v)
				if errors.Is(err, ErrGone) {
					continue
				}
				if !yield(kvscheduler.Actual[wire.Namespace, Place]{Name: name, V: v, Meta: Place{v.Inode, v.Device}}, err) {
					return
				}
				break
			}
		}
	}
}

// known are the values that an object has: the applied one first, then the desired one if it is another.
func known[V comparable](view kvscheduler.View, kind kvscheduler.Kind, name string) []V {
	var values []V
	ref := kvscheduler.Ref{Kind: kind, Name: name}
	if v, _, ok := view.Applied(ref); ok {
		if applied, is := v.(V); is {
			values = append(values, applied)
		}
	}
	if v, ok := view.Desired(ref); ok {
		if desired, is := v.(V); is && (len(values) == 0 || values[0] != desired) {
			values = append(values, desired)
		}
	}
	return values
}

// placeOf is where the values say that a path leads; false if nobody knows.
func placeOf(view kvscheduler.View, path string) (Place, bool) {
	if path == "" {
		return Place{}, true
	}
	for _, v := range known[wire.Namespace](view, wire.KindNamespace, path) {
		if check(v) == nil {
			return Place{v.Inode, v.Device}, true
		}
	}
	return Place{}, false
}
