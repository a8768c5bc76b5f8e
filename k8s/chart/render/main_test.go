package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rows: AWS-42
func TestTheManifestsAreUpToDate(t *testing.T) {
	out := t.TempDir()
	if err := write("../weft/files/crds", out); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*.yaml", "crds/*.yaml"} {
		want, err := filepath.Glob(filepath.Join(out, pattern))
		if err != nil {
			t.Fatal(err)
		}
		got, err := filepath.Glob(filepath.Join("../../manifests", pattern))
		if err != nil || len(got) != len(want) || len(want) < 7 {
			t.Errorf("%s: %d files, want %d (%v)", pattern, len(got), len(want), err)
		}
		for _, file := range want {
			name, err := filepath.Rel(out, file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(read(t, file), read(t, filepath.Join("../../manifests", name))); diff != "" {
				t.Errorf("%s: run go run ./k8s/chart/render (-chart +file):\n%s", name, diff)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestMissingDefinitionsAreAnError(t *testing.T) {
	if err := write("nowhere", t.TempDir()); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%v", err)
	}
}
