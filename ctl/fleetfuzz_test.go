package ctl

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/weftnet/weft/k8s/exec"
)

// FuzzAnswer reads any output of weftctl on a node: its document is valid JSON, its error one line without control
// characters, and a stream loses no byte.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		"{\"a\": 1}\n", "{\"a\": 1}\n{\"b\": 2}\n", "no json\n", "{\"cut", "\x1b[31m\x00\xff\n",
		"weftctl: a\nweftctl: b\r\n", "",
	} {
		f.Add([]byte(seed), len(seed)/2)
	}
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		a := answer{node: "n1", failure: exec.ExitError{Code: 1}}
		a.out.Write(text)
		a.err.Write(text)
		raw, err := json.Marshal(documentOf([]answer{a}))
		if err != nil || !json.Valid(raw) {
			t.Errorf("document of %q: %v", text, err)
		}
		if reason := a.reason(); reason == "" || printable(reason) != reason || strings.ContainsAny(reason, "\n\r") {
			t.Errorf("reason %q of %q", reason, text)
		}
		var out bytes.Buffer
		l := &lines{
			mu:     &sync.Mutex{},
			to:     &out,
			format: func(line []byte) []byte { return append(bytes.Clone(line), '\n') },
		}
		at = min(max(at, 0), len(text))
		_, _ = l.Write(text[:at])
		_, _ = io.Copy(l, bytes.NewReader(text[at:]))
		l.flush()
		if want := append(bytes.TrimSuffix(text, []byte("\n")), '\n'); len(text) > 0 &&
			!bytes.Equal(out.Bytes(), want) {
			t.Errorf("stream %q of %q", out.Bytes(), text)
		}
	})
}
