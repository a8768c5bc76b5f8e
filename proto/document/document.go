// Package document converts messages of the agent into the JSON documents of weftctl -o json and of the web page.
package document

import (
	"encoding/json"
	"strconv"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Of converts a message into the value that -o json prints. It differs from protobuf's JSON mapping: zero values
// are present, 64-bit numbers are numbers, and bytes fields, which hold JSON in this API, are embedded as JSON.
func Of(m protoreflect.Message) map[string]any {
	doc := make(map[string]any)
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.HasPresence() && !m.Has(field) {
			continue
		}
		doc[field.JSONName()] = fieldOf(field, m.Get(field))
	}
	return doc
}

func fieldOf(field protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch {
	case field.IsList():
		list := make([]any, v.List().Len())
		for i := range list {
			list[i] = single(v.List().Get(i))
		}
		return list
	case field.IsMap():
		entries := make(map[string]any)
		v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			entries[key.String()] = single(value)
			return true
		})
		return entries
	}
	return single(v)
}

func single(v protoreflect.Value) any {
	switch value := v.Interface().(type) {
	case []byte:
		return raw(value)
	case protoreflect.Message:
		switch known := value.Interface().(type) {
		case *timestamppb.Timestamp:
			return known.AsTime().Format(time.RFC3339Nano)
		case *durationpb.Duration:
			return strconv.FormatFloat(known.AsDuration().Seconds(), 'f', -1, 64) + "s"
		}
		return Of(value)
	default:
		return value
	}
}

// raw returns b as raw JSON: nil if b is empty, a string if b is not valid JSON.
func raw(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	if !json.Valid(b) {
		return string(b)
	}
	return json.RawMessage(b)
}
