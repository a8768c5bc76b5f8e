package ctl

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"
)

func TestSpansHaveAtMostTwoUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                   "0s",
		999 * time.Millisecond:         "0s",
		59 * time.Second:               "59s",
		60 * time.Second:               "1m0s",
		9*time.Minute + 59*time.Second: "9m59s",
		10*time.Minute + time.Second:   "10m",
		61 * time.Minute:               "1h1m",
		47 * time.Hour:                 "1d23h",
		400 * 24 * time.Hour:           "400d0h",
	} {
		if got := span(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

func TestDurationsHaveThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 340: "340ns", 12_345: "12.3µs", 1_251_999: "1.25ms", 999_999: "1ms", 3_456 * time.Millisecond: "3.46s",
		83_500 * time.Millisecond: "1m23.5s",
	} {
		if got := took(durationpb.New(d)); got != want {
			t.Errorf("%d ns: %s, want %s", d, got, want)
		}
	}
	if got := took(nil); got != "-" {
		t.Errorf("nil: %s", got)
	}
}

func TestTimesOfOtherDaysHaveTheDate(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.Local)
	c := &printer{now: func() time.Time { return now }}
	for ago, want := range map[time.Duration]string{time.Hour: "11:00:00.000", 23 * time.Hour: "2026-03-01 13:00:00"} {
		if got := c.clock(timestamppb.New(now.Add(-ago))); got != want {
			t.Errorf("%s ago: %s, want %s", ago, got, want)
		}
	}
	if got := c.until(timestamppb.New(now.Add(-time.Second))); got != "now" {
		t.Errorf("a time that has passed: %s", got)
	}
}

func TestErrorLineSeparatesSeveralErrors(t *testing.T) {
	for text, want := range map[string]string{
		"create a: no\ncreate b: no": "create a: no; create b: no", "a:\n\tb": "a: b", "a;\nb": "a; b",
		"\n a \n\n": "a", "a\tb  c": "a b c", "": "",
	} {
		if got := errorLine(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A terminal shows the beginning of a long error; a program that reads the table gets all of it.
func TestErrorsAreShortenedOnATerminalOnly(t *testing.T) {
	long := strings.Repeat("word ", 2*maxBrief/len("word ")) + "end"
	for name, p := range map[string]printer{"pipe": {}, "wide": {width: 80, wide: true}} {
		if got := p.brief(long); got != long {
			t.Errorf("%s: %q", name, got)
		}
	}
	terminal := printer{width: 80}
	if got := terminal.brief(long); len(got) > maxBrief+len(" …") || !strings.HasSuffix(got, "word …") {
		t.Errorf("terminal: %q", got)
	}
}

func TestOneLineHasNoControlCharacters(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := oneLine(rapid.String().Draw(r, "text") +
			rapid.SampledFrom([]string{"", "\x1b[2J", "\n", "\r", "\x00", "\u009b"}).Draw(r, "suffix"))
		for _, c := range s {
			if c < ' ' || c >= 0x7f && c < 0xa0 {
				r.Fatalf("%q contains %q", s, c)
			}
		}
	})
}

// A carriage return overwrites the name of the node in front of a line, and a bidirectional override shows it in
// another order.
func TestPrintableTextMovesNoCursor(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\nc\n": "a\tb\nc\n", "a\r\nb": "a\nb", "ready\rn2  failed": "ready\ufffdn2  failed",
		"a\vb\fc\u0085d":         "a\ufffdb\ufffdc\ufffdd",
		"a\u202eb\u2066c\u200fd": "a\ufffdb\ufffdc\ufffdd", "a\u2028b\u2029c": "a\ufffdb\ufffdc",
		"gr\u00fcn \u4e2d": "gr\u00fcn \u4e2d",
	} {
		if got := printable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestDocumentsMoveNoCursor(t *testing.T) {
	const hostile = "a\rb\u0085c\u009bd\u202ee\u2028f"
	for _, format := range []string{"json", "yaml"} {
		var out strings.Builder
		p := &printer{out: &out, format: format}
		for _, show := range []func(any) error{p.document, p.streamed} {
			out.Reset()
			if err := show(map[string]string{"name": hostile}); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); printable(got) != got {
				t.Errorf("%s: %q", format, got)
			}
			var back map[string]string
			if err := json.Unmarshal([]byte(out.String()), &back); format == "json" &&
				(err != nil || back["name"] != hostile) {
				t.Errorf("the document has %q, %v", back["name"], err)
			}
		}
	}
}

func TestColoursAreOnlyForTerminals(t *testing.T) {
	plain := &printer{}
	coloured := &printer{colour: true}
	if plain.bad("x") != "x" || coloured.bad("x") == "x" || coloured.good("") != "" {
		t.Errorf("plain %q, coloured %q, empty %q", plain.bad("x"), coloured.bad("x"), coloured.good(""))
	}
}
