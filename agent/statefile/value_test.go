package statefile

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// Small values are JSON, which former versions read. Large ones are compressed; both are read, also a large one of a
// former version.
func TestValuesAreReadAsTheyWereWritten(t *testing.T) {
	for _, size := range []int{0, 10, compressFrom - 3, compressFrom - 2, 1 << 20} {
		want := strings.Repeat("x", size)
		plain, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if isPlain := bytes.Equal(raw, plain); isPlain != (len(plain) < compressFrom) {
			t.Errorf("%d bytes are JSON: %t", len(plain), isPlain)
		}
		for _, b := range [][]byte{raw, plain} {
			got := ""
			if err := decode(b, &got); err != nil || got != want {
				t.Errorf("%d bytes: read %d, %v", size, len(got), err)
			}
		}
	}
	large, err := encode(strings.Repeat("x", 1<<20))
	if err != nil || len(large) > 1<<14 {
		t.Errorf("a mebibyte of one letter has %d bytes, %v", len(large), err)
	}
}

func TestDamagedValuesAreErrors(t *testing.T) {
	large, err := encode(strings.Repeat("x", 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	for what, b := range map[string][]byte{
		"empty": {}, "null": []byte(" null\n"), "no JSON": []byte("{"), "one byte": large[:1],
		"cut": large[:len(large)-9], "changed": append(bytes.Clone(large[:30]), 0, 0),
	} {
		into := ""
		if err := decode(b, &into); err == nil {
			t.Errorf("%s is read", what)
		}
	}
}
