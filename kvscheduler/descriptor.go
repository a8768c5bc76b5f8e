package kvscheduler

import (
	"context"
	"iter"

	"github.com/weftnet/weft/kvscheduler/plan"
)

type (
	// Kind names a class of objects, see plan.Kind.
	Kind = plan.Kind
	// Ref names one object, see plan.Ref.
	Ref = plan.Ref
	// Dep is a dependency, see plan.Dep.
	Dep = plan.Dep
	// DepMode is the effect of a dependency on its dependent, see plan.DepMode.
	DepMode = plan.DepMode
	// Select names the candidates of an Any dependency, see plan.Select.
	Select = plan.Select
	// Verb is the action of an operation, see plan.Verb.
	Verb = plan.Verb
)

// The modes of a dependency and the verbs of an operation.
const (
	Exists = plan.Exists
	Follow = plan.Follow
	Part   = plan.Part

	Create = plan.Create
	Update = plan.Update
	Delete = plan.Delete
)

// ParseRef parses a key "kind/name".
func ParseRef(key string) (Ref, error) { return plan.ParseRef(key) }

// Object is a value under its name.
type Object struct {
	Ref   Ref
	Value any // of the Go type of the kind; nil: the object is not desired
}

// Descriptor tells the scheduler how to handle the objects of one kind. V is the type of values, which are never
// modified after they were handed over; M is the handle that a backend keeps of an applied object.
// All functions must be pure and fast. Only Name and Equal are required.
type Descriptor[V, M any] struct {
	Name     string                        // the kind
	Lane     string                        // backends of one lane never run at the same time; lanes run concurrently
	Equal    func(want, have V) bool       // is no operation necessary?
	Validate func(name string, v V) error  // run at admission, before any backend call
	Deps     func(name string, v V) []Dep  // what must be applied first
	Recreate func(have, want V) bool       // nil: an update in place is always possible
	Disturbs func(have, want V) bool       // does an update in place affect those that follow? nil: each one does
	Bucket   func(name string, v V) string // for Select
	Hash     func(v V) uint64              // kept in the backend's tag; proves fields that cannot be dumped
	Merge    func(dumped, last V) V        // fill what cannot be dumped from the last applied value
	Redact   func(v V) V                   // for records, differences and other output of the process
	Encode   func(v V) ([]byte, error)     // default: JSON
	Decode   func(b []byte) (V, error)     // default: JSON
	After    []string                      // kinds to be dumped before this one
	Backend  Backend[V, M]                 // nil: a marker that is applied by being desired
}

// Backend does operations in batches: one call for each (level, kind, verb) of a plan. It sets Item.Err, and for Create
// and Update Item.NewMeta. A nil Err means applied; an *OpError has the outcome; any other error means that the outcome
// is unknown, and the object is read back before anything else happens to it.
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

// Owner is who manages a dumped object.
type Owner uint8

const (
	// Ours: made by this scheduler.
	Ours Owner = iota
	// Foreign: managed by a third party, never touched.
	Foreign
	// Unclear: ours only if the journal or a desired object says so.
	Unclear
)
