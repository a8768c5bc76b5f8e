package memif

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyStaleSocketsAreReplaced(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "s")
	first, err := Listen(path, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, ListenOptions{}); err == nil {
		t.Error("replaced the socket of a listener")
	}
	first.file = nil // keeps its file, as a killed process does
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(path, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the file exists: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, ListenOptions{}); err == nil {
		t.Error("replaced a file")
	}
}

func TestModeOfSocketFollowsFromItsDirectory(t *testing.T) {
	for directory, want := range map[os.FileMode]os.FileMode{
		0o700: 0o600, 0o750: 0o660, 0o2750: 0o660, 0o755: 0o666, 0o710: 0o660, 0o701: 0o606, 0o740: 0o600,
	} {
		path := t.TempDir()
		if err := unix.Chmod(path, uint32(directory)); err != nil {
			t.Fatal(err)
		}
		l, err := Listen(filepath.Join(path, "s"), ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(l.Path())
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("directory %o: socket %v, %v", directory, info.Mode(), err)
		}
		_ = l.Close()
	}
}

// otherUser may write in the directory of the tests' sockets, as a pod may with devices.memif.writable.
const otherUser = 1234

// hostileDirectory makes a directory that otherUser owns, and a file beside it that only root can read.
func hostileDirectory(t *testing.T) (directory, victim string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs to be root: the attacker is another user")
	}
	parent, err := os.MkdirTemp("", "memif") // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	directory = filepath.Join(parent, "pod")
	victim = filepath.Join(t.TempDir(), "victim")
	err = errors.Join(os.Chmod(parent, 0o755), os.Mkdir(directory, 0o755), os.Chown(directory, otherUser, otherUser),
		os.WriteFile(victim, []byte("root's"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return directory, victim
}

// narrowUmask sets a umask with which Listen has to change the mode of the socket's file.
func narrowUmask(t *testing.T) {
	t.Helper()
	was := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(was) })
}

// attack repeats f as otherUser until stop is called.
func attack(f func()) (stop func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the goroutine, and its user with it
		if unix.Setfsuid(otherUser) != nil {
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
	}()
	return func() { close(done); <-ended }
}

func mustStayPrivate(t *testing.T, victim string) {
	t.Helper()
	info, err := os.Lstat(victim)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("the file of root is now %v, %v: its mode was changed through a link", info.Mode(), err)
	}
}

// Finding 8: the mode was set by the socket's path, which the directory's owner had replaced by a link.
func TestFinding8ListenDoesNotChangeModesThroughLinks(t *testing.T) {
	directory, victim := hostileDirectory(t)
	narrowUmask(t)
	path := filepath.Join(directory, "memif.sock")
	link := filepath.Join(directory, "link")
	replaced := 0
	stop := attack(func() {
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSocket {
			_ = os.Symlink(victim, link)
			return
		}
		if os.Rename(link, path) == nil {
			replaced++
		}
	})
	for range 2000 {
		l, err := Listen(path, ListenOptions{Mode: 0o666})
		mustStayPrivate(t, victim)
		if err == nil {
			_ = l.Close()
		}
		_ = os.Remove(path)
	}
	stop()
	if replaced == 0 {
		t.Error("the attacker replaced no socket: the test proves nothing")
	}
}

// Finding 8: another user owns the parent of the private directory, and can replace it by a link or move it.
func TestFinding8ListenDoesNotLeaveItsDirectoryThroughLinks(t *testing.T) {
	directory, victim := hostileDirectory(t)
	outside := filepath.Dir(victim)
	narrowUmask(t)
	replaced := 0
	stop := attack(func() {
		entries, _ := os.ReadDir(directory)
		for _, e := range entries {
			name := filepath.Join(directory, e.Name())
			if strings.HasPrefix(e.Name(), ".memif-") &&
				os.Rename(name, filepath.Join(directory, "moved-"+e.Name())) == nil &&
				os.Symlink(outside, name) == nil {
				replaced++
			}
		}
	})
	for range 2000 {
		if l, err := Listen(filepath.Join(directory, "memif.sock"), ListenOptions{Mode: 0o666}); err == nil {
			_ = l.Close()
		}
		mustStayPrivate(t, victim)
	}
	stop()
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside of the directory: %v, %v", entries, err)
	}
	if replaced == 0 {
		t.Error("the attacker replaced no directory: the test proves nothing")
	}
}

// Finding 8, step by step: changes of the directory's owner between two steps do not lead a step out of the directory.
func TestFinding8EachStepOfListenStaysInItsDirectory(t *testing.T) {
	directory, victim := hostileDirectory(t)
	narrowUmask(t)
	held, err := unix.Open(directory, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	private, err := makePrivate(held)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(directory, private.name)
	path := filepath.Join(directory, "memif.sock")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(errors.Join(os.Rename(name, name+"-moved"), os.Symlink(filepath.Dir(victim), name)))
	must(private.listen(socket))
	must(private.setMode(0o666))
	must(os.Symlink(victim, path))
	if err := private.publish(held, "memif.sock"); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("published over a link: %v", err)
	}
	if err := removeStale(held, "memif.sock"); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("replaced a link as if it were a stale socket: %v", err)
	}
	must(os.Remove(path))
	must(private.publish(held, "memif.sock"))
	must(private.remove(held))
	mustStayPrivate(t, victim)
	if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|0o666 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(name); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link of the directory's owner: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(victim)); err != nil || len(left) != 1 {
		t.Errorf("outside of the directory: %v, %v", left, err)
	}
}

