package document_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/proto/document"
	"github.com/weftnet/weft/proto/document/documenttest"
	_ "github.com/weftnet/weft/proto/weft/operator/v1" // registers its messages
)

// messageTypes returns the types of messages of Weft's protocols.
func messageTypes(t *testing.T) (types []protoreflect.MessageType) {
	t.Helper()
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		if strings.HasPrefix(string(m.Descriptor().FullName()), "weft.") {
			types = append(types, m)
		}
		return true
	})
	if len(types) < 80 {
		t.Errorf("found %d types of messages", len(types))
	}
	return types
}

// validate validates the JSON of a document by the schema of a type of messages.
func validate(m protoreflect.MessageDescriptor, doc map[string]any) error {
	defs := map[string]any{}
	schema := maps.Clone(document.Schema(m, defs))
	schema["$schema"] = document.Dialect
	schema["$defs"] = defs
	raw, err := json.Marshal(doc)
	if err == nil {
		_, err = documenttest.Validate(schema, raw)
	}
	return err
}

// filler sets the fields of messages for which isSet returns true.
type filler struct {
	*rapid.T
	isSet func() bool
}

// fill sets fields of a message. Messages in it are set down to a depth, because a type may contain itself.
func (f filler) fill(m protoreflect.Message, depth int) {
	switch known := m.Interface().(type) {
	case *timestamppb.Timestamp:
		known.Seconds = rapid.Int64Range(-62135596800, 253402300799).Draw(f.T, "seconds") // years 1 to 9999
		known.Nanos = rapid.Int32Range(0, 999999999).Draw(f.T, "nanoseconds")
		return
	case *durationpb.Duration:
		known.Seconds = rapid.Int64Range(-315576000000, 315576000000).Draw(f.T, "seconds")
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.Message() != nil && depth == 0, !f.isSet():
		case field.IsList():
			list := m.Mutable(field).List()
			list.Append(f.value(field, list.NewElement(), depth))
		case field.IsMap():
			entries := m.Mutable(field).Map()
			key := protoreflect.ValueOfString(rapid.String().Draw(f.T, "key")).MapKey()
			entries.Set(key, f.value(field.MapValue(), entries.NewValue(), depth))
		default:
			m.Set(field, f.value(field, m.NewField(field), depth))
		}
	}
}

// value returns a value of a field, a list or a map in place of the zero value.
func (f filler) value(field protoreflect.FieldDescriptor, zero protoreflect.Value, depth int) protoreflect.Value {
	switch zero := zero.Interface().(type) {
	case protoreflect.Message:
		f.fill(zero, depth-1)
	case bool:
		return protoreflect.ValueOfBool(true)
	case string:
		return protoreflect.ValueOfString(rapid.String().Draw(f.T, field.JSONName()))
	case []byte:
		text := rapid.SampledFrom([]string{"", "null", `{"a": [1, "b"]}`, "no JSON"}).Draw(f.T, field.JSONName())
		return protoreflect.ValueOfBytes([]byte(text))
	case int32:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(f.T, field.JSONName()))
	case int64:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(f.T, field.JSONName()))
	case uint32:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(f.T, field.JSONName()))
	case uint64:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(f.T, field.JSONName()))
	default:
		f.Fatalf("%s has a %T, which this test does not fill", field.FullName(), zero)
	}
	return zero
}

func TestDocumentsOfMessagesFollowTheirSchemas(t *testing.T) {
	types := messageTypes(t)
	for name, isSet := range map[string]func(*rapid.T) bool{
		"no field is set":     func(*rapid.T) bool { return false },
		"all fields are set":  func(*rapid.T) bool { return true },
		"some fields are set": func(t *rapid.T) bool { return rapid.Bool().Draw(t, "set") },
	} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			m := rapid.SampledFrom(types).Draw(t, "type").New()
			filler{t, func() bool { return isSet(t) }}.fill(m, 3)
			if doc := document.Of(m); validate(m.Descriptor(), doc) != nil {
				t.Errorf("%s %v: %v", m.Descriptor().FullName(), doc, validate(m.Descriptor(), doc))
			}
		}))
	}
}

// wrong returns values that a field never has in a document.
func wrong(field protoreflect.FieldDescriptor) []any {
	element := []any{"a text"}
	switch {
	case field.IsMap():
		element = wrong(field.MapValue())
	case field.Kind() == protoreflect.BytesKind: // any JSON
		element = nil
	case field.Kind() == protoreflect.StringKind:
		element = []any{1, nil}
	case field.Kind() == protoreflect.Uint32Kind, field.Kind() == protoreflect.Uint64Kind:
		element = []any{"1", -1, 1.5}
	case field.Message() != nil && field.Message().FullName() == "google.protobuf.Duration":
		element = []any{"1m", "1", 1}
	case field.Message() != nil:
		element = []any{"yesterday", 1}
	}
	if !field.IsList() && !field.IsMap() {
		return element
	}
	values := []any{nil, "a text"}
	for _, one := range element {
		if field.IsList() {
			values = append(values, []any{one})
		} else {
			values = append(values, map[string]any{"key": one})
		}
	}
	return values
}

func TestOtherDocumentsDoNotFollowTheSchema(t *testing.T) {
	checked := 0
	refused := func(m protoreflect.MessageType, name string, change func(doc map[string]any)) {
		doc := document.Of(m.New())
		change(doc)
		if checked++; validate(m.Descriptor(), doc) == nil {
			t.Errorf("%s: %s: %v is valid", m.Descriptor().FullName(), name, doc)
		}
	}
	for _, m := range messageTypes(t) {
		refused(m, "an additional field", func(doc map[string]any) { doc["zzz"] = 1 })
		fields := m.Descriptor().Fields()
		for i := range fields.Len() {
			field := fields.Get(i)
			name := field.JSONName()
			if !field.HasPresence() {
				refused(m, "without "+name, func(doc map[string]any) { delete(doc, name) })
			}
			for _, value := range wrong(field) {
				refused(m, name, func(doc map[string]any) { doc[name] = value })
			}
		}
	}
	if checked < 1000 {
		t.Errorf("checked %d documents", checked)
	}
}
