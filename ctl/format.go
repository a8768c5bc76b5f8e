package ctl

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// age formats the time since t with at most two units: 5s, 3m20s, 5h12m, 3d4h.
func (p *printer) age(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return span(p.now().Sub(t.AsTime()))
}

// until formats the time until t: "" if t is nil, "now" if t has passed.
func (p *printer) until(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	left := t.AsTime().Sub(p.now())
	if left <= 0 {
		return "now"
	}
	return span(left)
}

func span(d time.Duration) string {
	seconds := int64(max(d, 0) / time.Second)
	minutes := seconds / 60
	hours := seconds / 3600
	days := seconds / 86400
	switch {
	case minutes == 0:
		return fmt.Sprintf("%ds", seconds)
	case minutes < 10:
		return fmt.Sprintf("%dm%ds", minutes, seconds%60)
	case hours == 0:
		return fmt.Sprintf("%dm", minutes)
	case days == 0:
		return fmt.Sprintf("%dh%dm", hours, minutes%60)
	}
	return fmt.Sprintf("%dd%dh", days, hours%24)
}

// took formats a duration with about three digits: 340ns, 12.3µs, 1.25ms, 3.4s.
func took(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	v := d.AsDuration()
	for unit := time.Duration(1); unit <= time.Second; unit *= 10 {
		if v < 1000*unit {
			return v.Round(unit).String()
		}
	}
	return v.Round(time.Second).String()
}

// clock formats t in the local time zone, with the date if t is more than 20 hours old.
func (p *printer) clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	now := p.now()
	at := t.AsTime().In(now.Location())
	if now.Sub(at) > 20*time.Hour {
		return at.Format("2006-01-02 15:04:05")
	}
	return at.Format("15:04:05.000")
}

// oneLine joins the lines of untrusted text and replaces its control characters.
func oneLine(s string) string { return strings.Join(strings.Fields(printable(s)), " ") }

// errorLine is oneLine for the text of an error of Go: each line of it is an error.
func errorLine(s string) string {
	var joined strings.Builder
	for line := range strings.Lines(printable(s)) {
		words := strings.Join(strings.Fields(line), " ")
		switch before := joined.String(); {
		case words == "" || before == "":
		case strings.ContainsAny(before[len(before)-1:], ":;,"):
			joined.WriteString(" ")
		default:
			joined.WriteString("; ")
		}
		joined.WriteString(words)
	}
	return joined.String()
}

// brief cuts a text for a table on a terminal, between two words. Another command has the whole.
func (p *printer) brief(text string) string {
	if p.wide || p.width == 0 || len(text) <= maxBrief {
		return text
	}
	end := strings.LastIndexByte(text[:maxBrief], ' ')
	if end < 0 {
		return text
	}
	return text[:end] + " …"
}

// maxBrief is the length of a text that fills a few lines of a column.
const maxBrief = 100

// printable replaces characters that a terminal interprets with �, except line breaks and tabs.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && isInterpreted(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// isInterpreted reports whether a terminal moves the cursor, changes its state or reorders text for a character: a
// node, or the author of a name, could overwrite or disguise the text of other objects.
func isInterpreted(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// orDash replaces an empty cell by a dash.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// counted returns n with the singular or plural of noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
