package ctl

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weftnet/weft/proto/document"
	"github.com/weftnet/weft/proto/document/documenttest"
)

// fillAll sets all fields of a value, and those that are omitted if they are empty only if whole is true.
func fillAll(v reflect.Value, whole bool) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() || v.Type().Field(i).Anonymous {
				fillAll(v.Field(i), whole)
			}
		}
	case reflect.Slice:
		length := 0
		if whole {
			length = 1
		}
		v.Set(reflect.MakeSlice(v.Type(), length, length))
		if whole {
			fillAll(v.Index(0), whole)
		}
	case reflect.Map:
		if whole {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf("key"), reflect.Zero(v.Type().Elem()))
		}
	case reflect.Pointer:
		if m, ok := v.Interface().(proto.Message); ok {
			v.Set(reflect.ValueOf(m.ProtoReflect().New().Interface()))
		}
	case reflect.String:
		if whole {
			v.SetString("a text")
		}
	case reflect.Int:
		if whole {
			v.SetInt(-1)
		}
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		if whole {
			v.SetUint(1)
		}
	case reflect.Bool:
		v.SetBool(whole)
	}
}

// documentsOf returns the documents of values of a type: of one without the fields that can be omitted, and of one with
// all fields.
func documentsOf(t *testing.T, kind reflect.Type) (short, whole map[string]any) {
	t.Helper()
	for doc, isWhole := range map[*map[string]any]bool{&short: false, &whole: true} {
		v := reflect.New(kind).Elem()
		fillAll(v, isWhole)
		raw, err := json.Marshal(v.Interface())
		if err == nil {
			err = json.Unmarshal(raw, doc)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return short, whole
}

func TestDocumentsOfGoTypesFollowTheirSchemas(t *testing.T) {
	kinds := []reflect.Type{reflect.TypeFor[clusterState](), reflect.TypeFor[nodeAnswers]()}
	for _, values := range documentTypes {
		for _, v := range values {
			if kind := reflect.TypeOf(v); kind.Kind() == reflect.Struct {
				kinds = append(kinds, kind)
			}
		}
	}
	for _, kind := range kinds {
		defs := map[string]any{outputs: map[string]any{}}
		schema := schemaOfType(kind, defs)
		schema["$schema"] = document.Dialect
		schema["$defs"] = defs
		valid := func(doc map[string]any) error {
			raw, err := json.Marshal(doc)
			if err == nil {
				_, err = documenttest.Validate(schema, raw)
			}
			return err
		}
		short, whole := documentsOf(t, kind)
		if err := valid(short); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if err := valid(whole); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for key := range short {
			less := maps.Clone(short)
			delete(less, key)
			if valid(less) == nil {
				t.Errorf("%s without %s is valid", kind, key)
			}
		}
		for key := range whole {
			other := maps.Clone(whole)
			other[key] = []any{nil} // no value of any field
			if valid(other) == nil {
				t.Errorf("%s is valid with another type of %s", kind, key)
			}
		}
		whole["zzz"] = 1
		if valid(whole) == nil {
			t.Errorf("%s is valid with an additional field", kind)
		}
	}
	if len(kinds) < 9 {
		t.Errorf("checked %d types", len(kinds))
	}
}
