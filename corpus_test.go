package weft_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// The corpus of earlier fuzzing is in the repository, so that go test runs it each time.
func TestEachFuzzTargetHasACorpus(t *testing.T) {
	targets := fuzzTargets(t)
	if len(targets) < 15 {
		t.Fatalf("found %d packages with fuzz targets", len(targets))
	}
	for dir, names := range targets {
		for name := range names {
			corpus := filepath.Join(dir, "testdata", "fuzz", name)
			if files, err := os.ReadDir(corpus); err != nil || len(files) == 0 {
				t.Errorf(
					"%s has no corpus: run make fuzz PACKAGES=./%s, and copy files that increase its coverage from $(go env GOCACHE)/fuzz to %s",
					name, dir, corpus)
			}
		}
	}
	all, err := filepath.Glob("*/testdata/fuzz/*")
	deeper, errDeeper := filepath.Glob("*/*/testdata/fuzz/*")
	if err != nil || errDeeper != nil {
		t.Fatal(err, errDeeper)
	}
	for _, corpus := range append(all, deeper...) {
		if !targets[filepath.Dir(filepath.Dir(filepath.Dir(corpus)))][filepath.Base(corpus)] {
			t.Errorf("%s is a corpus without a fuzz target", corpus)
		}
	}
}

// The table is in docs/security.md.
func TestTableOfParsersNamesEachFuzzTarget(t *testing.T) {
	page, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Parsers of foreign bytes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[string]bool{}
	for _, row := range strings.Split(section, "\n| ") {
		cells := strings.Split(row, " | ")
		if len(cells) != 3 {
			continue
		}
		dir := strings.Trim(cells[1], "`")
		for _, name := range regexp.MustCompile(`Fuzz\w+`).FindAllString(cells[2], -1) {
			named[dir+" "+name] = true
		}
	}
	if len(named) == 0 {
		t.Fatal("docs/security.md has no table of parsers")
	}
	for dir, names := range fuzzTargets(t) {
		for name := range names {
			if !named[dir+" "+name] {
				t.Errorf("docs/security.md does not name %s of %s", name, dir)
			}
			delete(named, dir+" "+name)
		}
	}
	for target := range named {
		t.Errorf("docs/security.md names %s, which does not exist", target)
	}
}

// fuzzTargets returns the fuzz targets of this module, by directory.
func fuzzTargets(t *testing.T) map[string]map[string]bool {
	t.Helper()
	targets := map[string]map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "testdata" || path != "." && strings.HasPrefix(d.Name(), ".")) {
			return skipUnless(err)
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		for _, found := range fuzzTarget.FindAllSubmatch(source, -1) {
			dir := filepath.Dir(path)
			if targets[dir] == nil {
				targets[dir] = map[string]bool{}
			}
			targets[dir][string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return targets
}

// skipUnless skips a directory, or returns the error of reading it.
func skipUnless(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}
