package line_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weftnet/weft/internal/line"
)

// FuzzOf checks that Of returns one line of bounded length for any text, and does not change that.
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
		if repeated := line.Of(got, most); repeated != got {
			t.Errorf("Of changes its result %q to %q", got, repeated)
		}
	})
}
