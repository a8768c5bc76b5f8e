package ctl

import (
	"io"
	"unicode/utf8"
)

// screen writes the output of a node to a terminal, which would interpret its control characters. One goroutine calls
// it.
type screen struct {
	to   io.Writer
	rest []byte // the first bytes of an incomplete character
}

// Write writes all complete characters.
func (s *screen) Write(p []byte) (int, error) {
	text := append(s.rest, p...)
	end := len(text)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
		}
	}
	s.rest = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(s.to, printable(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes the rest, which is no character.
func (s *screen) flush() {
	_, _ = io.WriteString(s.to, printable(string(s.rest))) // the terminal may be gone
	s.rest = nil
}
