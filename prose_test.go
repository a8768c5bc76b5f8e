package weft_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/test/pages"
)

// A merge of two branches that changed the same paragraph can leave a sentence twice, or half of one.
func TestPagesHaveNoDamagedProse(t *testing.T) {
	texts := 0
	for _, p := range allPages(t) {
		if strings.HasPrefix(p.Path, "docs/reference/") { // generated
			continue
		}
		texts += len(p.Texts)
		for _, fault := range damage(p) {
			t.Error(fault)
		}
	}
	if texts < 2000 {
		t.Errorf("%d texts are checked", texts)
	}
}

func TestDamagedProseIsFound(t *testing.T) {
	const sentence = "The agent compares all objects with the dataplane"
	for text, want := range map[string]string{
		sentence + ". Then\n- " + sentence + ".":                     "repeated",
		"| a |\n|---|\n| " + sentence + ". Then: " + sentence + " |": "repeated",
		"| a |\n|---|\n| " + sentence + " |\n| " + sentence + " |":   "",
		sentence + " and `x`. " + sentence + " and `y`.":             "",
		"The agent retries. The agent retries.":                      "", // short
		"An ADD (or a DEL, waits.":                                   "unbalanced (",
		"An ADD or a DEL), waits.":                                   "unbalanced )",
		"An ADD [or a DEL) waits.":                                   "unbalanced )",
		"An ADD `(` (or [a DEL](x.md)) waits.":                       "",
		"The key `a.b of the file waits.":                            "backtick",
		"# One\n\n## Two\n\n## Three\n\nText.":                       "heading",
		"# One\n\nText.\n\n## Two":                                   "heading",
		"# One\n\n## Two\n\nText.\n":                                 "",
	} {
		faults := damage(pages.Parse("p.md", []byte(text)))
		if want == "" && len(faults) > 0 || want != "" && (len(faults) != 1 || !strings.Contains(faults[0], want)) {
			t.Errorf("%q: %q, want %q", text, faults, want)
		}
	}
}

// endOfSentence separates sentences. An abbreviation such as "e.g. " makes two short ones, which are not compared.
var endOfSentence = regexp.MustCompile(`[.:;!?] `)

// wordsOfSentence is the least number of words of the sentences that are compared.
const wordsOfSentence = 8

// damage lists repeated sentences, unbalanced brackets and backticks, and headings without content.
func damage(p pages.Page) (faults []string) {
	add := func(line int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s:%d: ", p.Path, line)+fmt.Sprintf(format, args...))
	}
	outsideTables := map[string]int{}
	for _, text := range p.Texts {
		seen := outsideTables
		if text.Cell { // rows may say the same
			seen = map[string]int{}
		}
		for _, sentence := range endOfSentence.Split(strings.TrimRight(text.Text, ". "), -1) {
			words := strings.Fields(sentence)
			if len(words) < wordsOfSentence {
				continue
			}
			sentence = strings.Join(words, " ")
			if line, repeated := seen[sentence]; repeated {
				add(text.Line, "a sentence of line %d is repeated: %s", line, sentence)
			}
			seen[sentence] = text.Line
		}
		if bracket := unbalanced(text.Prose); bracket != "" {
			add(text.Line, "unbalanced %s in: %s", bracket, text.Text)
		}
		if strings.Contains(text.Prose, "`") {
			add(text.Line, "a backtick without its partner in: %s", text.Text)
		}
	}
	for _, heading := range p.Empty {
		add(heading.Line, "the heading %q has no content", heading.Text)
	}
	return faults
}

// unbalanced returns the first bracket of a text that has no partner, or "".
func unbalanced(text string) string {
	partner := map[rune]rune{')': '(', ']': '['}
	var open []rune
	for _, r := range text {
		if slices.Contains([]rune{'(', '['}, r) {
			open = append(open, r)
		}
		opening, closes := partner[r]
		if !closes {
			continue
		}
		if len(open) == 0 || open[len(open)-1] != opening {
			return string(r)
		}
		open = open[:len(open)-1]
	}
	if len(open) > 0 {
		return string(open[0])
	}
	return ""
}
