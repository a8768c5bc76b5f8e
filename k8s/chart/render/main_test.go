package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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

// An overlay replaces the image of the base.
func TestKustomizeBuildsTheManifests(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("needs kubectl")
	}
	base, err := filepath.Abs("../../manifests")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(overlay, base)
	if err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + relative +
		"]\nimages: [{name: localhost/weft, newName: registry.example/weft, newTag: v1.2.3}]\n"
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", overlay).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for what, want := range map[string]int{
		"\nkind: CustomResourceDefinition\n": 7, "\nkind: DaemonSet\n": 2, "\nkind: Deployment\n": 1,
		"\nkind: Namespace\n":                   1,
		"image: registry.example/weft:v1.2.3\n": 4, "image: localhost": 0,
	} {
		if got := strings.Count("\n"+string(out), what); got != want {
			t.Errorf("%q occurs %d times, want %d", what, got, want)
		}
	}
}

func TestMissingDefinitionsAreAnError(t *testing.T) {
	if err := write("nowhere", t.TempDir()); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%v", err)
	}
}
