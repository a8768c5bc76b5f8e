// Package workflows checks the workflows of the repository.
package workflows

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

const dir = "../../.github/workflows"

func workflows(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%d workflows (%v)", len(files), err)
	}
	texts := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	return texts
}

func TestWorkflowsAreValid(t *testing.T) {
	for file, text := range workflows(t) {
		var out bytes.Buffer
		linter, err := actionlint.NewLinter(&out, &actionlint.LinterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if problems, err := linter.Lint(file, []byte(text), nil); err != nil || len(problems) > 0 {
			t.Errorf("%s: %v\n%s", file, err, out.String())
		}
	}
}

var (
	action = regexp.MustCompile(`uses: (\S+)`)
	pinned = regexp.MustCompile(`^[a-z-]+/[a-z-]+@v\d+\.\d+\.\d+$`)
)

func TestActionsArePinned(t *testing.T) {
	count := 0
	for file, text := range workflows(t) {
		for _, m := range action.FindAllStringSubmatch(text, -1) {
			count++
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s has no exact version", file, m[1])
			}
		}
	}
	if count < 5 {
		t.Errorf("%d actions", count)
	}
}

func TestCIRunsTheChecksOfTheRepository(t *testing.T) {
	const script = "../../.ci/run"
	if info, err := os.Stat(script); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("%s is not a program (%v)", script, err)
	}
	if text := workflows(t)[filepath.Join(dir, "ci.yaml")]; !strings.Contains(text, " .ci/run\n") {
		t.Error("ci.yaml does not run .ci/run")
	}
}

// The targets and files of release.yaml exist.
func TestTheReleaseUsesTargetsOfTheMakefile(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	text := workflows(t)[filepath.Join(dir, "release.yaml")]
	targets := regexp.MustCompile(`make ([a-z]+)`).FindAllStringSubmatch(text, -1)
	for _, m := range targets {
		if !strings.Contains(string(makefile), "\n"+m[1]+": ") {
			t.Errorf("there is no make %s", m[1])
		}
	}
	if len(targets) == 0 || !strings.Contains(text, "cosign sign ") ||
		!strings.Contains(text, "attest-build-provenance") {
		t.Error("the release is not built, signed or attested")
	}
}
