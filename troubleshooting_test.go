package weft_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const troubleshooting = "docs/troubleshooting.md"

// Each code of pod/errors.go has an entry with a message, a command, a cause and a remedy; each alert has a link to its
// runbook.
func TestTroubleshootingCoversErrorCodesAndAlerts(t *testing.T) {
	page := read(t, troubleshooting)
	codes := found(regexp.MustCompile(`(?m)^\tCode\w+ +(?:uint +)?= (\d+)`), read(t, "pod/errors.go"))
	if len(codes) < 16 {
		t.Fatalf("pod/errors.go has the codes %v", slices.Sorted(maps.Keys(codes)))
	}
	entries := map[string]string{}
	for _, part := range strings.Split(page, "\n### Code ")[1:] {
		code, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		entries[code] = text
	}
	for code := range codes {
		for _, needed := range []string{"\n```text\n", "\n**Cause.** ", "\n**Remedy.** "} {
			if !strings.Contains(entries[code], needed) {
				t.Errorf("%s: the entry of code %s lacks %q", troubleshooting, code, needed)
			}
		}
		if !strings.Contains(entries[code], "\n```sh\n") && !strings.Contains(entries[code], "\n```console\n") {
			t.Errorf("%s: the entry of code %s has no command", troubleshooting, code)
		}
	}
	for code := range entries {
		if !codes[code] {
			t.Errorf("%s has an entry for code %s, which does not exist", troubleshooting, code)
		}
	}
	alerts := found(regexp.MustCompile(`(?m)^ *- alert: (\w+)$`), read(t, "k8s/chart/weft/files/alerts.yaml"))
	if len(alerts) < 20 {
		t.Fatalf("found %d alerts", len(alerts))
	}
	for alert := range alerts {
		if !strings.Contains(page, "["+alert+"](operations.md#"+strings.ToLower(alert)+")") {
			t.Errorf("%s does not link to the runbook of %s", troubleshooting, alert)
		}
	}
}

// constant is the least length of the longest part of a message without operands.
const constant = 14

// The example messages are messages of the programs.
func TestMessagesOfTroubleshootingExist(t *testing.T) {
	formats := formatsOf(t)
	checked := 0
	for _, block := range regexp.MustCompile("(?s)\n```text\n(.*?)```").FindAllStringSubmatch(read(t, troubleshooting),
		-1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSpace(line)
			checked++
			if !slices.ContainsFunc(formats, func(f *regexp.Regexp) bool { return f.MatchString(line) }) {
				t.Errorf("%s: no program prints %q", troubleshooting, line)
			}
		}
	}
	if checked < 20 {
		t.Errorf("checked %d messages", checked)
	}
	for _, line := range []string{
		"no program has this message", "there is no nitwork \"a\"; there are b", "is not a device namespace",
	} {
		if slices.ContainsFunc(formats, func(f *regexp.Regexp) bool { return f.MatchString(line) }) {
			t.Errorf("%q matches a message", line)
		}
	}
}

var verb = regexp.MustCompile(`%(?:\[\d+\])?[-+# 0]*\d*(?:\.\d+)?[a-zA-Z]`)

// formatsOf returns expressions that match the texts of the programs which contain enough constant words.
func formatsOf(t *testing.T) (formats []*regexp.Regexp) {
	t.Helper()
	for path, source := range productSources(t) {
		ast.Inspect(parse(t, path, source), func(n ast.Node) bool {
			literal, is := n.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				return true
			}
			parts := verb.Split(text, -1)
			longest := slices.MaxFunc(parts, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
			if len(longest) < constant || strings.Count(longest, " ") < 2 || strings.Contains(text, "\n") {
				return true
			}
			for i, part := range parts {
				parts[i] = regexp.QuoteMeta(part)
			}
			formats = append(formats, regexp.MustCompile(`(^|\W)`+strings.Join(parts, ".+")))
			return true
		})
	}
	return formats
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func parse(t *testing.T, path, source string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
