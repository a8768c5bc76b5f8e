package version

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checkout is a git repository of a test.
type checkout struct {
	t   *testing.T
	dir string
}

func newCheckout(t *testing.T) checkout {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	c := checkout{t, t.TempDir()}
	c.git("init", "-q")
	c.commit("one")
	return c
}

func (c checkout) git(args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "git",
		append(
			[]string{
				"-C", c.dir, "-c", "user.name=weft", "-c", "user.email=weft@localhost", "-c", "tag.gpgSign=false", "-c",
				"commit.gpgSign=false",
			},
			args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (c checkout) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c checkout) commit(text string) {
	c.t.Helper()
	c.write("file", text)
	c.git("add", "-A")
	c.git("commit", "-q", "-m", text)
}

// objects lists the objects of the repository.
func (c checkout) objects() string {
	return c.git("cat-file", "--batch-all-objects", "--batch-check")
}

// version runs tools/version.sh, and checks that the output is a semantic version and a tag of an image.
func (c checkout) version() string { return versionOf(c.t, c.dir) }

var valid = regexp.MustCompile(
	`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-((0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?$`)

func versionOf(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../tools/version.sh", dir).CombinedOutput()
	version := strings.TrimSpace(string(out))
	if err != nil || !valid.MatchString(version) || len(version) > 63 {
		t.Fatalf("%q is not a version of a release, image and label: %v", version, err)
	}
	return version
}

func TestVersionsFollowTagsAndNameTheCommit(t *testing.T) {
	c := newCheckout(t)
	at := func(format string) string {
		return strings.ReplaceAll(format, "COMMIT", c.git("rev-parse", "--short=12", "HEAD"))
	}
	expect := func(when, format string) {
		t.Helper()
		if got, want := c.version(), at(format); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	expect("without a tag", unreleased+".1.gCOMMIT")
	c.commit("two")
	expect("without a tag, later", unreleased+".2.gCOMMIT")
	c.git("tag", "v0.1.0")
	c.git("tag", "other-v7.0.0")
	expect("at a tag", "v0.1.0")
	c.commit("three")
	expect("after a tag", "v0.1.1-dev.1.gCOMMIT")
	c.git("tag", "-a", "-m", "candidate", "v0.2.0-rc.1")
	expect("at a candidate", "v0.2.0-rc.1")
	c.commit("four")
	expect("after a candidate", "v0.2.0-rc.1.dev.1.gCOMMIT")
}

func TestChangedFilesHaveVersionsOfTheirOwn(t *testing.T) {
	c := newCheckout(t)
	c.git("tag", "v1.0.0")
	seen := map[string]string{c.version(): "unchanged"}
	before := c.objects()
	for _, change := range []struct{ file, text string }{
		{"file", "changed"}, {"file", "changed again"}, {"new", "untracked"},
	} {
		c.write(change.file, change.text)
		got := c.version()
		if other, is := seen[got]; is || !strings.Contains(got, ".dirty.") {
			t.Errorf("%s with %q: %s is also the version of: %s", change.file, change.text, got, other)
		}
		if again := c.version(); again != got {
			t.Errorf("the same files have versions %s and %s", got, again)
		}
		seen[got] = change.text
	}
	if after := c.objects(); after != before || c.git("diff", "--cached", "--name-only") != "" {
		t.Errorf("the script changed the repository: objects %q, before %q", after, before)
	}
	c.git("add", "-A")
	if _, is := seen[c.version()]; !is {
		t.Error("staging the same files changes the version")
	}
	c.git("reset", "-q", "--hard")
	if got := c.version(); got != "v1.0.0" {
		t.Errorf("%s, want the tag again", got)
	}
}

// An archive of the sources has no commit, also in the checkout of another repository.
func TestAnArchiveIsVersionedByItsFiles(t *testing.T) {
	c := newCheckout(t)
	archive := filepath.Join(c.dir, "archive")
	if err := os.Mkdir(archive, 0o700); err != nil {
		t.Fatal(err)
	}
	c.write("archive/a", "one")
	first := versionOf(t, archive)
	if !strings.HasPrefix(first, unreleased+".src.") {
		t.Errorf("an archive has version %s", first)
	}
	c.write("archive/a", "two")
	if second := versionOf(t, archive); second == first {
		t.Errorf("two archives with different files have version %s", second)
	}
}
