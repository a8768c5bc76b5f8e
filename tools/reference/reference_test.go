package main

import (
	"errors"
	"go/ast"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOutdatedPagesAreErrors(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "docs", "reference"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "first"
	pages := []page{{"page.md", func(string) (string, error) { return text, nil }}}
	if err := run(pages, root, true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want that there is no page", err)
	}
	if err := run(pages, root, false); err != nil {
		t.Fatal(err)
	}
	if err := run(pages, root, true); err != nil {
		t.Errorf("the page was just written: %v", err)
	}
	text = "second"
	if err := run(pages, root, true); err == nil || !strings.Contains(err.Error(), "page.md is outdated") {
		t.Errorf("error %v, want that the page is outdated", err)
	}
	have, err := os.ReadFile(filepath.Join(root, "docs", "reference", "page.md"))
	if err != nil || string(have) != "first" {
		t.Errorf("the check has written %q (%v)", have, err)
	}
}

func TestMetricsAndLabelsAreReadFromCalls(t *testing.T) {
	file, err := source{"metrics/x.go", `package metrics

var requests = counters("requests_total", "CNI "+"requests.", "method")
`}.parse()
	if err != nil {
		t.Fatal(err)
	}
	name, m := metricOf(file.Decls[0].(*ast.GenDecl).Specs[0].(*ast.ValueSpec).Values[0], nil)
	if name != "requests_total" || m.kind != "counter" || m.help != "CNI requests." || len(m.labels) != 1 {
		t.Errorf("metric %q %+v", name, m)
	}
}
