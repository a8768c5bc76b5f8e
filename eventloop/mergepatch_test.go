package eventloop

import (
	"encoding/json"
	"reflect"
	"testing"
)

// The cases of RFC 7396, appendix A, and others.
func TestMergePatch(t *testing.T) {
	for _, tc := range []struct{ doc, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{``, `{"a":1,"b":null}`, `{"a":1}`},
		{
			`{"a":18446744073709551615}`, `{"b":18446744073709551614}`,
			`{"a":18446744073709551615,"b":18446744073709551614}`,
		},
	} {
		got, err := mergePatch([]byte(tc.doc), []byte(tc.patch))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s with %s is %s (%v), want %s", tc.doc, tc.patch, got, err, tc.want)
		}
	}
	for _, tc := range [][2]string{{`{`, `{}`}, {`{}`, `{"a":`}, {`{}`, `{} {}`}, {`{}`, ``}} {
		if got, err := mergePatch([]byte(tc[0]), []byte(tc[1])); err == nil {
			t.Errorf("%s with %s is %s, want an error", tc[0], tc[1], got)
		}
	}
}

// A merge patch is idempotent.
func FuzzMergePatch(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`), []byte(`{"a":{"b":null,"c":[1]}}`))
	f.Add([]byte(``), []byte(`"x"`))
	f.Add([]byte(`[1]`), []byte(`{"a":null}`))
	f.Fuzz(func(t *testing.T, doc, patch []byte) {
		once, err := mergePatch(doc, patch)
		if err != nil {
			return
		}
		twice, err := mergePatch(once, patch)
		if err != nil {
			t.Fatalf("the result %s is no document: %v", once, err)
		}
		var a, b any
		if json.Unmarshal(once, &a) == nil && json.Unmarshal(twice, &b) == nil && !reflect.DeepEqual(a, b) {
			t.Errorf("once %s, twice %s", once, twice)
		}
	})
}
