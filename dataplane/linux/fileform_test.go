package linux

import (
	"io/fs"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/wire"
)

func TestAnyExistingFileBecomesTheDesiredOne(t *testing.T) {
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

func TestSecretOfAFileIsStoredAndRedacted(t *testing.T) {
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

func TestContentThatWasReadIsSecretIfTheKnownOneIs(t *testing.T) {
	read := wire.File{Type: wire.RegularFile, Secret: "text"}
	if got := mergeFile(read, wire.File{Secret: "other", On: "linux.file//run/a"}); got.Secret != "text" || got.Content != "" || got.On == "" {
		t.Errorf("of a secret file: %+v", got)
	}
	if got := mergeFile(read, wire.File{Content: "other"}); got.Secret != "" || got.Content != "text" {
		t.Errorf("of another: %+v", got)
	}
}
