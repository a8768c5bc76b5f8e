package yamltext

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weftnet/weft/internal/nearest"
)

// Checker compares decoded values with types of Go, and describes differences in terms of YAML.
type Checker struct {
	// Renamed maps keys of other programs' formats to ours, for hints.
	Renamed map[string]string
	// Expected describes the values of a type that has its own parser, such as netip.Prefix.
	Expected map[reflect.Type]string
	// Omitted are keys that types have, and documents cannot have.
	Omitted []string
}

// Check lists the parts of a value, as encoding/json decodes it into an any, that the type cannot have, in the order of
// the keys. The problems have no line.
func (c Checker) Check(v any, t reflect.Type, at Path) (problems []Problem) {
	say := func(format string, args ...any) {
		problems = append(problems, Problem{Path: at, Reason: fmt.Sprintf(format, args...)})
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case v == nil:
		return nil
	case parsesItself(t):
		if err := parse(v, t); err != nil {
			say("expected %s, not %s", c.expected(t), Quote(v))
		}
		return problems
	case t.Kind() == reflect.Struct:
		m, is := v.(map[string]any)
		if !is {
			say("expected keys and values, not %s", Describe(v))
			return problems
		}
		return c.checkStruct(m, t, at)
	case t.Kind() == reflect.Map:
		m, is := v.(map[string]any)
		if !is {
			say("expected keys and values, not %s", Describe(v))
			return problems
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			problems = append(problems, c.Check(m[k], t.Elem(), at.With(k))...)
		}
		return problems
	case t.Kind() == reflect.Slice:
		list, is := v.([]any)
		if !is {
			say("expected a list, not %s", Describe(v))
			return problems
		}
		for i, item := range list {
			problems = append(problems, c.Check(item, t.Elem(), at.With(i))...)
		}
		return problems
	}
	if err := parse(v, t); err != nil {
		say("expected %s, not %s", c.expected(t), Describe(v))
	}
	return problems
}

func (c Checker) checkStruct(m map[string]any, t reflect.Type, at Path) (problems []Problem) {
	fields := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && !f.Anonymous && name != "-" && name != "" && !slices.Contains(c.Omitted, name) {
			fields[name] = f.Type
		}
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if f, known := fields[k]; known {
			problems = append(problems, c.Check(m[k], f, at.With(k))...)
			continue
		}
		problems = append(problems, Problem{
			Path:   at.With(k),
			Reason: Unknown(k, slices.Sorted(maps.Keys(fields)), c.Renamed),
		})
	}
	return problems
}

// Unknown returns the error of an unknown key, with the key that was probably meant, or with all known ones.
func Unknown(key string, known []string, renamed map[string]string) string {
	hint := nearest.Hint(key, known)
	if now := renamed[key]; slices.Contains(known, now) {
		hint = fmt.Sprintf("; did you mean %s?", now)
	}
	if hint == "" && len(known) > 0 {
		hint = "; known are " + strings.Join(known, ", ")
	}
	return "unknown key" + hint
}

var (
	textParser = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonParser = reflect.TypeFor[json.Unmarshaler]()
)

func parsesItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(textParser) || reflect.PointerTo(t).Implements(jsonParser)
}

// parse decodes a value into a type.
func parse(v any, t reflect.Type) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, reflect.New(t).Interface())
}

// expected describes the values of a type.
func (c Checker) expected(t reflect.Type) string {
	if text := c.Expected[t]; text != "" {
		return text
	}
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a positive integer"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "another value"
}

// Describe names a value in an error: its type, and the value itself if it is short.
func Describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case map[string]any:
		return "keys and values"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the text %.80q", v)
	}
	return Quote(v)
}

// Quote returns a scalar value as in YAML; others are described.
func Quote(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%.80q", v)
	case map[string]any, []any, nil:
		return Describe(v)
	case float64:
		raw, _ := json.Marshal(v)
		return string(raw)
	}
	return fmt.Sprint(v)
}
