package weft_test

import (
	"bufio"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wordsFile lists the files with discouraged phrases and their numbers.
const wordsFile = "testdata/words.txt"

var lowerWords = flag.Bool("lower-words", false, "rewrite "+wordsFile+", unless a number has grown")

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
}

// words is the number of discouraged phrases by file.
type words map[string]int

// The numbers may only decrease.
func TestDiscouragedPhrasesBecomeFewer(t *testing.T) {
	allowed := readWords(t)
	found, places := countWords(t)
	for _, file := range slices.Sorted(maps.Keys(found)) {
		if found[file] > allowed[file] {
			t.Errorf("%s has %d discouraged phrases, at most %d are allowed:\n\t%s", file, found[file], allowed[file], strings.Join(places[file], "\n\t"))
		}
	}
	if t.Failed() {
		return
	}
	if *lowerWords {
		writeWords(t, found)
		return
	}
	for _, file := range slices.Sorted(maps.Keys(allowed)) {
		if found[file] < allowed[file] {
			t.Errorf("%s has %d discouraged phrases, and %s allows %d: run go test . -lower-words", file, found[file], wordsFile, allowed[file])
		}
	}
}

func TestDiscouragedPhrasesAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"// Nobody is told, and whoever asks gets nothing.": 2, "addresses that are none": 1, "others' links": 1, "the agent retries": 0, "nobodyknows": 0,
	} {
		if got := len(phrasesOf(text)); got != want {
			t.Errorf("%q: %d phrases, want %d", text, got, want)
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

var phrasePatterns = func() (patterns []*regexp.Regexp) {
	for _, d := range discouraged {
		patterns = append(patterns, regexp.MustCompile(`(?i)\b(`+d.phrase+`)(\b|$| )`))
	}
	return patterns
}()

func countWords(t *testing.T) (found words, places map[string][]string) {
	t.Helper()
	found, places = make(words), make(map[string][]string)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (path != "." && strings.HasPrefix(entry.Name(), ".") || path == "bin" || entry.Name() == "fuzz") {
			return filepath.SkipDir
		}
		if entry.IsDir() || path == "words_test.go" || !slices.Contains([]string{".go", ".md", ".proto", ".txtar", ".yaml"}, filepath.Ext(path)) {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for n, line := range strings.Split(string(raw), "\n") {
			for _, proposal := range phrasesOf(line) {
				found[path]++
				places[path] = append(places[path], fmt.Sprintf("%s:%d: %s", path, n+1, proposal))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found, places
}

func readWords(t *testing.T) words {
	t.Helper()
	file, err := os.Open(wordsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	allowed := make(words)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var name string
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "%s %d", &name, &n); err != nil {
			t.Fatalf("%s: %q: %v", wordsFile, lines.Text(), err)
		}
		allowed[name] = n
	}
	return allowed
}

func writeWords(t *testing.T, found words) {
	t.Helper()
	var text strings.Builder
	for _, file := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&text, "%s %d\n", file, found[file])
	}
	if err := os.WriteFile(wordsFile, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
