package kvscheduler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// kind is a descriptor with its types erased. Only erase.go makes the functions in it.
type kind struct {
	name     Kind
	lane     string
	after    []Kind
	settle   time.Duration
	backed   bool // has a backend; else observed, or a marker
	hashes   bool
	buckets  bool
	typeName string

	is       func(v any) bool
	equal    func(want, have any) bool
	recreate func(have, want any) bool
	validate func(name string, v any) error
	deps     func(name string, v any) []Dep
	derive   func(name string, v any) []Object
	bucket   func(name string, v any) string
	hash     func(v any) uint64
	merge    func(dumped, last any) any
	redact   func(v any) any
	encode   func(v any) ([]byte, error)
	decode   func(b []byte) (any, error)

	call func(ctx context.Context, verb Verb, items []opItem) []opResult
	dump func(ctx context.Context, view View) (found, error)
	read func(ctx context.Context, view View, names []string) (found, error) // nil: no Reader
}

// opItem is an Item on its way to a backend, opResult what came back.
type opItem struct {
	name             string
	want, have, meta any
	handles          []any
	attempt          int
}

type opResult struct {
	meta any
	err  error
}

// found is what a dump or a read returned: Actuals of one kind, still in their own type, so that a comparison
// without drift allocates nothing.
type found interface {
	len() int
	head(i int) head
	box(i int) (value, meta any)
	// same tells whether entry i is what is known as applied.
	same(i int, have, meta any) bool
}

type head struct {
	name    string
	owner   Owner
	hash    uint64
	hasHash bool
}

// Register adds a kind; it must come before Run.
func Register[V, M any](s *Scheduler, d Descriptor[V, M]) (KindOf[V], error) {
	if _, err := ParseRef(d.Name + "/x"); err != nil || len(d.Name) == 0 {
		return KindOf[V]{}, fmt.Errorf("register kind %q: a kind is not empty", d.Name)
	}
	for _, c := range d.Name {
		if c == '/' {
			return KindOf[V]{}, fmt.Errorf("register kind %q: a kind holds no slash", d.Name)
		}
	}
	if d.Equal == nil {
		return KindOf[V]{}, fmt.Errorf("register kind %s: Equal is required", d.Name)
	}
	k := erase(d)
	k.typeName = reflect.TypeFor[V]().String()
	if err := s.addKind(k); err != nil {
		return KindOf[V]{}, err
	}
	return KindOf[V]{id: k.name}, nil
}

func (s *Scheduler) addKind(k *kind) error {
	if s.running.Load() {
		return fmt.Errorf("register kind %s: the scheduler runs already", k.name)
	}
	if _, dup := s.kinds[k.name]; dup {
		return fmt.Errorf("register kind %s: registered twice", k.name)
	}
	s.kinds[k.name] = k
	if s.lanes[k.lane] == nil {
		s.lanes[k.lane] = &lane{name: k.lane}
	}
	return nil
}

// dumpOrder puts every kind behind those it names in After.
func (s *Scheduler) dumpOrder(kinds []Kind) ([]*kind, error) {
	var order []*kind
	state := make(map[Kind]int, len(kinds))
	var visit func(name Kind) error
	visit = func(name Kind) error {
		k := s.kinds[name]
		switch {
		case k == nil:
			return fmt.Errorf("%w %s", ErrUnknownKind, name)
		case state[name] == 1:
			return fmt.Errorf("dump order: %w through %s", ErrCycle, name)
		case state[name] == 2:
			return nil
		}
		state[name] = 1
		for _, a := range k.after {
			if err := visit(a); err != nil && !errors.Is(err, ErrUnknownKind) {
				return err
			}
		}
		state[name] = 2
		if k.backed {
			order = append(order, k)
		}
		return nil
	}
	for _, name := range kinds {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}
