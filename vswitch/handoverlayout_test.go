package vswitch

import (
	"crypto/sha256"
	"encoding"
	"encoding/gob"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/weftnet/weft/vswitch/model"
)

// layouts has a hash of the types that are handed over, by version. A new layout gets a new version (handoverVersion or
// model.StateVersion) and a new line. An existing line never changes: dataplanes of that version are running.
var layouts = map[string]string{
	"weft-vswitch handover 2, state 2": "1eeeddf37b8f3ac5",
	"weft-vswitch handover 2, state 3": "50ccfcfaba356cb7",
	"weft-vswitch handover 2, state 4": "984574c981ff78b7",
}

// The handed-over types never change without their version: gob would decode fields of another meaning, or leave them
// out silently.
func TestHandedOverTypesHaveTheLayoutOfTheirVersion(t *testing.T) {
	text := layoutOf(reflect.TypeFor[parcel]()) + layoutOf(reflect.TypeFor[model.State]())
	sum := sha256.Sum256([]byte(text))
	got := hex.EncodeToString(sum[:8])
	if want := layouts[string(greeting)]; got != want {
		t.Errorf("the layout of %q is %s, recorded is %q: use a new version and record it. The types are\n%s", greeting,
			got, want, text)
	}
}

// layoutOf lists a type and all types in it, with the fields that gob transfers.
func layoutOf(root reflect.Type) string {
	var text strings.Builder
	seen := map[reflect.Type]bool{}
	var list func(t reflect.Type)
	list = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			list(t.Elem())
			return
		case reflect.Map:
			list(t.Key())
			list(t.Elem())
			return
		}
		if seen[t] || t.PkgPath() == "" {
			return
		}
		seen[t] = true
		fmt.Fprintf(&text, "%s %s\n", t, t.Kind())
		if t.Kind() != reflect.Struct || encodesItself(t) {
			return
		}
		var inner []reflect.Type
		for n := range t.NumField() {
			if f := t.Field(n); f.IsExported() {
				fmt.Fprintf(&text, "\t%s %s\n", f.Name, f.Type)
				inner = append(inner, f.Type)
			}
		}
		for _, one := range inner {
			list(one)
		}
	}
	list(root)
	return text.String()
}

// encodesItself reports whether gob uses a method of the type in place of its fields.
func encodesItself(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[gob.GobEncoder]()) || t.Implements(reflect.TypeFor[encoding.BinaryMarshaler]())
}

func TestLayoutDependsOnNamesAndTypesOfNestedFields(t *testing.T) {
	type inner struct{ A int32 }
	type renamed struct{ B int32 }
	type wider struct{ A int64 }
	all := map[string]bool{}
	for _, one := range []reflect.Type{
		reflect.TypeFor[struct{ X []inner }](), reflect.TypeFor[map[string]*renamed](), reflect.TypeFor[[2]wider](),
	} {
		if one.Kind() == reflect.Struct {
			one = one.Field(0).Type
		}
		all[strings.SplitN(layoutOf(one), "\n", 2)[1]] = true
	}
	if len(all) != 3 {
		t.Errorf("layouts %v", all)
	}
}
