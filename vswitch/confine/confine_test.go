package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// role is the environment variable with the role of a helper process.
const role = "WEFT_CONFINE_TEST_ROLE"

func TestMain(m *testing.M) {
	if as := os.Getenv(role); as != "" {
		if err := runHelper(as); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// findings are the results of a confined helper process.
type findings struct {
	Threads []string       // status of each
	Errnos  map[string]int // of system calls with all bits set in all arguments
	Failed  map[string]string
}

// runHelper is the main function of a helper process.
func runHelper(as string) error {
	// Threads that exist before the confinement.
	var started sync.WaitGroup
	for range 4 {
		started.Add(1)
		go func() {
			runtime.LockOSThread()
			started.Done()
			select {}
		}()
	}
	started.Wait()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	var tasks *os.File // opened before: the broker opens nothing
	if as != "broker" {
		tasks, err = os.Open("/proc/self/task")
	}
	if err == nil && as == "dataplane" {
		err = Dataplane()
	}
	if err == nil && as == "broker" {
		err = Broker()
	}
	if err != nil {
		return err
	}
	f := findings{Errnos: map[string]int{}, Failed: map[string]string{}}
	if tasks != nil {
		names, _ := tasks.Readdirnames(-1)
		for _, name := range names {
			status, _ := os.ReadFile("/proc/self/task/" + name + "/status")
			f.Threads = append(f.Threads, string(status))
		}
	}
	f.callAll()
	for name, err := range calls(int(null.Fd())) {
		if err != nil {
			f.Failed[name] = err.Error()
		}
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// callAll makes each denied system call with invalid arguments.
func (f *findings) callAll() {
	info, err := arch.GetInfo("")
	if err != nil {
		return
	}
	const ones = ^uintptr(0)
	for _, name := range known(append(slices.Clone(DeniedSyscalls), "clone3")) {
		_, _, errno := unix.RawSyscall6(uintptr(info.SyscallNames[name]), ones, ones, ones, ones, ones, ones)
		f.Errnos[name] = int(errno)
	}
}

// calls returns more system calls by name.
func calls(null int) map[string]error {
	done := map[string]error{}
	for family, name := range map[int]string{
		unix.AF_UNIX:    "unix",
		unix.AF_INET:    "inet",
		unix.AF_INET6:   "inet6",
		unix.AF_NETLINK: "netlink",
		unix.AF_ALG:     "alg", unix.AF_VSOCK: "vsock", unix.AF_KEY: "key",
	} {
		kind := unix.SOCK_DGRAM
		if family == unix.AF_ALG {
			kind = unix.SOCK_SEQPACKET
		}
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		_ = unix.Close(fd)
		done["socket "+name] = err
	}
	_, done["socketpair"] = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	_, done["open"] = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	_, done["seals"] = unix.FcntlInt(uintptr(null), unix.F_GETFD, 0)
	_, done["readlink"] = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", null))
	done["setns mount"] = unix.Setns(null, unix.CLONE_NEWNS)
	done["setns any"] = unix.Setns(null, 0)
	done["setns net"] = unix.Setns(null, unix.CLONE_NEWNET)
	_, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_NEWUSER|unix.CLONE_FS, 0, 0, 0, 0, 0) // invalid together
	done["clone namespace"] = errnoOf(errno)
	_, done["mmap"] = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	_, done["mmap executable"] = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	done["kill itself"] = unix.Kill(os.Getpid(), 0)
	done["tgkill parent"] = unix.Tgkill(os.Getppid(), os.Getppid(), 0)
	itself := exec.Command("/proc/self/exe", "-test.run=^$") //nolint:noctx // it ends at once
	itself.Env = []string{"GOTRACEBACK=none"}                // without a role
	done["execute"] = itself.Run()
	threads := make(chan bool)
	for range 50 {
		go func() { runtime.LockOSThread(); threads <- true }()
	}
	for range 50 {
		<-threads
	}
	return done
}

func errnoOf(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func run(t *testing.T, as string) findings {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{role + "=" + as}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%v: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var f findings
	if err := json.Unmarshal(out, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestDataplaneCannotMakeDeniedSystemCalls(t *testing.T) {
	confined := run(t, "dataplane")
	free := run(t, "unconfined")
	all := unrestricted(t)
	for name, errno := range confined.Errnos {
		want := unix.EPERM
		if name == "clone3" {
			want = unix.ENOSYS
		}
		if unix.Errno(errno) != want {
			t.Errorf("%s of a confined process: %v", name, unix.Errno(errno))
		}
		if all && name != "clone3" && unix.Errno(free.Errnos[name]) == unix.EPERM {
			t.Errorf("%s fails with EPERM in a process that is not confined, so this test shows nothing", name)
		}
	}
	if len(confined.Errnos) < 60 {
		t.Errorf("%d system calls were tried", len(confined.Errnos))
	}
	confined.check(t, []string{
		"socket alg", "socket vsock", "socket key", "setns mount", "setns any", "clone namespace",
	})
	free.check(t, nil)
}

// unrestricted reports whether the kernel would permit all the calls to this process, without EPERM for lack of
// privileges: it is in the initial user namespace, has the required capabilities, and no filter.
func unrestricted(t *testing.T) bool {
	t.Helper()
	users, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	may := slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"}) &&
		strings.Contains(string(status), "Seccomp:\t0\n")
	for _, value := range []cap.Value{
		cap.SYS_ADMIN, cap.SYS_BOOT, cap.SYS_CHROOT, cap.SYS_MODULE, cap.SYS_PACCT, cap.SYS_PTRACE, cap.SYS_RAWIO,
		cap.SYS_TIME, cap.SYS_TTY_CONFIG, cap.SYSLOG,
	} {
		has, err := cap.GetProc().GetFlag(cap.Effective, value)
		may = may && has && err == nil
	}
	return may
}

func TestBrokerCanMakeAllowedSystemCallsOnly(t *testing.T) {
	run(t, "broker").check(t, []string{
		"socket alg", "socket vsock", "socket key", "socket unix", "socket inet", "socket inet6", "socket netlink",
		"open", "setns mount", "setns any", "setns net", "clone namespace", "mmap executable", "kill itself",
		"tgkill parent", "execute",
	})
}

// check compares the calls that the filter denied.
func (f findings) check(t *testing.T, refused []string) {
	t.Helper()
	for name, failure := range f.Failed {
		if strings.Contains(failure, unix.EPERM.Error()) != slices.Contains(refused, name) {
			t.Errorf("%s: %s", name, failure)
		}
	}
	for _, name := range refused {
		if f.Failed[name] == "" {
			t.Errorf("%s is possible", name)
		}
	}
}

func TestAllThreadsAreConfined(t *testing.T) {
	confined := run(t, "dataplane")
	if len(confined.Threads) < 5 {
		t.Fatalf("%d threads", len(confined.Threads))
	}
	lines := []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000"}
	if may, err := cap.GetProc().GetFlag(cap.Permitted, cap.SETPCAP); may && err == nil {
		lines = append(lines, "CapBnd:\t0000000000000000")
	}
	for _, status := range confined.Threads {
		for _, line := range lines {
			if !strings.Contains(status, line+"\n") {
				t.Errorf("no %q in\n%s", line, status)
			}
		}
	}
}
