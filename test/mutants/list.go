package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutation is a realistic bug: a change of one place in a source that breaks a promise.
type mutation struct {
	promise  string // what a user would lose
	file     string // path in the repository
	old, new string // snippets of the file; old occurs exactly once
	test     string // directory of the package with the tests of the promise
	run      string // pattern of these tests; "" = all
	line     int    // in the list, for errors
}

// String names the file and the promise.
func (m *mutation) String() string { return m.file + ": " + m.promise }

// parse reads a list: records of lines that begin with "promise: ", "file: ", "- " (old text), "+ " (new text; without
// it the old text is deleted) and "test: " (directory of the package, then an optional pattern), with an empty line
// between them. Several lines of text are one snippet. Lines that begin with "#" are comments.
func parse(list string) ([]*mutation, error) {
	var all []*mutation
	var errs []error
	var now *mutation
	for i, line := range strings.Split(list, "\n") {
		key, value, _ := strings.Cut(line, " ")
		if now == nil && line != "" && key[0] != '#' {
			now = &mutation{line: i + 1}
			all = append(all, now)
		}
		switch {
		case line == "":
			now = nil
		case key[0] == '#':
		case key == "promise:":
			now.promise = value
		case key == "file:":
			now.file = value
		case key == "test:":
			now.test, now.run, _ = strings.Cut(value, " ")
		case key == "-":
			now.old = join(now.old, value)
		case key == "+":
			now.new = join(now.new, value)
		default:
			errs = append(errs, fmt.Errorf("line %d: unknown key %q", i+1, key))
		}
	}
	for _, m := range all {
		if m.promise == "" || m.file == "" || m.old == "" || m.test == "" {
			errs = append(errs, fmt.Errorf("line %d: promise, file, old text and test are needed", m.line))
		}
	}
	return all, errors.Join(errs...)
}

func join(snippet, line string) string {
	if snippet == "" {
		return line
	}
	return snippet + "\n" + line
}

// apply returns the content of the mutated file of the tree below root.
func (m *mutation) apply(root string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, fmt.Errorf("line %d of the list: %w", m.line, err)
	}
	if n := strings.Count(string(content), m.old); n != 1 {
		return nil, fmt.Errorf("line %d of the list: the old text occurs %d times in %s, and must occur once: %s",
			m.line, n, m.file, m.old)
	}
	return []byte(strings.Replace(string(content), m.old, m.new, 1)), nil
}
