package jsonempty_test

import (
	"encoding/json"
	"testing"

	"github.com/weftnet/weft/internal/jsonempty"
)

func TestEmptyValuesEqualAMissingKey(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "null": true, `""`: true, "[]": true, "{}": true, " [ ] ": true, "{\n}": true,
		"0": false, "false": false, `" "`: false, "[null]": false, `{"a":null}`: false, "{": false,
	} {
		if got := jsonempty.Is(json.RawMessage(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
