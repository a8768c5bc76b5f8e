package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// outside is a directory that must not change, and its initial state.
type outside struct{ dir, was string }

func newOutside(t *testing.T) outside {
	t.Helper()
	o := outside{dir: filepath.Join(t.TempDir(), "outside")}
	must(t, os.MkdirAll(o.dir+"/d/deeper", 0o755))
	for _, name := range []string{"secret", "d/secret", "d/deeper/secret", "interfaces.json"} {
		must(t, os.WriteFile(filepath.Join(o.dir, name), []byte("foreign"), 0o644))
	}
	o.was = o.look(t)
	return o
}

// look describes the files in the directory: names, modes, owners, contents.
func (o outside) look(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	must(t, filepath.WalkDir(o.dir, func(name string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(name, &st)
		}
		fmt.Fprintf(&all, "%s %s %d:%d %d\n", name, state(t, name), st.Uid, st.Gid, st.Ino)
		return err
	}))
	return all.String()
}

func (o outside) mustBeUntouched(t *testing.T) {
	t.Helper()
	if now := o.look(t); now != o.was {
		t.Fatalf("outside was\n%s\nand is\n%s", o.was, now)
	}
}

// makeFiles calls the backend like the scheduler and returns the errors.
func makeFiles(t *testing.T, values map[string]wire.File) error {
	t.Helper()
	var errs []error
	for name, v := range values {
		batch := []fileItem{{Name: name, Want: v}}
		fileDescriptor().Backend.Create(t.Context(), batch)
		errs = append(errs, batch[0].Err)
	}
	return errors.Join(errs...)
}

func deleteFile(ctx context.Context, name string, v wire.File) error {
	batch := []fileItem{{Name: name, Have: v}}
	fileDescriptor().Backend.Delete(ctx, batch)
	return batch[0].Err
}

// podUser is the user of a hostile pod.
const podUser = 1234

// newPodDirectory makes a directory that podUser can write in, as its owner or because all users can.
func newPodDirectory(t *testing.T, owned bool) string {
	t.Helper()
	needOwners(t)
	parent, err := os.MkdirTemp("/run", "weft-test-") // only root can change its path
	if err != nil {
		t.Skip("needs to write in /run: ", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	dir := filepath.Join(parent, "pod")
	must(t, errors.Join(os.Chmod(parent, 0o755), os.Mkdir(dir, 0o755), os.Chmod(dir, 0o777)))
	if owned {
		must(t, errors.Join(os.Chown(dir, podUser, podUser), os.Chmod(dir, 0o755)))
	}
	return dir
}

// asPod repeats f as podUser until it is stopped.
func asPod(f ...func()) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	for _, f := range f {
		running.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if err := unix.Setfsuid(podUser); err != nil {
				return
			}
			for {
				select {
				case <-done:
					return
				default:
					f()
				}
			}
		})
	}
	return func() { close(done); running.Wait() }
}

// swaps returns functions that replace files in dir by links to the outside, and back.
func swaps(dir string, names []string, o outside) (list []func()) {
	for _, name := range names {
		at := filepath.Join(dir, name)
		link := filepath.Join(dir, "link-"+filepath.Base(name))
		to := filepath.Join(o.dir, strings.TrimPrefix(name, "sub"))
		list = append(list, func() {
			_ = os.Symlink(to, link)
			if unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, at, unix.RENAME_EXCHANGE) != nil {
				_ = os.Rename(link, at)
			}
		})
	}
	return list
}

func TestOwnerOfTheDirectoryCannotRedirectTheAgent(t *testing.T) { leadOut(t, true) }

func TestWriterOfTheDirectoryCannotRedirectTheAgent(t *testing.T) { leadOut(t, false) }

func leadOut(t *testing.T, owned bool) {
	t.Helper()
	pod := newPodDirectory(t, owned)
	o := newOutside(t)
	ours := wire.File{Type: wire.RegularFile, Mode: 0o400, UID: 7, GID: 7, Secret: "ours"}
	values := map[string]wire.File{
		pod + "/secret":           ours,
		pod + "/interfaces.json":  {Type: wire.RegularFile, Mode: 0o600, UID: 7, GID: 7, Content: "ours"},
		pod + "/sub":              {Type: wire.Directory, Mode: 0o755, UID: podUser, GID: 7},
		pod + "/sub/d":            {Type: wire.Directory, Mode: 0o755, UID: podUser, GID: 7},
		pod + "/sub/secret":       ours,
		pod + "/sub/d/secret":     ours,
		pod + "/sub/d/memif.sock": {Type: wire.Socket, Mode: 0o600, UID: 7, GID: 7},
	}
	stop := asPod(swaps(pod, []string{"secret", "interfaces.json", "sub", "sub/d", "sub/secret", tempPrefix + "secret"},
		o)...)
	defer stop()
	made := 0
	for range 20 {
		_ = makeFiles(t, values) // may fail because of the swaps
		for name, v := range values {
			if _, found, err := readKnown(name, []wire.File{v}); found && err == nil {
				made++
			}
			_ = deleteFile(t.Context(), name, v)
		}
		o.mustBeUntouched(t)
	}
	if made < 5 {
		t.Errorf("%d times something was made: it proves little", made)
	}
}

