package memif

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// backlog bounds the clients that wait to be accepted.
const backlog = 64

// maxSocketPath is the longest path in a socket's address, without its NUL.
const maxSocketPath = 107

// bind creates the listening socket. Its file has its mode and accepts connections before it is visible.
func bind(path string, mode fs.FileMode) (*net.UnixListener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	socket := os.NewFile(uintptr(fd), path)
	defer socket.Close()
	if isAbstract(path) {
		err = listenAs(fd, path)
	} else {
		err = listenAt(fd, path, mode)
	}
	if err != nil {
		return nil, err
	}
	l, err := net.FileListener(socket)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l.(*net.UnixListener), nil
}

func isAbstract(path string) bool { return strings.HasPrefix(path, "@") }

func listenAs(fd int, name string) error {
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

// listenAt binds a socket to a file. Another user may write in the file's directory and replace any name in it at any
// time, so no name in it is followed: the file is made in a private directory and moved from there.
func listenAt(fd int, path string, mode fs.FileMode) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("bind: %w: a socket's path has at most %d bytes", unix.EINVAL, maxSocketPath)
	}
	directory, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open directory of socket: %w", err)
	}
	defer unix.Close(directory)
	if mode == 0 {
		if mode, err = modeFor(directory); err != nil {
			return err
		}
	}
	base := filepath.Base(path)
	if err := removeStale(directory, base); err != nil {
		return err
	}
	private, err := makePrivate(directory)
	if err != nil {
		return err
	}
	err = private.listen(fd)
	if err == nil {
		err = private.setMode(mode)
	}
	if err == nil {
		err = private.publish(directory, base)
	}
	return errors.Join(err, private.remove(directory))
}

// modeFor grants write access to the users that can enter the directory.
func modeFor(directory int) (fs.FileMode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(directory, &st); err != nil {
		return 0, fmt.Errorf("read mode of directory: %w", err)
	}
	mode := fs.FileMode(0o600)
	if st.Mode&0o010 != 0 {
		mode |= 0o060
	}
	if st.Mode&0o001 != 0 {
		mode |= 0o006
	}
	return mode, nil
}

// privateDirectory is a directory that only the caller's user can enter, in the directory of a socket. It holds the
// socket's file until that has its mode. Only the file system of the directory will do, as a file cannot be moved to
// another. Root of a container that mounts the socket's directory has the caller's user and can enter it too.
type privateDirectory struct {
	fd   int
	name string // in the socket's directory
}

// inPrivate is the socket's name in a private directory.
const inPrivate = "s"

func makePrivate(directory int) (*privateDirectory, error) {
	p := &privateDirectory{name: ".memif-" + rand.Text()}
	if err := unix.Mkdirat(directory, p.name, 0o700); err != nil {
		return nil, fmt.Errorf("make private directory: %w", err)
	}
	var err error
	p.fd, err = unix.Openat(directory, p.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open private directory: %w", err)
	}
	// The owner of the directory may have replaced the new one.
	var st unix.Stat_t
	if err = unix.Fstat(p.fd, &st); err == nil && (int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0) {
		err = fmt.Errorf("%w: it was replaced", unix.EACCES)
	}
	if err != nil {
		unix.Close(p.fd)
		return nil, fmt.Errorf("check private directory: %w", err)
	}
	return p, nil
}

// listen binds the socket in the private directory.
func (p *privateDirectory) listen(fd int) error { return listenAs(fd, fdPath(p.fd)+"/"+inPrivate) }

// setMode sets the mode of the socket's file. The file would have the socket's mode before bind less the umask, which
// all threads share. A link that replaced the file is not followed.
func (p *privateDirectory) setMode(mode fs.FileMode) error {
	file, kind, err := openEntry(p.fd, inPrivate)
	if err != nil {
		return fmt.Errorf("set mode of socket: %w", err)
	}
	defer unix.Close(file)
	if kind != unix.S_IFSOCK {
		return fmt.Errorf("set mode of socket: %w: it was replaced", unix.EACCES)
	}
	if err := os.Chmod(fdPath(file), mode.Perm()); err != nil {
		return fmt.Errorf("set mode of socket: %w", err)
	}
	return nil
}

// publish gives the socket its name, unless that is taken. Clients are connected by the file, whatever it was called at
// bind.
func (p *privateDirectory) publish(directory int, base string) error {
	err := unix.Renameat2(p.fd, inPrivate, directory, base, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		err = unix.EADDRINUSE
	}
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// remove removes the private directory. One that the owner of the socket's directory has moved is left to it.
func (p *privateDirectory) remove(directory int) error {
	defer unix.Close(p.fd)
	if err := unix.Unlinkat(p.fd, inPrivate, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove unpublished socket: %w", err)
	}
	_ = unix.Unlinkat(directory, p.name, unix.AT_REMOVEDIR)
	return nil
}

// fdPath returns a path to the file of an open descriptor. It stays valid after a rename.
func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// openEntry opens a file of a directory without following a link, and returns the type of the file (S_IFMT).
// Descriptors of type O_PATH neither wait for a FIFO nor reach a device.
func openEntry(directory int, base string) (fd int, kind uint32, err error) {
	fd, err = unix.Openat(directory, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, 0, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Mode & unix.S_IFMT, nil
}

// removeStale removes a socket of type SEQPACKET on which no process listens. Anything else there is an error.
func removeStale(directory int, base string) error {
	fd, kind, err := openEntry(directory, base)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for stale socket: %w", err)
	}
	defer unix.Close(fd)
	if kind != unix.S_IFSOCK {
		return fmt.Errorf("%w: not a socket", unix.EADDRINUSE)
	}
	if err := probe(fdPath(fd)); !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%w: another process listens on it", unix.EADDRINUSE)
	}
	if err := unix.Unlinkat(directory, base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}

// probe connects to a socket and hangs up. It does not wait for a listener with a full backlog.
func probe(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}
