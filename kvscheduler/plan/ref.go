package plan

import (
	"fmt"
	"strings"
)

// Kind names a class of objects, for example "vpp.interface". It contains no slash.
type Kind string

// Ref names one object.
type Ref struct {
	Kind Kind
	Name string
}

// String returns the key "kind/name".
func (r Ref) String() string { return string(r.Kind) + "/" + r.Name }

// ParseRef parses a key. The kind ends at the first slash; the rest is the name, which may contain further slashes.
func ParseRef(key string) (Ref, error) {
	kind, name, found := strings.Cut(key, "/")
	if !found || kind == "" || name == "" {
		return Ref{}, fmt.Errorf("key %q is not of the form kind/name", key)
	}
	return Ref{Kind: Kind(kind), Name: name}, nil
}

// DepMode is the effect of a dependency on its dependent.
type DepMode uint8

const (
	// Exists: the dependent is torn down before On is deleted or recreated.
	Exists DepMode = iota
	// Follow: as Exists, and the dependent is recreated when an update in place of On disturbs it, see Rules.Disturbs.
	Follow
	// Part: as Follow, and On makes the dependent: if the dependent is found missing, On is recreated.
	Part
)

// Dep is one thing that must be applied before an object can be. All dependencies of an object must be met.
// Exactly one of On and Any is set. On may name an object of an observed kind.
type Dep struct {
	Label string  // shown to the operator while the object waits
	On    Ref     // exact: this object must be applied ...
	Any   *Select // ... or: an applied object of a bucket must match
	Mode  DepMode
	// Swap: an update of the dependent can replace On by another object. Then On is deleted after the update, and the
	// dependent is not torn down. Of no effect with Any.
	Swap bool
}

// Select names the candidates of an Any dependency.
type Select struct {
	Kind   Kind
	Bucket string                        // what Rules.Bucket of Kind returns, for example the name of an interface
	Match  func(name string, v any) bool // nil: any member of the bucket
}

// String describes the required object.
func (d Dep) String() string {
	what := d.On.String()
	if d.Any != nil {
		what = fmt.Sprintf("any %s of %q", d.Any.Kind, d.Any.Bucket)
	}
	if d.Label != "" {
		return what + " (" + d.Label + ")"
	}
	return what
}

// Rules are the properties of a kind that a plan depends on. All methods are pure.
type Rules interface {
	// Equal reports whether the applied value needs no change.
	Equal(want, have any) bool
	// Recreate reports whether the object cannot be updated in place.
	Recreate(have, want any) bool
	// Disturbs reports whether an update in place affects the dependents that follow the object.
	Disturbs(have, want any) bool
	// Deps returns what must be applied before the object.
	Deps(name string, v any) []Dep
	// Bucket returns the bucket in which the object can serve Any dependencies; false: the kind has no buckets.
	Bucket(name string, v any) (string, bool)
}

// Verb is the action of an operation.
type Verb uint8

// The verbs of an operation.
const (
	Create Verb = iota + 1
	Update
	Delete
)

// String returns the verb in lower case.
func (v Verb) String() string {
	return [...]string{"", "create", "update", "delete"}[v]
}
