// Package owners finds the interfaces of pods that objects belong to, for all that people read about an object.
package owners

import (
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// mostDeparted is the number of deleted attachments that the index remembers: past events and transactions name their
// objects.
const mostDeparted = 256

// Config has the sources of an index.
type Config struct {
	Attachments func() []pod.Attachment
	Wiring      func([]pod.Attachment) map[string]pod.Owners // by the key of the object
	// keys of the files of a device; nil: the node has no devices
	Files func(allocation string) []string
}

// Index finds the owners of objects. Its methods may be called from any goroutine. A nil Index knows none.
type Index struct {
	config Config

	mu       sync.Mutex
	departed []departed // oldest first
}

// departed are the objects of an attachment after its DEL or a failed ADD.
type departed struct {
	from, until time.Time
	objects     map[string]pod.Owners
}

// New returns an index.
func New(c Config) *Index { return &Index{config: c} }

// Observe remembers the objects of an attachment that is gone.
func (x *Index) Observe(o podmanager.Outcome) {
	had := o.Attachment
	if o.Happening == podmanager.Changed {
		had = o.Before
	}
	if o.Happening == podmanager.Added || had == nil {
		return
	}
	gone := departed{
		from:    had.Created,
		until:   time.Now(),
		objects: x.ObjectsOf([]pod.Attachment{*had}),
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.departed = append(x.departed, gone)
	x.departed = slices.Delete(x.departed, 0, max(0, len(x.departed)-mostDeparted))
}

// ObjectsOf returns the owners of all objects of attachments, by key; of an attachment also if it is not connected.
func (x *Index) ObjectsOf(all []pod.Attachment) map[string]pod.Owners {
	if x == nil {
		return nil
	}
	objects := x.config.Wiring(all)
	for _, a := range all {
		for _, i := range a.Interfaces {
			owner := pod.Owner{Pod: a.Pod, ContainerID: a.Key.ContainerID, Interface: i.Name}
			for _, key := range x.filesOf(i) {
				objects[key] = with(objects[key], owner)
			}
		}
	}
	return objects
}

// filesOf lists the keys of the files of an interface's device.
func (x *Index) filesOf(i pod.Interface) []string {
	if i.Memif == nil || x.config.Files == nil {
		return nil
	}
	return x.config.Files(i.Memif.Allocation)
}

// with returns owners with one more, who may be one of them already.
func with(owners pod.Owners, o pod.Owner) pod.Owners {
	if slices.Contains(owners, o) {
		return owners
	}
	return append(owners, o)
}

// Now returns the owners of this moment, for one reply.
func (x *Index) Now() *Snapshot {
	if x == nil {
		return &Snapshot{}
	}
	all := x.config.Attachments()
	s := &Snapshot{objects: x.ObjectsOf(all), created: make(map[sandbox]time.Time)}
	for _, a := range all {
		for _, i := range append(a.Interfaces, pod.Interface{Name: a.Key.IfName}) {
			s.created[sandbox{a.Key.ContainerID, i.Name}] = a.Created
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	s.departed = slices.Clone(x.departed)
	return s
}

// Snapshot has the owners of all objects at one moment.
type Snapshot struct {
	objects  map[string]pod.Owners
	created  map[sandbox]time.Time
	departed []departed
}

// sandbox identifies an interface.
type sandbox struct{ container, iface string }

// Of returns the owners of an object: an object that still exists after its attachment belongs to the last one.
func (s *Snapshot) Of(key string) pod.Owners {
	if o := s.objects[key]; len(o) > 0 {
		return o
	}
	for _, d := range slices.Backward(s.departed) {
		if o := d.objects[key]; len(o) > 0 {
			return o
		}
	}
	return nil
}

// At returns the owners that an object had at a time: the route to an address belongs to one pod after another.
func (s *Snapshot) At(key string, t time.Time) pod.Owners {
	var owners pod.Owners
	for _, o := range s.objects[key] {
		if !s.created[sandbox{o.ContainerID, o.Interface}].After(t) {
			owners = append(owners, o)
		}
	}
	for _, d := range s.departed {
		if d.from.After(t) || d.until.Before(t) {
			continue
		}
		for _, o := range d.objects[key] {
			owners = with(owners, o)
		}
	}
	return owners
}
