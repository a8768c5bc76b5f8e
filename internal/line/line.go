// Package line makes a text one line of bounded length.
package line

import (
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// Bounds, in bytes, that grow from the inside out: the mark of the innermost cut is kept. Users' texts, such as annotations of
// 16 KiB, are quoted in errors, and these are stored with events, logged, and kept by the runtime and by Kubernetes.
const (
	Cause = 1536 // of an error that a handler makes
	Error = 2048 // of an error that a program returns
	Log   = 4096 // of an attribute of a log message
)

// longestMark is a bound of the length of the mark of a cut.
const longestMark = 48

// Attr bounds the errors that are logged: it is the ReplaceAttr of a program's log.
func Attr(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(Of(err.Error(), Log))
	}
	return a
}

// Of makes a text one line of no more bytes than most, which is above 48. A longer text is cut between two runes, and says how many
// bytes of it are missing. Bytes that are not UTF-8 are replaced.
func Of(text string, most int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	if len(text) <= most {
		return text
	}
	end := most - longestMark
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s ... (%d bytes cut)", text[:end], len(text)-end)
}
