package client_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/weftnet/weft/k8s/api/adminpolicy"
	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
)

// builtin are the groups that are part of Kubernetes. The API server decodes their objects with the types of client-go
// and encodes them again, so it serves no value that client-go cannot decode. The objects of all other groups are JSON
// that a definition (CRD) accepts.
var builtin = []string{"", "coordination.k8s.io", "discovery.k8s.io", "networking.k8s.io"}

// foreign are the groups with definitions that are not part of Weft: these may be of another version, and accept any
// value.
var foreign = []string{npwg.GroupVersion().Group, adminpolicy.GroupVersion().Group}

// The API server returns all objects of a kind in one list. If one of them cannot be decoded, no component sees any of
// them. Of Weft's own kinds TestNoValueThatTheSchemaAcceptsHidesOtherObjects of k8s/api/v1 shows the same.
func TestNoObjectHidesOthers(t *testing.T) {
	scheme, err := client.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for name, kind := range kindsOf(t, scheme) {
		switch {
		case slices.Contains(builtin, kind.Group) || kind.Group == v1.Group:
			continue
		case !slices.Contains(foreign, kind.Group):
			t.Errorf("%s: group %q is in no list of this test", name, kind.Group)
			continue
		}
		list, err := scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err != nil {
			t.Fatal(err)
		}
		object, err := scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		paths := append(fieldsOf("", reflect.TypeOf(object).Elem()), ".status", ".status.conditions",
			".status.conditions[].lastTransitionTime")
		for _, path := range paths {
			for _, value := range []string{
				`null`, `"x"`, `"2026-01-01t00:00:00z"`, `-1`, `1.5`, `1e30`, `9223372036854775808`, `true`, `{}`,
				`{"x": 1}`, `[]`, `["x"]`, `[[7]]`,
			} {
				tried++
				mustShowOther(t, list.DeepCopyObject(), path, value)
			}
		}
	}
	if tried < 1000 {
		t.Errorf("only %d objects", tried)
	}
}

// mustShowOther fails the test unless a list shows an object beside one with a value at a path.
func mustShowOther(t *testing.T, list runtime.Object, path, value string) {
	t.Helper()
	raw := fmt.Sprintf(`{"items": [%s, {"metadata": {"name": "other"}}]}`, nested(path, value))
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(raw), list); err != nil {
		t.Errorf("%T: %s at %s hides all objects: %v", list, value, path, err)
		return
	}
	items, err := meta.ExtractList(list)
	if err != nil || len(items) != 2 {
		t.Errorf("%T: %s at %s: %d objects, error %v", list, value, path, len(items), err)
		return
	}
	if other, err := meta.Accessor(items[1]); err != nil || other.GetName() != "other" {
		t.Errorf("%T: %s at %s: the other object is %v, error %v", list, value, path, other, err)
	}
}

// kindsOf returns the kinds to which a client gives access, by the names of its methods.
func kindsOf(t *testing.T, scheme *runtime.Scheme) map[string]schema.GroupVersionKind {
	t.Helper()
	kinds := make(map[string]schema.GroupVersionKind)
	of := reflect.TypeFor[*client.Client]()
	for n := range of.NumMethod() {
		method := of.Method(n)
		if method.Type.NumOut() != 1 {
			continue
		}
		get, isTyped := method.Type.Out(0).MethodByName("Get")
		if !isTyped || !get.Type.Out(0).Implements(reflect.TypeFor[runtime.Object]()) ||
			get.Type.Out(0).Kind() != reflect.Pointer {
			continue
		}
		object, is := reflect.New(get.Type.Out(0).Elem()).Interface().(runtime.Object)
		if !is {
			t.Fatalf("%s gives access to %s", method.Name, get.Type.Out(0))
		}
		if _, isMetadata := object.(*metav1.PartialObjectMetadata); isMetadata {
			continue // which the API server makes
		}
		found, _, err := scheme.ObjectKinds(object)
		if err != nil {
			t.Fatalf("%s: %v", method.Name, err)
		}
		kinds[method.Name] = found[0]
	}
	if len(kinds) < 15 {
		t.Errorf("only %d kinds: %v", len(kinds), kinds)
	}
	return kinds
}

// fieldsOf lists the paths of all fields of a type and of the types in it, except metadata, which the API server reads
// itself.
func fieldsOf(path string, of reflect.Type) []string {
	var paths []string
	if path != "" {
		paths = append(paths, path)
	}
	switch of.Kind() {
	case reflect.Pointer:
		return fieldsOf(path, of.Elem())
	case reflect.Slice:
		return append(paths, fieldsOf(path+"[]", of.Elem())...)
	case reflect.Map:
		return append(paths, fieldsOf(path+".key", of.Elem())...)
	case reflect.Struct:
	default:
		return paths
	}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && name != "-" && name != "metadata" {
			paths = append(paths, fieldsOf(path+"."+name, field.Type)...)
		}
	}
	return paths
}

// nested returns an object with a value at a path, such as .spec.rules[].name.
func nested(path, value string) string {
	text := value
	for _, name := range slices.Backward(strings.Split(strings.ReplaceAll(path, "[]", ".[]"), ".")[1:]) {
		if name == "[]" {
			text = "[" + text + "]"
			continue
		}
		key, err := json.Marshal(name)
		if err != nil {
			panic(err)
		}
		text = fmt.Sprintf("{%s:%s}", key, text)
	}
	return text
}
