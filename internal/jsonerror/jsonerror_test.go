package jsonerror_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/jsonerror"
)

type inner struct {
	MTU   int          `json:"mtu"`
	On    *bool        `json:"on"`
	Names []string     `json:"names"`
	Net   netip.Prefix `json:"net"`
	Queue uint8        `json:"queue"`
}

type outer struct {
	Inner inner            `json:"inner"`
	Map   map[string]inner `json:"map"`
	Raw   []byte           `json:"raw"`
	Share float64          `json:"share"`
}

func TestErrorsOfWrongTypesNameTheFieldAndNoTypeOfGo(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                            "expected an object, not a list",
		`{"inner": 7}`:                  "inner: expected an object, not a number",
		`{"inner": {"mtu": "big"}}`:     "inner.mtu: expected an integer, not a string",
		`{"inner": {"mtu": 1.5}}`:       "inner.mtu: expected an integer, not the number 1.5",
		`{"inner": {"on": "yes"}}`:      "inner.on: expected true or false, not a string",
		`{"inner": {"names": {}}}`:      "inner.names: expected a list, not an object",
		`{"inner": {"queue": -1}}`:      "inner.queue: expected a positive integer, not the number -1",
		`{"map": {"a": {"mtu": true}}}`: "mtu: expected an integer, not a boolean",
		`{"raw": 1}`:                    "raw: expected a string, not a number",
		`{"share": "x"}`:                "share: expected a number, not a string",
		`{`:                             "unexpected end of JSON input",
	} {
		err := jsonerror.Plain(json.Unmarshal([]byte(text), &outer{}))
		if err == nil || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if err := jsonerror.Plain(nil); err != nil {
		t.Error(err)
	}
}
