package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// text reads an asciicast v2 and returns what it shows. It fails if times decrease.
func text(t *testing.T, cast []byte) string {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(cast))
	lines.Buffer(nil, len(cast)+1)
	var header struct{ Version, Width, Height int }
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &header) != nil || header.Version != 2 || header.Width == 0 ||
		header.Height == 0 {
		t.Fatalf("header %s", lines.Bytes())
	}
	var shown strings.Builder
	last := 0.0
	for lines.Scan() {
		var event []any
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil || len(event) != 3 || event[1] != "o" {
			t.Fatalf("event %s: %v", lines.Bytes(), err)
		}
		at, isTime := event[0].(float64)
		output, isText := event[2].(string)
		if !isTime || !isText || at < last {
			t.Fatalf("event %s after %v s", lines.Bytes(), last)
		}
		last = at
		shown.WriteString(output)
	}
	return strings.ReplaceAll(shown.String(), "\r\n", "\n")
}

func TestRecordingShowsTheOutput(t *testing.T) {
	var out, file bytes.Buffer
	now := time.Unix(0, 0)
	r, err := newRecording(&out, &file, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"one\n", "two \"quoted\"\n"} {
		now = now.Add(1500 * time.Millisecond)
		if _, err := r.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if got := text(t, file.Bytes()); got != out.String() || got != "one\ntwo \"quoted\"\n" {
		t.Errorf("the recording shows %q, and the output is %q", got, out.String())
	}
	if !strings.Contains(file.String(), `[3,"o",`) {
		t.Errorf("no event at 3 s in %s", &file)
	}
}

// docs/demo.cast is a recording of the demo with all of its steps, in their order.
func TestRecordingOfTheDocumentationHasAllSteps(t *testing.T) {
	cast, err := os.ReadFile("../../docs/demo.cast")
	if err != nil {
		t.Fatal(err)
	}
	rest := text(t, cast)
	for _, s := range story(false) {
		_, after, found := strings.Cut(rest, s.title)
		if !found {
			t.Errorf("docs/demo.cast lacks the step %q: run make demo RECORD=docs/demo.cast", s.title)
			continue
		}
		rest = after
	}
}
