package deletequeue

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification and answer are the structs seccomp_notif and seccomp_notif_resp of the kernel.
type (
	notification struct {
		id         uint64
		pid, flags uint32
		nr         int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	answer struct {
		id    uint64
		val   int64
		error int32
		flags uint32
	}
)

// observeSyncs calls do. Before each fsync and fdatasync of do it calls look with the path of the file.
func observeSyncs(t *testing.T, do func() error, look func(path string)) error {
	t.Helper()
	type listener struct {
		fd  int
		err error
	}
	ready, done := make(chan listener, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread keeps the filter and ends with this goroutine
		fd, err := filterSyncs()
		ready <- listener{fd, err}
		if err == nil {
			done <- do()
		}
	}()
	l := <-ready
	if l.err != nil {
		t.Skip("seccomp notifications are not available: ", l.err)
	}
	defer unix.Close(l.fd)
	for {
		select {
		case err := <-done:
			return err
		default:
		}
		poll := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 10); n == 0 || err == unix.EINTR {
			continue
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			return <-done // the thread has ended
		}
		var n notification
		if err := control(l.fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
			t.Fatal(err)
		}
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, n.args[0]))
		if err != nil {
			t.Error(err)
		}
		look(path)
		a := answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if err := control(l.fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)); err != nil {
			t.Fatal(err)
		}
	}
}

func control(fd int, request uintptr, value unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(value)); errno != 0 {
		return fmt.Errorf("seccomp notification: %w", errno)
	}
	return nil
}

// filterSyncs installs a seccomp filter that notifies the returned file before each fsync and fdatasync of this thread.
func filterSyncs() (int, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FSYNC, Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FDATASYNC, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// A power failure loses data that is not synced. The content must be synced before the rename, and the directory before the plugin
// reports success to the runtime.
func TestEntryIsSyncedBeforeTheRenameAndTheDirectoryAfter(t *testing.T) {
	q := open(t, t.TempDir())
	var syncs []string
	err := observeSyncs(t, func() error { return q.add(t.Context(), entryOf("a")) }, func(path string) {
		what := "directory"
		if path != q.dir {
			what = "file in " + filepath.Base(filepath.Dir(path))
		}
		if exists(filepath.Join(q.dir, keyOf("a").fileName())) {
			what += " with the entry"
		}
		syncs = append(syncs, what)
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"file in " + filepath.Base(q.dir), "directory with the entry"}; !slices.Equal(syncs, want) {
		t.Errorf("synced %q, expected %q", syncs, want)
	}
	wantLen(t, q, 1)
}
