package vppconf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/internal/netnstest"
)

// installation is the VPP that WEFT_VPP names.
type installation struct{ prefix, plugins string }

func requireVPP(t *testing.T) installation {
	t.Helper()
	netnstest.Require(t)
	prefix := os.Getenv("WEFT_VPP")
	if prefix == "" {
		t.Skip("needs WEFT_VPP, the prefix of a VPP installation")
	}
	plugins, err := filepath.Glob(filepath.Join(prefix, "lib/*/vpp_plugins"))
	if err != nil || len(plugins) != 1 {
		t.Fatalf("plugins of WEFT_VPP=%s: %v (%v)", prefix, plugins, err)
	}
	return installation{prefix, plugins[0]}
}

// command is a program of the installation, with its libraries.
func (i installation) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(i.prefix, "bin", name), args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(i.plugins))
	return cmd
}

// runtimeDir creates a directory with a unique name that is short enough for sockets.
func runtimeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft-conf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join("/dev/shm", filepath.Base(dir)+"-*"))
		if err != nil {
			t.Error(err)
		}
		for _, path := range append(left, dir) {
			if err := os.RemoveAll(path); err != nil {
				t.Error(err)
			}
		}
	})
	return dir
}

// running is a VPP that runs with the configuration of vpp-config.
type running struct {
	installation
	dir string
	pid int
}

// start runs VPP until the end of the test. VPP must end by SIGTERM without errors in its output.
func start(t *testing.T, i installation, args ...string) running {
	t.Helper()
	dir := runtimeDir(t)
	o := options(t, append(args, "--runtime-dir="+dir, "--output="+dir+"/startup.conf", "--plugin-path="+i.plugins)...)
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := Run(o, io.Discard); err != nil {
		t.Fatal(err)
	}
	cmd := i.command(context.Background(), "vpp", "-c", o.Output)
	var said bytes.Buffer
	cmd.Stdout = &said
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceValue(cmd.Wait)
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error("VPP ended by itself: ", err)
		}
		if err := ended(); err != nil {
			t.Error("VPP was told to end: ", err)
		}
		for _, complaint := range []string{"unknown input", "fail", "error", "falling back"} {
			if strings.Contains(said.String(), complaint) {
				t.Errorf("VPP said:\n%s", said.String())
				return
			}
		}
	})
	connect(t, filepath.Join(dir, "api.sock"))
	return running{i, dir, cmd.Process.Pid}
}

