package linux

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// mountAt bind mounts source, or a small tmpfs if source is "", until the test ends.
func mountAt(t *testing.T, source, target string) {
	t.Helper()
	needOwners(t)
	err := unix.Mount(source, target, "", unix.MS_BIND, "")
	if source == "" {
		err = unix.Mount("none", target, "tmpfs", 0, "size=64k")
	}
	if err != nil {
		t.Skip("needs mount(2): ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

func TestForeignFileIsAnErrorAndKept(t *testing.T) {
	make := map[string]func(name string) error{
		"directory": func(name string) error {
			return errors.Join(os.Mkdir(name, 0o700), os.WriteFile(name+"/f", nil, 0o600))
		},
		"regular file":  func(name string) error { return os.WriteFile(name, []byte("foreign"), 0o600) },
		"symbolic link": func(name string) error { return os.Symlink("/etc/passwd", name) },
		"named pipe":    func(name string) error { return unix.Mkfifo(name, 0o600) },
		"socket": func(name string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
			if err == nil {
				l.SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		},
	}
	for want, others := range map[wire.FileType][]string{
		wire.Directory:   {"regular file", "symbolic link", "named pipe", "socket"},
		wire.RegularFile: {"directory", "named pipe", "socket"},
		wire.Socket:      {"directory", "regular file", "symbolic link", "named pipe"},
	} {
		for _, other := range others {
			l, root := newFileLab(t)
			name := root + "/f"
			must(t, make[other](name))
			was := state(t, name)
			o := object{wire.FileKey(name), wire.File{Type: want, Mode: 0o640}}
			if err := l.commit(o); err == nil ||
				!strings.Contains(err.Error(),
					"create "+string(want)+" "+name+": a "+other+", which Weft did not create,") {
				t.Errorf("a %s instead of a %s: %v", other, want, err)
			}
			must(t, deleteFile(t.Context(), name, o.value.(wire.File)))
			if got := state(t, name); got != was && other != "symbolic link" {
				t.Errorf("a %s instead of a %s was %s and is %s", other, want, was, got)
			}
		}
	}
}

func TestForeignFileInThePlaceOfOursIsKept(t *testing.T) {
	l, root := newFileLab(t)
	file := root + "/f"
	dir := root + "/d"
	l.mustCommit(object{wire.FileKey(file), wire.File{Type: wire.RegularFile, Mode: 0o600}},
		directory(dir, wire.File{Mode: 0o700}))
	must(t,
		errors.Join(os.Remove(file), os.MkdirAll(file+"/foreign", 0o700), os.Remove(dir),
			os.WriteFile(dir, nil, 0o600)))
	l.resyncs()
	if got := state(t, file+"/foreign") + state(t, dir); got != "drwx-------rw------- " {
		t.Errorf("after the repair: %s", got)
	}
	l.mustCommit(object{wire.FileKey(file), nil}, object{wire.FileKey(dir), nil})
	if got := state(t, file+"/foreign") + state(t, dir); got != "drwx-------rw------- " {
		t.Errorf("after the removal: %s", got)
	}
}

func TestAFullDiskKeepsTheOldFile(t *testing.T) {
	root := t.TempDir()
	mountAt(t, "", root)
	l, _ := newFileLab(t)
	name := root + "/f"
	file := func(size int) object {
		return object{
			wire.FileKey(name), wire.File{Type: wire.RegularFile, Mode: 0o600, Content: strings.Repeat("x", size)},
		}
	}
	l.mustCommit(file(16 << 10))
	if err := l.commit(file(100 << 10)); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), name) {
		t.Errorf("on a full disk: %v", err)
	}
	l.quiet()
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
		t.Errorf("entries %v, error %v", entries, err)
	}
	l.mustCommit(file(17 << 10))
	l.quiet()
}

func TestRemovalKeepsMountPoints(t *testing.T) {
	elsewhere := t.TempDir()
	must(t, os.WriteFile(elsewhere+"/foreign", nil, 0o600))
	for name, at := range map[string]string{"itself": "", "in it": "/x", "far down": "/x/y/z"} {
		for _, source := range []string{"", elsewhere} { // a bind mount is on the same file system
			dir := t.TempDir() + "/d"
			must(t, os.MkdirAll(dir+at, 0o700))
			mountAt(t, source, dir+at)
			must(t, os.WriteFile(dir+at+"/foreign", nil, 0o600))
			err := deleteFile(t.Context(), dir, wire.File{Type: wire.Directory})
			if err == nil || !strings.Contains(err.Error(), "mount") {
				t.Errorf("%q %s: %v", source, name, err)
			}
			must(t, unix.Unmount(dirOf(t, dir, at), unix.MNT_DETACH))
			must(t, deleteFile(t.Context(), dir, wire.File{Type: wire.Directory}))
		}
	}
	if got := state(t, elsewhere+"/foreign"); got == "nothing" {
		t.Error("a bind mount was emptied")
	}
}

// dirOf returns the current path of a mount point, which removal may have moved up.
func dirOf(t *testing.T, dir, at string) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[1] == dir || strings.HasPrefix(f[1], dir+"/") {
			return f[1]
		}
	}
	t.Fatalf("no mount point in %s%s", dir, at)
	return ""
}

