package linux

import (
	"io/fs"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/wire"
)

func TestInvalidFilesAreFoundBeforeTheKernelSeesThem(t *testing.T) {
	base := wire.File{Type: wire.RegularFile, Mode: 0o644, Content: "text", On: wire.FileKey("/run/a")}
	for _, tt := range []struct {
		what, name string
		change     func(*wire.File)
		want       string
	}{
		{"a good file", "/run/a/f", func(*wire.File) {}, ""},
		{"a good directory", "/run/a", func(v *wire.File) { v.Type, v.Content, v.Mode = wire.Directory, "", 0o750|fs.ModeSetgid }, ""},
		{"a relative path", "run/a", func(*wire.File) {}, "not an absolute, clean path"},
		{"a path that climbs", "/run/a/../b", func(*wire.File) {}, "not an absolute, clean path"},
		{"a path with a NUL", "/run/a\x00b", func(*wire.File) {}, "not an absolute, clean path"},
		{"the root", "/", func(*wire.File) {}, "stands in the root directory"},
		{"a directory of the system", "/etc", func(*wire.File) {}, "stands in the root directory"},
		{"a long name", "/run/" + strings.Repeat("n", maxBase+1), func(*wire.File) {}, "too long"},
		{"another type", "/run/a", func(v *wire.File) { v.Type = "pipe"; v.Content = "" }, `type "pipe" is not known`},
		{"setuid", "/run/a/f", func(v *wire.File) { v.Mode |= fs.ModeSetuid }, "more than permissions"},
		{"setgid of a file", "/run/a/f", func(v *wire.File) { v.Mode |= fs.ModeSetgid }, "more than permissions"},
		{"no owner", "/run/a/f", func(v *wire.File) { v.UID = -1 }, "no number of an account"},
		{"an unknown group", "/run/a/f", func(v *wire.File) { v.GID = 1<<32 - 1 }, "no number of an account"},
		{"two contents", "/run/a/f", func(v *wire.File) { v.Secret = "s3cret" }, "a file holds one of them"},
		{"a socket with content", "/run/a/f", func(v *wire.File) { v.Type = wire.Socket }, "has no content"},
		{"a directory with a secret", "/run/a", func(v *wire.File) { v.Type, v.Content, v.Secret = wire.Directory, "", "s3cret" }, "has no content"},
		{"nothing that it stands on", "/run/a/f", func(v *wire.File) { v.On = "a" }, "what it stands on"},
	} {
		v, got := base, ""
		tt.change(&v)
		if err := validateFile(tt.name, v); err != nil {
			got = err.Error()
		}
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) || strings.Contains(got, "s3cret") {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}

func TestWhateverIsThereBecomesWhatIsWanted(t *testing.T) {
	needOwners(t)
	root := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		for _, kind := range []wire.FileType{wire.Directory, wire.RegularFile} {
			v := wire.File{Type: kind, Mode: fs.FileMode(rapid.Uint32Range(0, 0o777).Draw(rt, "mode")),
				UID: rapid.IntRange(0, 3).Draw(rt, "uid"), GID: rapid.IntRange(0, 3).Draw(rt, "gid")}
			if kind == wire.Directory && rapid.Bool().Draw(rt, "setgid") {
				v.Mode |= fs.ModeSetgid
			} else if kind == wire.RegularFile {
				v.Secret = secret.Text(rapid.String().Draw(rt, "text"))
			}
			name := root + "/" + string(kind) // of the check before
			if err := makeFiles(t, map[string]wire.File{name: v}); err != nil {
				rt.Fatal(err)
			}
			if got, found, err := readKnown(name, []wire.File{v}); !found || err != nil || got != v {
				rt.Fatalf("found %v, error %v, %+v, want %+v", found, err, got, v)
			}
		}
	})
}

func TestASecretFileIsStoredWholeAndShownHidden(t *testing.T) {
	d := fileDescriptor()
	for _, v := range []wire.File{
		{Type: wire.RegularFile, Mode: 0o400, UID: 1, GID: 2, Secret: "s3cret", On: wire.FileKey("/run/a")},
		{Type: wire.RegularFile, Mode: 0o644, Content: "text"},
		{Type: wire.Directory, Mode: 0o750 | fs.ModeSetgid},
	} {
		b, err := d.Encode(v)
		must(t, err)
		got, err := d.Decode(b)
		if err != nil || got != v {
			t.Errorf("%s reads as %+v, error %v", b, got, err)
		}
		if r := d.Redact(v); string(r.Secret) == "s3cret" || (r.Secret == "") != (v.Secret == "") || r.Content != v.Content {
			t.Errorf("redacted: %q", string(r.Secret))
		}
	}
}

func TestWhatWasReadBackIsAsSecretAsWhatIsKnown(t *testing.T) {
	read := wire.File{Type: wire.RegularFile, Secret: "text"}
	if got := asKnown(read, wire.File{Secret: "other", On: "linux.file//run/a"}); got.Secret != "text" || got.Content != "" || got.On == "" {
		t.Errorf("of a secret file: %+v", got)
	}
	if got := asKnown(read, wire.File{Content: "other"}); got.Secret != "" || got.Content != "text" {
		t.Errorf("of another: %+v", got)
	}
}
