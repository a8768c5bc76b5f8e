package syscalltest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// steps are the system calls that change files, except those that open and close them.
var steps = []uint32{
	unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT, unix.SYS_FCHMOD, unix.SYS_FCHMODAT,
}

// ofFiles are those with a descriptor as the first argument. The others have a path, and count wherever it is.
var ofFiles = map[int32]bool{
	unix.SYS_WRITE: true, unix.SYS_PWRITE64: true, unix.SYS_FTRUNCATE: true, unix.SYS_FALLOCATE: true,
	unix.SYS_FSYNC:     true,
	unix.SYS_FDATASYNC: true, unix.SYS_FCHMOD: true,
}

// victim is the environment variable of the process that is killed. It has the argument of the function.
const victim = "WEFT_TEST_VICTIM"

// handover is the descriptor by which a victim hands over its listener.
const handover = 3

// Main makes the process a victim if [Walk] has started it: it calls do with the argument of the walk, and ends the
// process. It returns in all other processes. Tests with a walk call it first in TestMain.
func Main(do func(argument string) error) {
	argument, is := os.LookupEnv(victim)
	if !is {
		return
	}
	runtime.LockOSThread()
	if err := announce(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitUnable)
	}
	if err := do(argument); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// exitUnable is the exit code of a victim without a filter.
const exitUnable = 77

// announce installs the filter for all threads, and hands its listener to the parent.
func announce() error {
	l, err := filter(unix.SECCOMP_FILTER_FLAG_TSYNC|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH, steps...)
	if err != nil {
		return fmt.Errorf("seccomp notifications are not available: %w", err)
	}
	if err := unix.Sendmsg(handover, []byte{0}, unix.UnixRights(int(l)), nil, 0); err != nil {
		return fmt.Errorf("hand over the listener: %w", err)
	}
	return errors.Join(unix.Close(int(l)), unix.Close(handover))
}

// Walk runs the test binary as a victim with an argument, again and again. It kills the first one (SIGKILL) before its
// first system call that changes a file below dir(), the second one before its second one, and so on, until one ends
// without being killed. prepare is called before each victim and returns the folder that it changes, and check after
// it. Walk returns the number of kills. It skips the test where seccomp notifications are not available.
func Walk(
	t *testing.T, prepare func(step int) (dir, argument string), check func(t *testing.T, dir string, killed bool),
) (kills int) {
	t.Helper()
	for killed := true; killed; {
		dir, argument := prepare(kills + 1)
		killed = kill(t, dir, argument, kills+1)
		t.Run(fmt.Sprintf("before step %d", kills+1), func(t *testing.T) { check(t, dir, killed) })
		if killed {
			kills++
		}
	}
	return kills
}

// kill runs a victim and reports whether it reached the step, before which it is killed.
func kill(t *testing.T, dir, argument string, step int) bool {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := pair[0]
	theirs := os.NewFile(uintptr(pair[1]), "handover")
	defer unix.Close(ours)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victim+"="+argument)
	cmd.ExtraFiles = []*os.File{theirs}
	var out strings.Builder
	cmd.Stdout = &out
	cmd.Stderr = &out
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		t.Fatal(err)
	}
	l, err := receive(ours)
	if err == nil {
		defer unix.Close(int(l))
		err = l.follow(cmd, dir, step)
	}
	ended := cmd.Wait()
	exit, isExit := errors.AsType[*exec.ExitError](ended)
	switch {
	case isExit && exit.ExitCode() == exitUnable:
		t.Skip(out.String())
	case isExit && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return true
	case err != nil || ended != nil:
		t.Fatalf("the victim: %v, %v: %s", err, ended, out.String())
	}
	return false
}

// receive receives the listener of a victim.
func receive(from int) (listener, error) {
	buffer := make([]byte, 1)
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(from, buffer, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("receive the listener: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("no listener: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return 0, fmt.Errorf("no listener: %w", err)
	}
	return listener(fds[0]), nil
}

// follow lets a victim go on until the step, and kills it.
func (l listener) follow(cmd *exec.Cmd, dir string, step int) error {
	for {
		n, ok, err := l.next(-1)
		if errors.Is(err, errEnded) {
			return nil
		}
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if isBelow(n, dir) {
			if step--; step == 0 {
				return cmd.Process.Kill()
			}
		}
		if err := l.resume(n); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
}

// isBelow reports whether a system call is one of a file below a folder.
func isBelow(n notification, dir string) bool {
	if !ofFiles[n.nr] {
		return true
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, n.args[0]))
	return err == nil && strings.HasPrefix(path, dir)
}