// Root of a container that has the directory writable is the user of the server: the private directory does not keep it
// out.
func TestModeOfASocketIsNotSetThroughALinkOfContainerRoot(t *testing.T) {
	directory, victim := hostileDirectory(t)
	narrowUmask(t)
	held, err := unix.Open(directory, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	private, err := makePrivate(held)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(private.fd)
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	if err := private.listen(socket); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(directory, private.name, inPrivate)
	for kind, replace := range map[string]func() error{
		"a link to a file":      func() error { return os.Symlink(victim, name) },
		"a link to a directory": func() error { return os.Symlink(filepath.Dir(victim), name) },
		"a link to nothing":     func() error { return os.Symlink(victim+"-missing", name) },
		"a regular file":        func() error { return os.WriteFile(name, nil, 0o600) },
		"a FIFO":                func() error { return unix.Mkfifo(name, 0o600) },
		"a directory":           func() error { return os.Mkdir(name, 0o700) },
	} {
		if err := errors.Join(os.Remove(name), replace()); err != nil {
			t.Fatal(err)
		}
		before, err := os.Lstat(filepath.Dir(victim))
		if err != nil {
			t.Fatal(err)
		}
		if err := private.setMode(0o666); !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: %v", kind, err)
		}
		mustStayPrivate(t, victim)
		if after, err := os.Lstat(filepath.Dir(victim)); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s: the directory outside is now %v, %v", kind, after.Mode(), err)
		}
	}
}

// Finding 8: Listen connected to a root-owned listener through a link that replaced a stale socket.
func TestFinding8ListenDoesNotConnectThroughLinks(t *testing.T) {
	directory, _ := hostileDirectory(t)
	elsewhere := filepath.Join(t.TempDir(), "theirs")
	theirs, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: elsewhere, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(directory, "memif.sock")
	stale := filepath.Join(directory, "stale")
	link := filepath.Join(directory, "link")
	abandon(t, stale)
	if err := os.Chown(stale, otherUser, otherUser); err != nil { // only its owner may make a hard link
		t.Fatal(err)
	}
	swapped := 0
	stop := attack(func() {
		_ = os.Link(stale, path)
		_ = os.Symlink(elsewhere, link)
		if unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE) == nil {
			swapped++
		}
	})
	for range 5000 {
		if l, err := Listen(path, ListenOptions{}); err == nil {
			_ = l.Close()
		}
	}
	stop()
	if hasClient(t, theirs) {
		t.Error("connected to a root-owned listener through a link")
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	if swapped == 0 {
		t.Error("the attacker replaced nothing: the test proves nothing")
	}
}

// hasClient reports whether a client waits to be accepted, even if it has disconnected.
func hasClient(t *testing.T, l *net.UnixListener) bool {
	t.Helper()
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	accepted := -1
	if err := raw.Control(func(fd uintptr) {
		accepted, _, err = unix.Accept4(int(fd), unix.SOCK_CLOEXEC)
	}); err != nil {
		t.Fatal(err)
	}
	if err == nil {
		_ = unix.Close(accepted)
	}
	return err == nil
}

// abandon leaves a socket file without a listener.
func abandon(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSocketHasItsModeAndGroupWithAnyUmask(t *testing.T) {
	directory, _ := hostileDirectory(t)
	narrowUmask(t)
	if err := unix.Chmod(directory, unix.S_ISGID|0o750); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(directory, "s")
	l, err := Listen(path, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode != unix.S_IFSOCK|0o660 || st.Gid != otherUser {
		t.Errorf("mode %#o, group %d, %v", st.Mode, st.Gid, err)
	}
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestSocketWithALongPathIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("x", 108))
	if l, err := Listen(path, ListenOptions{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("%v, %v", l, err)
	}
}

// A pod with a writable directory may replace a socket before it is closed.
func TestCloseRemovesOnlyItsOwnSocket(t *testing.T) {
	broker := newBroker(t)
	ends := map[string]func(path string) (end func(), err error){
		"listener": func(path string) (func(), error) {
			l, err := Listen(path, ListenOptions{})
			return func() { _ = l.Close() }, err
		},
		"splice": func(path string) (func(), error) {
			s, err := broker.Splice(SpliceConfig{Path: path})
			return func() { s.Close() }, err
		},
	}
	for kind, open := range ends {
		for name, replace := range map[string]func(path, outside string) error{
			"nothing": func(string, string) error { return nil },
			"link to a file": func(path, outside string) error {
				return os.Symlink(filepath.Join(outside, "victim"), path)
			},
			"link to a directory": func(path, outside string) error { return os.Symlink(outside, path) },
			"link to nothing": func(path, outside string) error {
				return os.Symlink(filepath.Join(outside, "missing"), path)
			},
			"regular file":   func(path, _ string) error { return os.WriteFile(path, nil, 0o600) },
			"FIFO":           func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
			"directory":      func(path, _ string) error { return os.Mkdir(path, 0o700) },
			"another socket": func(path, _ string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		} {
			t.Run(kind+" replaced by "+name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "s")
				outside := t.TempDir()
				end, err := open(path)
				if err != nil {
					t.Fatal(err)
				}
				// Its name stays taken, so that the other file does not get its inode.
				err = errors.Join(os.WriteFile(filepath.Join(outside, "victim"), nil, 0o600),
					os.Link(path, path+".kept"), os.Remove(path), replace(path, outside))
				if err != nil {
					t.Fatal(err)
				}
				before, missing := os.Lstat(path)
				end()
				after, gone := os.Lstat(path)
				if (missing == nil) != (gone == nil) || missing == nil && !os.SameFile(before, after) {
					t.Errorf("removed: %v, %v", missing, gone)
				}
				if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
					t.Errorf("outside: %v, %v", left, err)
				}
			})
		}
	}
}