func TestReaderSeesTheOldOrTheNewFile(t *testing.T) {
	needOwners(t)
	name := t.TempDir() + "/f"
	values := make([]wire.File, 2)
	for i := range values {
		values[i] = wire.File{
			Type:    wire.RegularFile,
			Mode:    0o440,
			UID:     1000 + i,
			GID:     1000 + i,
			Content: strings.Repeat(fmt.Sprint(i), 1<<16),
		}
	}
	must(t, makeFiles(t, map[string]wire.File{name: values[0]}))
	done := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for seen := 0; ; seen++ {
			select {
			case <-done:
				if seen == 0 {
					t.Error("no reads")
				}
				return
			default:
			}
			v, found, err := readKnown(name, values)
			v = mergeFile(v, values[0])
			if !found || err != nil || v != values[0] && v != values[1] {
				t.Errorf("found %v, error %v, mode %s, owner %d:%d, %d bytes", found, err, v.Mode, v.UID, v.GID,
					len(v.Content))
				return
			}
		}
	})
	for i := range 500 {
		must(t, makeFiles(t, map[string]wire.File{name: values[i%2]}))
	}
	close(done)
	reading.Wait()
}

func TestLinkToAForeignSocketIsAnErrorAndKept(t *testing.T) {
	l, root := newFileLab(t)
	theirs := filepath.Join(t.TempDir(), "foreign")
	name := root + "/s"
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", theirs)
	must(t, err)
	defer listener.Close()
	was := state(t, theirs)
	for what, plant := range map[string]func(string, string) error{
		"1 symbolic link": os.Symlink,
		"has 2 names":     os.Link,
	} {
		must(t, plant(theirs, name))
		err := l.commit(object{wire.FileKey(name), wire.File{Type: wire.Socket, Mode: 0o600, GID: 7}})
		if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(what, "1 ")) {
			t.Errorf("%s: %v", what, err)
		}
		must(t, os.Remove(name))
	}
	if got := state(t, theirs); got != was {
		t.Errorf("the foreign socket was %s and is %s", was, got)
	}
}

func TestTemporaryFileOfACrashIsReplaced(t *testing.T) {
	name := t.TempDir() + "/f"
	must(t, os.WriteFile(filepath.Dir(name)+"/"+tempPrefix+"f", []byte("half"), 0o600))
	must(t, makeFiles(t, map[string]wire.File{name: {Type: wire.RegularFile, Mode: 0o600, Content: "all"}}))
	entries, err := os.ReadDir(filepath.Dir(name))
	if got := state(t, name); err != nil || got != "-rw------- all" || len(entries) != 1 {
		t.Errorf("file %s, entries %v, error %v", got, entries, err)
	}
}
