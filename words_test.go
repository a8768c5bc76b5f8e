package weft_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// discouraged are phrases to avoid, each with a proposal (CONVENTIONS.md).
var discouraged = []struct{ phrase, instead string }{
	{`(some|no|any)body(['’]s)?`, "name the component or the role"},
	{`whoever`, "name the component or the role"},
	{`(what|that|which) (is|are) none`, "name what is invalid or missing"},
	{`of which there`, "use a sentence of its own"},
	{`others['’]`, "third-party, foreign, or name the owner"},
	{`(values|pods|programs|links|files|objects) of others`, "external, third-party or foreign"},
	{`(taken|take|takes) for (standing|gone|dead|lost)`, "counts as"},
	{`keeps? account of`, "records"},
	{`the way of (an?|the)`, "the flow of"},
	{`is (sound|at fault)`, "is valid, has an error"},
	{`make it heard|is told the world|tells the world`, "publishes"},
	{`anew`, "again, or name the action: restarted, recreated, rebuilt"},
	{`(is|are) no more`, "is deleted, has ended"},
	{`(gives?|gave|given) (it |them )?back`, "returns, releases"},
	{`(wish|wishes|unwired?)`, "interface spec; disconnect"},
	{`in the place of`, "instead of"},
}

func TestNoDiscouragedPhrases(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() &&
			(path != "." && strings.HasPrefix(entry.Name(), ".") || path == "bin" || entry.Name() == "fuzz") {
			return filepath.SkipDir
		}
		if entry.IsDir() || path == "words_test.go" ||
			!slices.Contains([]string{".go", ".md", ".proto", ".txtar", ".yaml"}, filepath.Ext(path)) {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !anyPhrase.Match(raw) {
			return nil
		}
		for n, line := range strings.Split(string(raw), "\n") {
			for _, proposal := range phrasesOf(line) {
				t.Errorf("%s:%d: %s", path, n+1, proposal)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDiscouragedPhrasesAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"// nobody; whoever": 2, "addresses that are none": 1, "others' links": 1,
		"the agent retries": 0, "nobodyknows": 0,
	} {
		if got := len(phrasesOf(text)); got != want {
			t.Errorf("%q: %d phrases, want %d", text, got, want)
		}
		if got := anyPhrase.MatchString("a line\n" + text + "\na line"); got != (want > 0) {
			t.Errorf("%q: %t by the pattern of all phrases", text, got)
		}
	}
}

// phrasesOf returns a proposal for each discouraged phrase in a line.
func phrasesOf(line string) (proposals []string) {
	for i, pattern := range phrasePatterns {
		for _, phrase := range pattern.FindAllString(line, -1) {
			proposals = append(proposals, fmt.Sprintf("%q: %s", phrase, discouraged[i].instead))
		}
	}
	return proposals
}

// anyPhrase matches each discouraged phrase: most files have none, and one pattern is faster than many.
var anyPhrase = func() *regexp.Regexp {
	var all []string
	for _, d := range discouraged {
		all = append(all, d.phrase)
	}
	return regexp.MustCompile(`(?im)\b(` + strings.Join(all, "|") + `)(\b|$| )`)
}()

var phrasePatterns = func() (patterns []*regexp.Regexp) {
	for _, d := range discouraged {
		patterns = append(patterns, regexp.MustCompile(`(?i)\b(`+d.phrase+`)(\b|$| )`))
	}
	return patterns
}()
