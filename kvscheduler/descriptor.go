package kvscheduler

import (
	"context"
	"iter"
	"time"
)

// DepMode says what a dependency does to its dependent.
type DepMode uint8

const (
	// Exists: the dependent is torn down before On goes away or is recreated.
	Exists DepMode = iota
	// Follow: as Exists, and the dependent is recreated when On is updated in place.
	Follow
	// Part: as Follow, and On makes the dependent: if the dependent is found missing, On is recreated.
	Part
)

// Dep is one thing that must be applied before an object can be. All dependencies of an object must be met.
// Exactly one of On and Any is set. On may name an object of an observed kind.
type Dep struct {
	Label string  // shown to the operator while the object waits
	On    Ref     // exact: this object must be applied ...
	Any   *Select // ... or: some applied object of a bucket must match
	Mode  DepMode
}

// Select names the candidates of an Any dependency.
type Select struct {
	Kind   Kind
	Bucket string                        // what Descriptor.Bucket of Kind returns, for example the interface's name
	Match  func(name string, v any) bool // nil: any member of the bucket
}

// Descriptor tells the scheduler how to handle the objects of one kind. V is the type of values, which are never
// modified after they were handed over; M is what a backend wants to remember of an applied object (a handle).
// All functions must be pure and fast. Only Name and Equal are required.
type Descriptor[V, M any] struct {
	Name     string                          // the kind
	Lane     string                          // backends of one lane never run at the same time; lanes run concurrently
	Equal    func(want, have V) bool         // is there nothing to do?
	Validate func(name string, v V) error    // run at admission, before any backend call
	Deps     func(name string, v V) []Dep    // what must be applied first
	Derive   func(name string, v V) []Object // children: they live and die with their parent
	Recreate func(have, want V) bool         // nil: an update in place is always possible
	Bucket   func(name string, v V) string   // for Select
	Hash     func(v V) uint64                // kept in the backend's tag; proves fields that cannot be dumped
	Merge    func(dumped, last V) V          // fill what cannot be dumped from the last applied value
	Redact   func(v V) V                     // for records, differences and whatever else leaves the process
	Encode   func(v V) ([]byte, error)       // default: JSON
	Decode   func(b []byte) (V, error)       // default: JSON
	After    []string                        // kinds to be dumped before this one
	Settle   time.Duration                   // hold back an observed "gone" this long
	Backend  Backend[V, M]                   // nil: observed only, or a marker that is applied by being desired
}

// Backend does operations in batches: one call for each (level, kind, verb) of a plan. It sets Item.Err, and for
// Create and Update Item.NewMeta. A nil Err means applied; an *OpError says what is known; any other error means that
// the outcome is unknown, and the object is read back before anything else happens to it.
//
// Operations must be idempotent: Delete of a missing object is no error. A call gets a deadline; it should return soon
// after ctx ends. Calls in one lane never overlap, but Dump and Read may run beside an operation.
type Backend[V, M any] interface {
	Create(ctx context.Context, batch []Item[V, M])
	Update(ctx context.Context, batch []Item[V, M])
	Delete(ctx context.Context, batch []Item[V, M])
	Dump(ctx context.Context, view View) iter.Seq2[Actual[V, M], error]
}

// Reader is an optional part of a Backend: it reads named objects with no full dump. Missing objects are left out.
type Reader[V, M any] interface {
	Read(ctx context.Context, view View, names []string) iter.Seq2[Actual[V, M], error]
}

// Item is one object of a batch.
type Item[V, M any] struct {
	Name    string
	Want    V     // Create, Update
	Have    V     // Update, Delete
	Meta    M     // Update, Delete: what Create or Dump gave
	Handles []any // Create, Update: Meta of Deps(Want)[i].On, in that order (Any: of one that matches)
	Attempt int   // how often this failed in a row before
	NewMeta M     // out: for Update preset to Meta
	Err     error // out
}

// Actual is one object as a backend found it.
type Actual[V, M any] struct {
	Name    string
	V       V
	Meta    M
	Owner   Owner
	Hash    uint64 // the hash that was stored with the object
	HasHash bool
}

// Owner says whose a dumped object is.
type Owner uint8

const (
	// Ours was made by us.
	Ours Owner = iota
	// Foreign is never touched.
	Foreign
	// Unclear is ours only if the journal or a desired object says so.
	Unclear
)