// connect connects the agent's client to VPP.
func connect(t *testing.T, socket string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client := vpp.New(socket, vpp.Options{Events: vpp.Events{
		Connected:    func(string) { cancel() },
		NotConnected: func(err error) { t.Log("the agent's client: ", err) },
	}})
	if err := client.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal("the agent's client: ", err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

// cli runs a command of VPP.
func (r running) cli(t *testing.T, words ...string) string {
	t.Helper()
	out, err := r.command(t.Context(), "vppctl",
		append([]string{"-s", r.dir + "/cli.sock"}, words...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("vppctl %v: %v\n%s", words, err, out)
	}
	return string(out)
}

func TestVPPRunsWithThePrintedConfiguration(t *testing.T) {
	r := start(t, requireVPP(t), "--hugepages=none", "--buffers=8192", "--workers=0")
	t.Log(strings.TrimSpace(r.cli(t, "show", "version")))
	want := []string{"acl", "af_packet", "memif", "ping", "tracedump", "vxlan"}
	if _, err := os.Stat(r.plugins + "/tap_plugin.so"); err == nil {
		want = []string{"acl", "af_packet", "memif", "ping", "tap", "tracedump", "vxlan"}
	}
	var loaded []string
	for _, match := range regexp.MustCompile(`(\S+)_plugin\.so`).FindAllStringSubmatch(r.cli(t, "show", "plugins"),
		-1) {
		loaded = append(loaded, match[1])
	}
	if slices.Sort(loaded); !slices.Equal(loaded, want) {
		t.Errorf("plugins %v, want %v", loaded, want)
	}
	if n := r.buffers(t); n < 8192 || n > 8250 {
		t.Errorf("%d buffers, 8192 were asked for", n)
	}
	if trace := r.cli(t, "api", "trace", "status"); !strings.Contains(trace, "enabled") {
		t.Errorf("the trace of the API:\n%s", trace)
	}
	if threads := strings.Count(r.cli(t, "show", "threads"), "vpp_"); threads != 1 {
		t.Errorf("%d threads", threads)
	}
	r.isClosed(t)
}

// buffers returns the number of buffers of NUMA node 0.
func (r running) buffers(t *testing.T) int {
	t.Helper()
	shown := r.cli(t, "show", "buffers")
	found := regexp.MustCompile(`default-numa-0 +\d+ +\d+ +\d+ +2048 +(\d+) `).FindStringSubmatch(shown)
	if found == nil {
		t.Fatalf("no buffers of NUMA node 0:\n%s", shown)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// isClosed checks that only root can connect to VPP's sockets.
func (r running) isClosed(t *testing.T) {
	t.Helper()
	if info, err := os.Stat(r.dir); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("runtime directory: %v (%v)", info.Mode(), err)
	}
	for _, name := range []string{"api.sock", "cli.sock", "stats.sock"} {
		info, err := os.Stat(filepath.Join(r.dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		group := info.Sys().(*syscall.Stat_t).Gid
		if info.Mode() != fs.ModeSocket|0o775 || int(owner) != os.Getuid() || int(group) != os.Getgid() {
			t.Errorf("%s: %v of %d:%d", name, info.Mode(), owner, group)
		}
	}
}

func TestVPPRunsWithWorkersOnTheirOwnProcessors(t *testing.T) {
	allowed, err := AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(allowed) < 2 {
		t.Skip("needs two processors")
	}
	r := start(t, requireVPP(t), "--hugepages=none", "--buffers=4096", "--workers=1",
		fmt.Sprint("--main-core=", allowed[0]))
	shown := r.cli(t, "show", "threads")
	for name, core := range map[string]int{"vpp_main": allowed[0], "vpp_wk_0": allowed[1]} {
		if !regexp.MustCompile(name + `.* ` + strconv.Itoa(core) + ` +\d+ +\d+`).MatchString(shown) {
			t.Errorf("%s is not on processor %d:\n%s", name, core, shown)
		}
	}
}

// TestVPPRunsInAContainerWithFewerProcessors gives VPP the last processor only, as a container's cpuset would.
func TestVPPRunsInAContainerWithFewerProcessors(t *testing.T) {
	i := requireVPP(t)
	var all, last unix.CPUSet
	runtime.LockOSThread() // what this thread starts inherits its processors
	defer runtime.UnlockOSThread()
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	allowed, err := AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(allowed) < 2 {
		t.Skip("needs two processors")
	}
	core := allowed[len(allowed)-1]
	last.Set(core)
	if err := unix.SchedSetaffinity(0, &last); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.SchedSetaffinity(0, &all); err != nil {
			t.Error(err)
		}
	}()
	r := start(t, i, "--hugepages=none", "--buffers=4096")
	if text, err := os.ReadFile(r.dir + "/startup.conf"); err != nil ||
		!regexp.MustCompile(`(?m)^  relative .*\n  main-core 0 `).Match(text) {
		t.Errorf("processors do not count within those that are allowed (%v):\n%s", err, text)
	}
	if shown := r.cli(t, "show", "threads"); !regexp.MustCompile(`vpp_main.* ` + strconv.Itoa(core) +
		` +\d+ +\d+`).MatchString(shown) {
		t.Errorf("the main thread is not on processor %d:\n%s", core, shown)
	}
}

// TestVPPRunsOnHugepages compares the file with the hugepages that the kernel allocated.
func TestVPPRunsOnHugepages(t *testing.T) {
	i := requireVPP(t)
	const pool = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages"
	before, err := readNumber(os.DirFS("/"), pool[1:])
	if err != nil || before < 12 {
		t.Skipf("needs 12 free hugepages of 2 MB on NUMA node 0, there are %d (%v)", before, err)
	}
	r := start(t, i, "--buffers=8192", "--workers=0")
	text, err := os.ReadFile(r.dir + "/startup.conf")
	if err != nil || !strings.Contains(string(text), "page-size 2M") {
		t.Fatalf("hugepages are not used (%v):\n%s", err, text)
	}
	want := 10 // of buffers
	if bytes.Contains(text, []byte("main-heap-page-size 2M")) {
		want += heapFor(options(t)) / (2 << 20)
	}
	after, err := readNumber(os.DirFS("/"), pool[1:])
	if err != nil || before-after != want {
		t.Errorf("%d hugepages were free, then %d, %d were to be used (%v)", before, after, want, err)
	}
	t.Logf("%d hugepages of 2 MB were free before VPP started, %d after", before, after)
	if n := r.buffers(t); n < 8192 {
		t.Errorf("%d buffers, 8192 were asked for", n)
	}
}

// TestVPPFailsAsTheReasonsSay checks reasons in the file against VPP.
func TestVPPFailsAsTheReasonsSay(t *testing.T) {
	i := requireVPP(t)
	for _, tt := range []struct{ name, unix, rest, want string }{
		{"a pidfile outside of runtime-dir", "pidfile /tmp/elsewhere/vpp.pid", "", "is not in runtime directory"},
		{"a trace that is off", "", "api-trace { off }", "unknown input ` off'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := runtimeDir(t)
			file := filepath.Join(dir, "startup.conf")
			text := fmt.Sprintf(
				"unix { nodaemon nosyslog runtime-dir %s %s } api-segment { prefix %s } buffers { page-size 4k } %s\n",
				dir, tt.unix, filepath.Base(dir), tt.rest)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			out, _ := i.command(ctx, "vpp", "-c", file).CombinedOutput() // its exit code is 0 or 1, as the case may be
			if ctx.Err() != nil || !bytes.Contains(out, []byte(tt.want)) {
				t.Errorf("VPP did not end by itself with %q (%v):\n%s", tt.want, ctx.Err(), out)
			}
		})
	}
}
