package agent

import (
	"encoding/json"
	"fmt"
	"reflect"

	"sigs.k8s.io/yaml"
)

// structured makes a key whose value is more than a word a flag: it takes the same YAML or JSON as the file. Unknown keys
// in it are errors.
type structured[T any] struct {
	value *T
	kind  string // for the help text
}

// String shows the value as JSON, which is YAML too; "" for none.
func (s *structured[T]) String() string {
	if s.value == nil || reflect.ValueOf(*s.value).IsZero() {
		return ""
	}
	raw, err := json.Marshal(*s.value)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// Set replaces the value.
func (s *structured[T]) Set(text string) error {
	var v T
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	*s.value = v
	return nil
}

// Type names the value in the help text.
func (s *structured[T]) Type() string { return s.kind }