// planted makes files of all types at a path. Links lead to the outside.
func planted(o outside) map[string]func(name string) error {
	return map[string]func(name string) error{
		"link to a file":      func(name string) error { return os.Symlink(o.dir+"/secret", name) },
		"link to a directory": func(name string) error { return os.Symlink(o.dir+"/d", name) },
		"link to nothing":     func(name string) error { return os.Symlink(o.dir+"/missing", name) },
		"regular file":        func(name string) error { return os.WriteFile(name, []byte("foreign"), 0o666) },
		"named pipe":          func(name string) error { return unix.Mkfifo(name, 0o666) },
		"directory":           func(name string) error { return os.MkdirAll(name+"/foreign", 0o755) },
		"socket":              func(name string) error { return unix.Mknod(name, unix.S_IFSOCK|0o666, 0) },
	}
}

// A foreign file with the name of a desired one belongs to another user. The agent updates a file of the same type,
// replaces regular files and links by regular files, and refuses everything else. It never follows a link or waits for
// a pipe.
func TestForeignFileInThePlaceOfADesiredOne(t *testing.T) {
	accepted := map[wire.FileType][]string{
		wire.Directory:   {"directory"},
		wire.RegularFile: {"regular file", "link to a file", "link to a directory", "link to nothing"},
		wire.Socket:      {"socket"},
	}
	for kind, fine := range accepted {
		o := newOutside(t)
		for what, plant := range planted(o) {
			t.Run(string(kind)+" over "+what, func(t *testing.T) {
				name := filepath.Join(newPodDirectory(t, true), "file")
				must(t, errors.Join(plant(name), unix.Lchown(name, podUser, podUser)))
				v := wire.File{Type: kind, Mode: 0o700}
				before := state(t, name)
				err := makeFiles(t, map[string]wire.File{name: v})
				o.mustBeUntouched(t)
				if !slices.Contains(fine, what) {
					if err == nil || !strings.Contains(err.Error(), name) || state(t, name) != before {
						t.Errorf("%v; the file was %s and is %s", err, before, state(t, name))
					}
				} else if got, found, wrong := readKnown(name, []wire.File{v}); err != nil || wrong != nil || !found ||
					got != v {
					t.Errorf("%v; found %t, %+v, %v", err, found, got, wrong)
				}
				if err := deleteFile(t.Context(), name, v); err != nil {
					t.Error(err)
				}
				o.mustBeUntouched(t)
			})
		}
	}
}

// A pod may make the temporary file of the agent before the agent does.
func TestForeignFileInThePlaceOfATemporaryOne(t *testing.T) {
	o := newOutside(t)
	for what, plant := range planted(o) {
		t.Run(what, func(t *testing.T) {
			dir := newPodDirectory(t, true)
			name := filepath.Join(dir, "secret")
			must(t, plant(filepath.Join(dir, tempPrefix+"secret")))
			err := makeFiles(t, map[string]wire.File{name: {Type: wire.RegularFile, Mode: 0o400, Secret: "s3cret"}})
			o.mustBeUntouched(t)
			if what == "directory" {
				if err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("%v", err)
				}
			} else if got := state(t, name); err != nil || got != "-r-------- s3cret" {
				t.Errorf("%v; the file is %s", err, got)
			}
		})
	}
}

func TestRemovalFollowsNoSwappedLink(t *testing.T) {
	pod := newPodDirectory(t, true)
	o := newOutside(t)
	dir := pod + "/sub"
	hostile := append(swaps(pod, []string{"sub", "sub/d", "sub/d/deeper"}, o), func() {
		_ = os.MkdirAll(dir+"/d/deeper", 0o777)
		_ = os.WriteFile(dir+"/d/deeper/secret", nil, 0o600)
	})
	stop := asPod(hostile...)
	defer stop()
	removed := 0
	for range 1000 {
		err := deleteFile(t.Context(), dir, wire.File{Type: wire.Directory})
		if err == nil {
			removed++
		}
		o.mustBeUntouched(t)
	}
	if removed == 0 {
		t.Error("it was never removed: it proves little")
	}
}

