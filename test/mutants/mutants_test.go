package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEachMutationOfTheListApplies(t *testing.T) {
	text, err := os.ReadFile("list.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 80 {
		t.Errorf("the list has %d mutations", len(all))
	}
	names := make(testNames)
	for _, m := range all {
		mutated, err := m.apply("../..")
		if err != nil {
			t.Error(err)
			continue
		}
		if original, err := os.ReadFile(filepath.Join("../..", m.file)); err != nil || bytes.Equal(original, mutated) {
			t.Errorf("line %d does not change %s (%v)", m.line, m.file, err)
		}
		names.check(t, m)
	}
}

// testNames are the names of the tests of packages, by directory.
type testNames map[string][]string

// check fails the test if an alternative of the pattern matches no test: the tests were renamed, and the mutation would
// survive.
func (n testNames) check(t *testing.T, m *mutation) {
	t.Helper()
	names, ok := n[m.test]
	if !ok {
		names = readTestNames(t, m.test)
		n[m.test] = names
	}
	for _, pattern := range strings.Split(m.run, "|") {
		test, _, _ := strings.Cut(pattern, "/")
		if !slices.ContainsFunc(names, regexp.MustCompile(test).MatchString) {
			t.Errorf("line %d: no test of %s matches %q", m.line, m.test, pattern)
		}
	}
}

func readTestNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names = append(names, match[1])
		}
	}
	return names
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

func TestInvalidListIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"promise: p\nfile: f\n- a\n+ b":                "line 1: promise, file, old text and test are needed",
		"\n\npromise: p\nfile: f\ntest: d":             "line 3: promise, file, old text and test are needed",
		"promise: p\nfile: f\n- a\ntest: d\nold: text": `line 5: unknown key "old:"`,
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected %q", text, err, want)
		}
	}
}

// source is a package with two functions, of which only double has a test.
var source = map[string]string{
	"go.mod": "module example.org/twice\n\ngo 1.26\n",
	"twice/twice.go": `package twice

func double(n int) int { return 2 * n }

func triple(n int) int { return 3 * n }
`,
	"twice/twice_test.go": `package twice

import "testing"

func TestDouble(t *testing.T) {
	if double(2) != 4 {
		t.Error("wrong")
	}
}

func TestThatFails(t *testing.T) { t.Error("wrong") }
`,
}

// module makes the package in a temporary directory, with a list of mutations.
func module(t *testing.T, list string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for path, text := range source {
		write(t, filepath.Join(dir, path), text)
	}
	write(t, filepath.Join(dir, "list.txt"), list)
	return dir
}

func record(old, new, test string) string {
	return "promise: numbers are right\nfile: twice/twice.go\n- " + old + "\n+ " + new + "\ntest: twice " + test + "\n"
}

func TestMutationsAreKilledSurviveOrAreErrors(t *testing.T) {
	for name, tt := range map[string]struct{ list, output, err string }{
		"a mutation that a test notices": {
			record("2 * n", "n", "Double"), "1 killed, 0 survived, 0 hang, 0 undecided, 0 errors", "",
		},
		"one that no test notices":  {record("3 * n", "n", "Double"), "SURVIVED", "1 mutations survived"},
		"one that does not apply":   {record("4 * n", "n", "Double"), "ERROR", "occurs 0 times"},
		"one that applies twice":    {record("(n int)", "(n uint)", "Double"), "ERROR", "occurs 2 times"},
		"one that does not compile": {record("2 * n", "m", "Double"), "ERROR", "does not compile"},
		"tests that fail without a mutation": {
			record("2 * n", "n", "ThatFails"), "1 killed, 0 survived, 0 hang, 0 undecided, 1 errors",
			"do not pass without a mutation",
		},
		"a pattern that matches no test": {record("2 * n", "n", "Triple"), "SURVIVED", "no test matches"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := module(t, tt.list)
			var output bytes.Buffer
			err := run(t.Context(), []string{"-root", dir, "-list", "list.txt"}, &output)
			if !strings.Contains(output.String(), tt.output) || (err == nil) != (tt.err == "") ||
				err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("said %q, error %v", output.String(), err)
			}
			if now, err := os.ReadFile(filepath.Join(dir, "twice/twice.go")); err != nil ||
				string(now) != source["twice/twice.go"] {
				t.Errorf("the sources are changed: %s (%v)", now, err)
			}
		})
	}
}

// A mutation is not killed by time: the tests may hang because of it, or because the machine is slow now.
func TestATimeoutIsNoKill(t *testing.T) {
	// The unmutated tests take no time at first. They hang from the second run on: the machine became slow.
	const slows = `package twice

import (
	"os"
	"testing"
)

func TestSlow(t *testing.T) {
	if _, err := os.Stat("ran"); err == nil {
		select {}
	}
	if err := os.WriteFile("ran", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { select {} }() // no deadlock for the runtime to find
}
`
	for name, tt := range map[string]struct{ list, output string }{
		"a mutation that makes a test hang": {record("return 2 * n", "for {\n+ }", "Double"), "HANGS"},
		"a machine that became slow": {
			record("func triple(n int)", "// a comment\n+ func triple(n int)", "Slow"), "UNDECIDED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := module(t, tt.list)
			write(t, filepath.Join(dir, "twice/slow_test.go"), slows)
			var output bytes.Buffer
			err := run(t.Context(), []string{"-root", dir, "-list", "list.txt", "-grace", "1s"}, &output)
			if err != nil || !strings.Contains(output.String(), tt.output) ||
				!strings.Contains(output.String(), "0 killed, 0 survived") {
				t.Errorf("said %q, error %v", output.String(), err)
			}
		})
	}
}

func TestNoMutationStartsAfterTheTimeLimit(t *testing.T) {
	var output bytes.Buffer
	err := run(t.Context(),
		[]string{"-root", module(t, record("3 * n", "n", "Double")), "-list", "list.txt", "-within", "-1s"}, &output)
	if err != nil || !strings.Contains(output.String(), "1 were not tried") {
		t.Errorf("said %q, error %v", output.String(), err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSeedDecidesWhichMutationsAreTried(t *testing.T) {
	var all []*mutation
	for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		all = append(all, &mutation{file: name})
	}
	names := func(percent int, seed string) (text string) {
		for _, m := range choose(all, "", percent, seed) {
			text += m.file
		}
		return text
	}
	if one, again, other := names(10, "a"), names(10, "a"), names(10, "b"); len(one) != 3 || one != again ||
		one == other {
		t.Errorf("%q, repeated %q, with another seed %q", one, again, other)
	}
	if got := names(100, "a"); got != "abcdefghijklmnopqrstuvwxyz" {
		t.Errorf("all are %q", got)
	}
	if got := choose(all, "q", 100, ""); len(got) != 1 || got[0].file != "q" {
		t.Errorf("%d contain q", len(got))
	}
}
