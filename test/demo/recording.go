package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Size of the terminal in the recording, in characters. Few lines of the demo are longer; the player wraps them.
const (
	columns = 150
	rows    = 45
)

// idleLimit is the longest pause, in seconds, that a player shows.
const idleLimit = 1

// recording passes an output on, and writes it to a file in the format asciicast v2 (docs.asciinema.org).
type recording struct {
	out, file io.Writer
	now       func() time.Time
	began     time.Time
}

// newRecording begins a recording.
func newRecording(out, file io.Writer, now func() time.Time) (*recording, error) {
	r := &recording{out: out, file: file, now: now, began: now()}
	return r, r.line(map[string]any{
		"version":         2,
		"width":           columns,
		"height":          rows,
		"title":           "make demo",
		"idle_time_limit": idleLimit,
	})
}

// Write writes a part of the output to both.
func (r *recording) Write(text []byte) (int, error) {
	shown := strings.ReplaceAll(string(text), "\n", "\r\n") // a terminal needs both
	if err := r.line([]any{r.now().Sub(r.began).Seconds(), "o", shown}); err != nil {
		return 0, err
	}
	return r.out.Write(text)
}

func (r *recording) line(value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		_, err = fmt.Fprintf(r.file, "%s\n", text)
	}
	if err != nil {
		return fmt.Errorf("record the demo: %w", err)
	}
	return nil
}
