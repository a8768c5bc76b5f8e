package kvscheduler

import (
	"fmt"
	"strings"
)

// Kind names a class of objects that one descriptor serves, for example "vpp.interface". It holds no slash.
type Kind string

// Ref names one object.
type Ref struct {
	Kind Kind
	Name string
}

// String returns the key form "kind/name".
func (r Ref) String() string { return string(r.Kind) + "/" + r.Name }

// ParseRef reads a key: the kind reaches to the first slash, the rest is the name and may hold further slashes.
func ParseRef(key string) (Ref, error) {
	kind, name, found := strings.Cut(key, "/")
	if !found || kind == "" || name == "" {
		return Ref{}, fmt.Errorf("key %q is not of the form kind/name", key)
	}
	return Ref{Kind: Kind(kind), Name: name}, nil
}

// KindOf ties a kind to the Go type of its values, so that Put cannot be called with another type.
type KindOf[V any] struct{ id Kind }

// KindNamed names a kind before or without its registration: a descriptor's Derive and Deps name each other's kinds so.
func KindNamed[V any](id Kind) KindOf[V] { return KindOf[V]{id: id} }

// ID returns the name of the kind.
func (k KindOf[V]) ID() Kind { return k.id }

// Ref names the object of this kind.
func (k KindOf[V]) Ref(name string) Ref { return Ref{Kind: k.id, Name: name} }

// Put says that the object is desired (in a transaction), derived, or observed with this value.
func (k KindOf[V]) Put(name string, v V) Object { return Object{Ref: k.Ref(name), v: v} }

// Del says that the object is not desired, or was observed to be gone.
func (k KindOf[V]) Del(name string) Object { return Object{Ref: k.Ref(name)} }

// Object is a value under its name. The zero value inside means "not desired" or "gone".
type Object struct {
	Ref Ref
	v   any
}

// Value returns the value, nil for a deletion.
func (o Object) Value() any { return o.v }
