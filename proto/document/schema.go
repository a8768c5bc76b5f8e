package document

import "google.golang.org/protobuf/reflect/protoreflect"

// Dialect is the dialect of the schemas: JSON Schema, draft 2020-12.
const Dialect = "https://json-schema.org/draft/2020-12/schema"

// Schema returns a reference to the JSON Schema of the documents that [Of] makes of messages of a type. It adds this
// schema, and those of the messages in it, to defs, which are the $defs of the whole schema, by the names of the types.
// Types may contain themselves. The schema does not say that a message has at most one field of a oneof.
func Schema(m protoreflect.MessageDescriptor, defs map[string]any) map[string]any {
	name := string(m.FullName())
	reference := map[string]any{"$ref": "#/$defs/" + name}
	if defs[name] != nil {
		return reference
	}
	properties := map[string]any{}
	required := []string{}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	defs[name] = schema // before the fields: a type may contain itself
	fields := m.Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		properties[field.JSONName()] = schemaOfField(field, defs)
		if !field.HasPresence() {
			required = append(required, field.JSONName())
		}
	}
	schema["required"] = required
	return reference
}

func schemaOfField(field protoreflect.FieldDescriptor, defs map[string]any) map[string]any {
	switch {
	case field.IsList():
		return map[string]any{"type": "array", "items": schemaOfSingle(field, defs)}
	case field.IsMap():
		return map[string]any{"type": "object", "additionalProperties": schemaOfSingle(field.MapValue(), defs)}
	}
	return schemaOfSingle(field, defs)
}

func schemaOfSingle(field protoreflect.FieldDescriptor, defs map[string]any) map[string]any {
	switch field.Kind() {
	case protoreflect.BytesKind: // any JSON
		return map[string]any{}
	case protoreflect.StringKind:
		return map[string]any{"type": "string"}
	case protoreflect.BoolKind:
		return map[string]any{"type": "boolean"}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return map[string]any{"type": "number"}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return map[string]any{"type": "integer", "minimum": 0}
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return schemaOfMessage(field.Message(), defs)
	}
	return map[string]any{"type": "integer"}
}

func schemaOfMessage(m protoreflect.MessageDescriptor, defs map[string]any) map[string]any {
	switch m.FullName() {
	case "google.protobuf.Timestamp":
		return map[string]any{"type": "string", "format": "date-time"}
	case "google.protobuf.Duration":
		return map[string]any{"type": "string", "pattern": `^-?[0-9]+(\.[0-9]+)?s$`}
	}
	return Schema(m, defs)
}