func TestRemovalDeletesFilesOfAnyTypeAndName(t *testing.T) {
	root := t.TempDir()
	o := newOutside(t)
	rapid.Check(t, func(rt *rapid.T) {
		dir := filepath.Join(root, "tree")
		must(t, os.Mkdir(dir, 0o700))
		dirs := []string{dir}
		for n := range rapid.IntRange(0, 40).Draw(rt, "entries") {
			in := rapid.SampledFrom(dirs).Draw(rt, "in")
			name := filepath.Join(in,
				rapid.SampledFrom([]string{"a", ".weft-1", ".weft-2", "x y", "\n"}).Draw(rt, "name")+fmt.Sprint(n))
			switch rapid.SampledFrom([]string{"dir", "file", "link", "pipe", "closed"}).Draw(rt, "type") {
			case "dir":
				must(t, os.Mkdir(name, 0o700))
				dirs = append(dirs, name)
			case "file":
				must(t, os.WriteFile(name, nil, 0))
			case "link":
				must(t, os.Symlink(rapid.SampledFrom([]string{o.dir, "..", "/", name}).Draw(rt, "to"), name))
			case "pipe":
				must(t, unix.Mkfifo(name, 0o600))
			case "closed":
				must(t, os.Mkdir(name, 0))
			}
		}
		if err := deleteFile(t.Context(), dir, wire.File{Type: wire.Directory}); err != nil {
			rt.Fatal(err)
		}
		if got := state(t, dir); got != "nothing" {
			rt.Fatalf("left: %s", got)
		}
		o.mustBeUntouched(t)
	})
}

func TestRemovalOfADeepTreeNeedsFewDescriptors(t *testing.T) {
	dir := t.TempDir() + "/deep"
	must(t, os.Mkdir(dir, 0o700))
	fd, err := unix.Open(dir, asDirectory, 0)
	must(t, err)
	for range 3000 { // deeper than the longest path and than the limit of descriptors
		must(t, unix.Mkdirat(fd, "d", 0o700))
		next, err := unix.Openat(fd, "d", asDirectory, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: was.Max}))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) }()
	must(t, deleteFile(t.Context(), dir, wire.File{Type: wire.Directory}))
	if got := state(t, dir); got != "nothing" {
		t.Errorf("left: %s", got)
	}
}

func TestRemovalEndsWithItsContextWhileFilesAreAdded(t *testing.T) {
	dir := t.TempDir() + "/busy"
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(dir+"/f", nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := deleteFile(ctx, dir, wire.File{Type: wire.Directory})
	known := new(kvscheduler.OpError)
	if !errors.Is(err, context.Canceled) || !errors.As(err, &known) || known.Permanent {
		t.Errorf("error %v", err)
	}
}

// takeLease takes a lease on a file as its owner. The kernel delays other opens by 45 s.
func takeLease(t *testing.T, name string) {
	t.Helper()
	failed := make(chan error)
	var f *os.File
	go func() {
		runtime.LockOSThread() // the thread, with another user, ends with the goroutine
		if err := unix.Setfsuid(podUser); err != nil {
			failed <- err
			return
		}
		var err error
		if f, err = os.Open(name); err == nil {
			if _, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
				err = fmt.Errorf("lease: %w", err)
			}
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
}

// Finding 8: a pod owns its files and may take a lease on them, also without write permission for their directory.
func TestFinding8LeaseOnAFileDoesNotDelayItsReader(t *testing.T) {
	pod := newPodDirectory(t, true)
	name := pod + "/secret"
	v := wire.File{Type: wire.RegularFile, Mode: 0o440, UID: podUser, GID: podUser, Secret: "ours"}
	must(t, makeFiles(t, map[string]wire.File{name: v}))
	takeLease(t, name)
	read := make(chan error, 1)
	go func() {
		got, found, err := readKnown(name, []wire.File{v})
		if err == nil && (!found || got == v) {
			err = fmt.Errorf(
				"a file that cannot be read now was read as %v, %t: it must differ, so that it is replaced", got, found)
		}
		read <- err
	}()
	select {
	case err := <-read:
		must(t, err)
	case <-time.After(20 * time.Second): // the kernel waits for 45 s
		t.Fatal("held up by a lease")
	}
	must(t, makeFiles(t, map[string]wire.File{name: v}))
	if got, found, err := readKnown(name, []wire.File{v}); err != nil || !found || got != v {
		t.Errorf("replaced, it is %v, %t, %v", got, found, err)
	}
}
