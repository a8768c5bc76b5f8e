package line

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestShortTextsAreNotCut(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "pod a/b": "pod a/b", "a\nb\r\nc": "a; b; c", "\xffx": "\uFFFDx",
		strings.Repeat("é", 50): strings.Repeat("é", 50),
	} {
		if got := Of(text, 100); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestLongTextsAreCutBetweenRunes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("aé€😀\n\ufffd")), -1, 10000, -1).Draw(t, "text")
		most := rapid.IntRange(100, 4096).Draw(t, "most")
		got := Of(text, most)
		if len(got) > most || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r") {
			t.Errorf("%d bytes of at most %d, valid %t", len(got), most, utf8.ValidString(got))
		}
		if kept, mark, cut := strings.Cut(got, " ... ("); cut != strings.HasSuffix(mark, " bytes cut)") ||
			cut && len(kept) < most-100 {
			t.Errorf("%d of %d bytes are kept with the mark %q", len(kept), len(text), mark)
		}
	})
}

func TestCutKeepsTheLimitWithItsMark(t *testing.T) {
	for _, tt := range []struct {
		text  string
		limit int
		mark  string
		want  string
	}{
		{"short", 5, "...", "short"},
		{"longer", 5, "...", "lo..."},
		{"äöü", 5, "", "äö"},
		{"äöüß", 6, "…", "ä…"},
		{"\x80\x80\x80\x80", 3, "", ""},
	} {
		if got := Cut(tt.text, tt.limit, tt.mark); got != tt.want {
			t.Errorf("%q within %d bytes: %q, want %q", tt.text, tt.limit, got, tt.want)
		}
	}
}
