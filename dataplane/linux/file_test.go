package linux

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// newFileLab makes a scheduler and a directory for files, without a namespace.
func newFileLab(t *testing.T) (l *lab, root string) {
	t.Helper()
	l = &lab{T: t, s: kvscheduler.New(kvscheduler.Config{Sources: []string{"test"}})}
	if err := Register(l.s, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := kvscheduler.Register(l.s, kvscheduler.Descriptor[wire.Interface, struct{}]{
		Name: wire.KindInterface, Equal: func(want, have wire.Interface) bool { return want == have },
	}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = l.s.Run(t.Context()) })
	t.Cleanup(running.Wait)
	l.s.Ready("test")
	return l, t.TempDir()
}

func directory(name string, v wire.File) object {
	v.Type = wire.Directory
	return object{wire.FileKey(name), v}
}

func regular(name string, v wire.File) object {
	v.Type = wire.RegularFile
	v.On = wire.FileKey(filepath.Dir(name))
	return object{wire.FileKey(name), v}
}

// resyncs runs a resync and ignores errors of objects.
func (l *lab) resyncs() {
	l.Helper()
	if _, err := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{}); err != nil {
		l.Log(err)
	}
}

// state describes the file at a path: type, mode, owner and content.
func state(t *testing.T, name string) string {
	t.Helper()
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "nothing"
	}
	must(t, err)
	text := ""
	if info.Mode().IsRegular() {
		b, err := os.ReadFile(name)
		must(t, err)
		text = " " + string(b)
	}
	return info.Mode().String() + text
}

// needOwners skips the test if the process may not change owners.
func needOwners(t *testing.T) {
	t.Helper()
	netnstest.Require(t)
	name := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(name, nil, 0o600))
	if err := os.Chown(name, 1234, 5678); err != nil {
		t.Skip("needs chown(2): ", err)
	}
}

func TestFilesAreCreatedReadUpdatedAndDeleted(t *testing.T) {
	needOwners(t)
	l, root := newFileLab(t)
	dir := root + "/a"
	text := root + "/a/interfaces.json"
	hidden := root + "/a/secret"
	l.mustCommit(directory(dir, wire.File{Mode: 0o700}), regular(text, wire.File{Mode: 0o644, Content: "{}"}),
		regular(hidden, wire.File{Mode: 0o400, Secret: "s3cret"}))
	l.quiet()
	for name, want := range map[string]string{dir: "drwx------", text: "-rw-r--r-- {}", hidden: "-r-------- s3cret"} {
		if got := state(t, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	l.mustCommit(directory(dir, wire.File{Mode: 0o750 | fs.ModeSetgid, GID: 5678}),
		regular(text, wire.File{Mode: 0o640, GID: 5678, Content: "[]"}),
		regular(hidden, wire.File{Mode: 0o440, UID: 1234, GID: 5678, Secret: "other"}))
	l.quiet()
	for name, want := range map[string]string{dir: "dgrwxr-x---", text: "-rw-r----- []", hidden: "-r--r----- other"} {
		if got := state(t, name); got != want {
			t.Errorf("changed, %s is %q, want %q", name, got, want)
		}
	}
	var st unix.Stat_t
	must(t, unix.Stat(hidden, &st))
	if st.Uid != 1234 || st.Gid != 5678 {
		t.Errorf("secret belongs to %d:%d", st.Uid, st.Gid)
	}
	l.mustCommit(object{wire.FileKey(text), nil})
	must(t, os.MkdirAll(dir+"/more/and/more", 0o700))
	l.mustCommit(object{wire.FileKey(hidden), nil}, object{wire.FileKey(dir), nil})
	if got := state(t, dir); got != "nothing" {
		t.Errorf("after the removal: %s", got)
	}
}

func TestDriftOfFilesIsRepaired(t *testing.T) {
	needOwners(t)
	l, root := newFileLab(t)
	dir := root + "/a"
	file := root + "/a/secret"
	l.mustCommit(directory(dir, wire.File{Mode: 0o750 | fs.ModeSetgid, GID: 5678}),
		regular(file, wire.File{Mode: 0o440, GID: 5678, Secret: "s3cret"}))
	for name, spoil := range map[string]func() error{
		"another content":  func() error { return os.WriteFile(file, []byte("s3cret and more"), 0o440) },
		"a shorter one":    func() error { return os.WriteFile(file, []byte("s3"), 0o440) },
		"another mode":     func() error { return os.Chmod(file, 0o444) },
		"another owner":    func() error { return os.Chown(file, 7, 7) },
		"no file":          func() error { return os.Remove(file) },
		"mode of a parent": func() error { return os.Chmod(dir, 0o777) },
		"no directory":     func() error { return os.RemoveAll(dir) },
		"a link":           func() error { return errors.Join(os.Remove(file), os.Symlink("/etc/passwd", file)) },
	} {
		must(t, spoil())
		if len(l.different()) == 0 {
			t.Errorf("%s is not found to differ", name)
		}
		if _, err := l.s.Resync(t.Context(), kvscheduler.ResyncOpt{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		l.quiet()
	}
	if got := state(t, file); got != "-r--r----- s3cret" {
		t.Errorf("the file is %s", got)
	}
}

func TestMissingSocketIsRetried(t *testing.T) {
	needOwners(t)
	l, root := newFileLab(t)
	name := root + "/memif.sock"
	maker := object{wire.InterfaceKey("m1"), wire.Interface{Type: wire.TypeMemif}}
	on := object{wire.FileKey(name), wire.File{Type: wire.Socket, Mode: 0o660, GID: 5678, On: maker.key}}
	err := l.commit(maker, on)
	known := new(kvscheduler.OpError)
	if !errors.Is(err, errNoSocket) || !strings.Contains(err.Error(), name) ||
		errors.As(err, &known) && known.Permanent {
		t.Fatalf("without a socket: %v", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", name)
	must(t, err)
	l.mustCommit(maker, on)
	l.quiet()
	if got := state(t, name); got != "Srw-rw----" {
		t.Errorf("the socket is %s", got)
	}
	l.mustCommit(object{on.key, nil}, object{maker.key, nil})
	if got := state(t, name); got != "Srw-rw----" {
		t.Errorf("the socket of a listening process is %s", got)
	}
	must(t, listener.Close())
}

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
			name := root + "/" + string(kind) // with the file of the previous iteration
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
		if r := d.Redact(v); string(r.Secret) == "s3cret" || (r.Secret == "") != (v.Secret == "") ||
			r.Content != v.Content {
			t.Errorf("redacted: %q", string(r.Secret))
		}
	}
}

func TestContentThatWasReadIsSecretIfTheKnownOneIs(t *testing.T) {
	read := wire.File{Type: wire.RegularFile, Secret: "text"}
	if got := mergeFile(read, wire.File{Secret: "other", On: "linux.file//run/a"}); got.Secret != "text" ||
		got.Content != "" || got.On == "" {
		t.Errorf("a secret file: %+v", got)
	}
	if got := mergeFile(read, wire.File{Content: "other"}); got.Secret != "" || got.Content != "text" {
		t.Errorf("another file: %+v", got)
	}
}
