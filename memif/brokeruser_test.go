package memif

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// hogArgument makes this program a process that uses up its user's descriptors in flight.
const hogArgument = "memif-hog"

// hogDescriptors is more than a broker process may have open, which is what the kernel compares with.
const hogDescriptors = 20000

// hog sends descriptors that it never receives, until the kernel refuses more. It says so, and waits for the end of its input.
func hog() error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: hogDescriptors, Max: hogDescriptors}); err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	rights := make([]int, 250) // the most that a message has is 253
	for i := range rights {
		rights[i] = int(null.Fd())
	}
	for {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		for err == nil {
			err = unix.Sendmsg(pair[0], []byte{1}, unix.UnixRights(rights...), nil, 0)
		}
		if errors.Is(err, unix.ETOOMANYREFS) {
			fmt.Println("full")
			_, _ = os.Stdin.Read(make([]byte, 1))
			return nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
}

// startHog runs hog as a user until the test ends.
func startHog(t *testing.T, user uint32) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", hogArgument)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("needs the right to start processes of other users: %v", err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "full" {
		t.Fatalf("the process that uses up descriptors said %q: %v", line, err)
	}
}

// The kernel counts descriptors in flight for each user, and refuses more. A pod whose user is the broker process's could keep all
// clients of the node from connecting.
func TestAPodCannotUseUpTheDescriptorsInFlightOfTheBrokerProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, user := range []uint32{65534, 1000} {
		startHog(t, user)
	}
	l := newLab(t, ListenOptions{Broker: newBroker(t)})
	l.add(t, hostileConfig)
	l.stillServes(t)
}
