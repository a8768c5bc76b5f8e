package line_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weftnet/weft/internal/line"
)

// FuzzOf makes any text, such as a pod's annotation in an error, one line of bounded length.
func FuzzOf(f *testing.F) {
	f.Add("a\nb\r\nc", 49)
	f.Add(strings.Repeat("\xff", 100), 60)
	f.Add(strings.Repeat("ä", 100), 101)
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most <= 48 || most > line.Log {
			return
		}
		got := line.Of(text, most)
		if len(got) > most || strings.ContainsAny(got, "\n\r") || !utf8.ValidString(got) {
			t.Errorf("%q became %q of %d bytes, at most %d are allowed", text, got, len(got), most)
		}
		if again := line.Of(got, most); again != got {
			t.Errorf("%q, and again %q", got, again)
		}
	})
}
