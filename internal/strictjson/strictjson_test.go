package strictjson_test

import (
	"testing"

	"github.com/weftnet/weft/internal/strictjson"
)

type link struct {
	MTU   int    `json:"mtu"`
	Peers []peer `json:"peers"`
}

type peer struct {
	Name string `json:"name"`
}

func TestUnknownAndRepeatedFieldsAreErrorsWithTheirPaths(t *testing.T) {
	for document, want := range map[string]string{
		`{"mtu": 9000, "peers": [{"name": "a"}]}`:  "",
		`{"mtu": "9000"}`:                          "mtu: expected an integer, not a string",
		`{"Mtu": 9000}`:                            `unknown field "Mtu"`,
		`{"peers": [{"name": "a"}, {"nam": "b"}]}`: `unknown field "peers[1].nam"`,
		`{"peers": [{"name": "a", "name": "b"}]}`:  `duplicate field "peers[0].name"`,
		`{"mtu": 1, "mtu": 2, "x": 3}`:             `duplicate field "mtu", unknown field "x"`,
		`{} {}`:                                    "invalid character '{' after top-level value",
		``:                                         "unexpected end of JSON input",
	} {
		text := ""
		if err := strictjson.Unmarshal([]byte(document), &link{}); err != nil {
			text = err.Error()
		}
		if text != want {
			t.Errorf("%s: %q, want %q", document, text, want)
		}
	}
	var any any
	if err := strictjson.Unmarshal([]byte(`{"a": [{"b": 1, "b": 2}]}`), &any); err == nil {
		t.Error("a repeated key is accepted where any key is known")
	}
}
