package kvscheduler

import "fmt"

// Object makes an Object from a key "kind/name" and a value of the kind's Go type; nil deletes. It is for callers that
// do not know kinds.
func (s *Scheduler) Object(key string, value any) (Object, error) {
	ref, k, err := s.kindOf(key)
	if err != nil {
		return Object{}, err
	}
	if value != nil {
		if err := k.check(ref, value); err != nil {
			return Object{}, err
		}
	}
	return Object{Ref: ref, v: value}, nil
}

// Encode returns the stored form of a value.
func (s *Scheduler) Encode(key string, value any) ([]byte, error) {
	ref, k, err := s.kindOf(key)
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
func (s *Scheduler) Decode(key string, b []byte) (any, error) {
	ref, k, err := s.kindOf(key)
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
func (s *Scheduler) Validate(key string, value any) error {
	ref, k, err := s.kindOf(key)
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

func (s *Scheduler) kindOf(key string) (Ref, *kind, error) {
	ref, err := ParseRef(key)
	if err != nil {
		return ref, nil, err
	}
	k := s.kinds[ref.Kind]
	if k == nil {
		return ref, nil, fmt.Errorf("%w of %s", ErrUnknownKind, ref)
	}
	return ref, k, nil
}

func (k *kind) check(ref Ref, v any) error {
	if !k.is(v) {
		return fmt.Errorf("%s: the value is a %T, the kind %s takes %s", ref, v, k.name, k.typeName)
	}
	return nil
}
