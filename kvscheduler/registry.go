package kvscheduler

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// registry has the kinds, and the lanes of their backends. It does not change once Run has begun.
type registry struct {
	kinds     map[Kind]*kind
	kindIndex map[Kind]int
	lanes     map[string]*lane
	running   atomic.Bool
}

func (r *registry) add(k *kind) error {
	if r.running.Load() {
		return fmt.Errorf("register kind %s: the scheduler runs already", k.name)
	}
	if _, dup := r.kinds[k.name]; dup {
		return fmt.Errorf("register kind %s: registered twice", k.name)
	}
	r.kinds[k.name] = k
	if r.lanes[k.lane] == nil {
		r.lanes[k.lane] = &lane{name: k.lane}
	}
	return nil
}

func (r *registry) kindNames() []Kind {
	names := make([]Kind, 0, len(r.kinds))
	for k := range r.kinds {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// dumpOrder puts every kind behind those it names in After.
func (r *registry) dumpOrder(kinds []Kind) ([]*kind, error) {
	var order []*kind
	state := make(map[Kind]int, len(kinds))
	var visit func(name Kind) error
	visit = func(name Kind) error {
		k := r.kinds[name]
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

// backed returns the kinds that can be dumped, of those named or of all.
func (r *registry) backed(kinds []Kind) ([]*kind, error) {
	if len(kinds) == 0 {
		kinds = r.kindNames()
	}
	order, err := r.dumpOrder(kinds)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(order, func(k *kind) bool { return !slices.Contains(kinds, k.name) }), nil
}

func (r *registry) kindOf(key string) (Ref, *kind, error) {
	ref, err := ParseRef(key)
	if err != nil {
		return ref, nil, err
	}
	k := r.kinds[ref.Kind]
	if k == nil {
		return ref, nil, fmt.Errorf("%w of %s", ErrUnknownKind, ref)
	}
	return ref, k, nil
}

// Object makes an Object from a key "kind/name" and a value of the kind's Go type; nil deletes. It is for callers that
// do not know kinds.
func (r *registry) Object(key string, value any) (Object, error) {
	ref, k, err := r.kindOf(key)
	if err != nil {
		return Object{}, err
	}
	if value != nil {
		if err := k.check(ref, value); err != nil {
			return Object{}, err
		}
	}
	return Object{Ref: ref, Value: value}, nil
}

// Encode returns the stored form of a value.
func (r *registry) Encode(key string, value any) ([]byte, error) {
	ref, k, err := r.kindOf(key)
	if err != nil {
		return nil, err
	}
	if err := k.check(ref, value); err != nil {
		return nil, err
	}
	b, err := k.encode(value)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", ref, err)
	}
	return b, nil
}

// Decode reads the stored form of a value.
func (r *registry) Decode(key string, b []byte) (any, error) {
	ref, k, err := r.kindOf(key)
	if err != nil {
		return nil, err
	}
	v, err := k.decode(b)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", ref, err)
	}
	return v, nil
}

// Validate checks a value as admission would.
func (r *registry) Validate(key string, value any) error {
	ref, k, err := r.kindOf(key)
	if err != nil {
		return err
	}
	if err := k.check(ref, value); err != nil {
		return err
	}
	if err := k.validate(ref.Name, value); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, ref, err)
	}
	return nil
}

// Redacted returns a value without its secrets, for logs and operators.
func (r *registry) Redacted(ref Ref, value any) any {
	if k := r.kinds[ref.Kind]; k != nil && value != nil {
		return k.redact(value)
	}
	return value
}

func (k *kind) check(ref Ref, v any) error {
	if !k.is(v) {
		return fmt.Errorf("%s: the value is a %T, the kind %s takes %s", ref, v, k.name, k.typeName)
	}
	return nil
}
