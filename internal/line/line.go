// Package line makes a text one line of bounded length.
package line

import (
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// Maximum lengths in bytes. Each outer layer allows more, so that it keeps the mark of an inner cut. Errors quote texts
// of users, such as annotations of 16 KiB, and are kept in events, logs, the runtime and Kubernetes.
const (
	Cause = 1536 // an error of a handler
	Error = 2048 // an error that a program returns
	Log   = 4096 // an attribute of a log message
)

// longestMark is the maximum length of the mark of a cut.
const longestMark = 48

// Attr limits the length of errors in logs. It is a slog.HandlerOptions.ReplaceAttr.
func Attr(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(Of(err.Error(), Log))
	}
	return a
}

// Of returns text as one line of at most limit bytes; limit must be more than 48. It cuts a longer text between two
// runes and appends the number of missing bytes. It replaces invalid UTF-8.
func Of(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	if len(text) <= limit {
		return text
	}
	kept := Cut(text, limit-longestMark, "")
	return fmt.Sprintf("%s ... (%d bytes cut)", kept, len(text)-len(kept))
}

// Cut returns text, or if that is longer than limit bytes, its beginning and mark, in at most limit bytes. It cuts
// between two runes. The result does not keep a longer text in memory.
func Cut(text string, limit int, mark string) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end]) + mark
}
