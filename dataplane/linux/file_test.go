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

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// newFileLab is a scheduler with a directory for files, which needs no namespace.
func newFileLab(t *testing.T) (l *lab, root string) {
	t.Helper()
	l = &lab{T: t, s: kvscheduler.New(kvscheduler.Config{Sources: []string{"test"}})}
	if _, err := Register(l.s, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := kvscheduler.Register(l.s, kvscheduler.Descriptor[wire.Interface, struct{}]{
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
	v.Type, v.On = wire.RegularFile, wire.FileKey(filepath.Dir(name))
	return object{wire.FileKey(name), v}
}

// resyncs repairs what it can.
func (l *lab) resyncs() {
	l.Helper()
	if _, err := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{}); err != nil {
		l.Log(err)
	}
}

// state describes what stands at a path: type, mode, owner and content.
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

// needOwners skips a test that gives files away where the process may not.
func needOwners(t *testing.T) {
	t.Helper()
	netnstest.Require(t)
	name := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(name, nil, 0o600))
	if err := os.Chown(name, 1234, 5678); err != nil {
		t.Skip("needs to give files to others: ", err)
	}
}

func TestFilesAreMadeReadBackChangedAndRemoved(t *testing.T) {
	needOwners(t)
	l, root := newFileLab(t)
	dir, text, hidden := root+"/a", root+"/a/interfaces.json", root+"/a/secret"
	l.mustCommit(directory(dir, wire.File{Mode: 0o700}), regular(text, wire.File{Mode: 0o644, Content: "{}"}),
		regular(hidden, wire.File{Mode: 0o400, Secret: "s3cret"}))
	l.quiet()
	for name, want := range map[string]string{dir: "drwx------", text: "-rw-r--r-- {}", hidden: "-r-------- s3cret"} {
		if got := state(t, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	l.mustCommit(directory(dir, wire.File{Mode: 0o750 | fs.ModeSetgid, GID: 5678}), regular(text, wire.File{Mode: 0o640, GID: 5678, Content: "[]"}),
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
		t.Errorf("after removal there is %s", got)
	}
}

func TestFilesThatAreNotAsTheyShouldBeAreRepaired(t *testing.T) {
	needOwners(t)
	l, root := newFileLab(t)
	dir, file := root+"/a", root+"/a/secret"
	l.mustCommit(directory(dir, wire.File{Mode: 0o750 | fs.ModeSetgid, GID: 5678}), regular(file, wire.File{Mode: 0o440, GID: 5678, Secret: "s3cret"}))
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
			t.Errorf("%s is not noticed", name)
		}
		if _, err := l.s.Resync(t.Context(), kvscheduler.ResyncOpt{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		l.quiet()
	}
	if got := state(t, file); got != "-r--r----- s3cret" {
		t.Errorf("in the end it is %s", got)
	}
}

func TestSocketThatIsNotThereIsAskedForAgain(t *testing.T) {
	needOwners(t)
	l, root := newFileLab(t)
	name := root + "/memif.sock"
	maker := object{wire.InterfaceKey("m1"), wire.Interface{Type: wire.TypeMemif}}
	on := object{wire.FileKey(name), wire.File{Type: wire.Socket, Mode: 0o660, GID: 5678, On: maker.key}}
	err := l.commit(maker, on)
	known := new(kvscheduler.OpError)
	if !errors.Is(err, errNoSocket) || !strings.Contains(err.Error(), name) || errors.As(err, &known) && known.Permanent {
		t.Fatalf("without a socket: %v", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", name)
	must(t, err)
	l.mustCommit(maker, on)
	l.quiet()
	if got := state(t, name); got != "Srw-rw----" {
		t.Errorf("it is %s", got)
	}
	l.mustCommit(object{on.key, nil}, object{maker.key, nil})
	if got := state(t, name); got != "Srw-rw----" {
		t.Errorf("the socket of somebody who listens is %s", got)
	}
	must(t, listener.Close())
}
