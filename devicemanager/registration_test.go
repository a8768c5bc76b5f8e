package devicemanager

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weftnet/weft/pod"
)

// within is the limit for the devices to return.
const within = 2 * time.Second

// TestDevicesReturnAfterKubeletDisruptions with and without inotify.
func TestDevicesReturnAfterKubeletDisruptions(t *testing.T) {
	for _, tt := range []struct {
		name    string
		happens func(*testing.T, *node) error
	}{
		{"kubelet restarts", func(_ *testing.T, n *node) error { return n.kubelet.Restart() }},
		{"kubelet is away for a while", func(t *testing.T, n *node) error {
			err := n.kubelet.Stop()
			soon(t, within, "a registration fails", func() bool { return n.Stats().Registrations["error"] > 0 })
			return errors.Join(err, n.kubelet.Start())
		}},
		{"its directory is recreated", func(t *testing.T, n *node) error {
			err := errors.Join(n.kubelet.Stop(), os.Rename(n.kubelet.PluginDir(), n.dir+"/gone"))
			soon(t, within, "the agent withdraws", func() bool { return !n.Stats().Registered })
			return errors.Join(err, n.kubelet.Start())
		}},
		{
			"its directory is wiped, then it restarts",
			func(_ *testing.T, n *node) error { return errors.Join(n.kubelet.Wipe(), n.kubelet.Restart()) },
		},
		{
			"the plugin's socket is removed",
			func(_ *testing.T, n *node) error { return os.Remove(n.kubelet.PluginDir() + "/" + endpoint) },
		},
		{"a foreign process replaces the plugin's socket", func(t *testing.T, n *node) error {
			other := n.dir + "/other"
			return errors.Join(os.WriteFile(other, nil, 0o600), os.Rename(other, n.kubelet.PluginDir()+"/"+endpoint))
		}},
	} {
		for _, unwatched := range []bool{false, true} {
			name := tt.name
			if unwatched {
				name += ", without a watch"
			}
			t.Run(name, func(t *testing.T) {
				n := bareNode(t, func(n *node) {
					n.config.Devices.Count = 3
					n.config.Kubelet.Poll = 0
				}) // the default
				n.registrar.unwatched = unwatched
				n.present(t)
				n.admit(t, podOf("a", 1))
				before := n.kubelet.Registrations()
				if err := tt.happens(t, n); err != nil {
					t.Fatal(err)
				}
				soon(t, within, "registered again, all devices there", func() bool {
					_, allocatable := n.kubelet.Capacity(pod.Resource)
					return n.kubelet.Registrations() > before && allocatable == 3 && n.Stats().Registered
				})
				n.admit(t, podOf("b", 1))
			})
		}
	}
}

// TestRegistersAgainAfterABrokenConnection without any other signal.
func TestRegistersAgainAfterABrokenConnection(t *testing.T) {
	n := newNode(t, func(n *node) { n.config.Devices.Count = 3 })
	before := n.kubelet.Registrations()
	if err := n.kubelet.Disconnect(pod.Resource); err != nil {
		t.Fatal(err)
	}
	soon(t, 2*streamGrace+within, "registered again", func() bool { return n.kubelet.Registrations() > before })
	n.await(t, 3)
}

// TestRefusedRegistrationIsRetriedWithBackoff and logged once.
func TestRefusedRegistrationIsRetriedWithBackoff(t *testing.T) {
	n := bareNode(t, func(n *node) { n.config.Devices.Count = 3 })
	n.kubelet.Refuse(errors.New("no plugins today"))
	n.run(t)
	eventually(t, "three tries", func() bool { return n.Stats().Registrations["error"] >= 3 })
	n.kubelet.Refuse(nil)
	soon(t, within, "it is registered, once", func() bool {
		s := n.Stats()
		return s.Registrations["ok"] == 1 && s.Registered
	})
	if lines := strings.Count(n.log.String(), "registration with kubelet failed"); lines != 1 {
		t.Errorf("%d lines:\n%s", lines, n.log)
	}
}

// TestAgentWaitsQuietlyWithoutKubelet and registers with one that starts later.
func TestAgentWaitsQuietlyWithoutKubelet(t *testing.T) {
	n := bareNode(t, func(n *node) {
		n.config.Devices.Count = 3
		n.config.Kubelet.Poll = time.Millisecond
	})
	if err := errors.Join(n.kubelet.Stop(), os.Rename(n.kubelet.PluginDir(), n.dir+"/gone")); err != nil {
		t.Fatal(err)
	}
	n.run(t)
	eventually(t, "the agent logs it", func() bool { return strings.Contains(n.log.String(), "no kubelet found") })
	if err := n.kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	n.await(t, 3)
	if lines := strings.Count(n.log.String(), "no kubelet found"); lines != 1 ||
		strings.Contains(n.log.String(), "level=WARN") {
		t.Errorf("%d lines:\n%s", lines, n.log)
	}
}

// TestHealthFollowsTheDataplane, and each list contains all devices, also after a restart.
func TestHealthFollowsTheDataplane(t *testing.T) {
	n := newNode(t, func(n *node) { n.config.Devices.Count = 3 })
	n.SetHealthy(false)
	n.await(t, 0)
	if capacity, _ := n.kubelet.Capacity(pod.Resource); capacity != 3 {
		t.Errorf("capacity %d", capacity)
	}
	n.SetHealthy(true)
	n.await(t, 3)
	n.kill(t)
	n.await(t, 0)
	n.present(t)
	if least := n.kubelet.LeastOffered(pod.Resource); least != 3 {
		t.Errorf("a list had %d devices", least)
	}
}

// TestStreamsEndWithTheirKubeletAndWithTheServer; TestMain checks for leaked goroutines.
func TestStreamsEndWithTheirKubeletAndWithTheServer(t *testing.T) {
	n := newNode(t)
	conn, err := grpc.NewClient("unix://"+n.kubelet.PluginDir()+"/"+endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	streams := n.registrar.plugin.streams
	for range 50 {
		stream, err := v1beta1.NewDevicePluginClient(conn).ListAndWatch(t.Context(), &v1beta1.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		if list, err := stream.Recv(); err != nil || len(list.GetDevices()) != n.count() {
			t.Fatalf("%d devices, %v", len(list.GetDevices()), err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	count := func() int { open, _ := streams.state(); return open }
	eventually(t, "only kubelet's stream is left", func() bool { return count() == 1 })
	n.stop()
	if count() != 0 {
		t.Errorf("%d streams after the end of the server", count())
	}
	if _, err := os.Lstat(n.kubelet.PluginDir() + "/" + endpoint); err == nil {
		t.Error("the socket exists after the end of the server")
	}
}

// TestPodsKeepDevicesDuringConcurrentRestarts of kubelet and agent.
func TestPodsKeepDevicesDuringConcurrentRestarts(t *testing.T) {
	n := newNode(t, func(n *node) { n.config.Devices.Count = 5 })
	n.admit(t, podOf("a", 2))
	had := n.Allocations()[0]
	for i := range 10 {
		restarted := make(chan error, 1)
		go func() { restarted <- n.kubelet.Restart() }()
		if i%2 == 0 {
			n.kill(t)
			n.present(t)
		}
		if err := <-restarted; err != nil {
			t.Fatal(err)
		}
	}
	soon(t, within, "kubelet has the devices", func() bool {
		_, allocatable := n.kubelet.Capacity(pod.Resource)
		return allocatable == 5
	})
	grants, err := n.Devices(t.Context(), idOf("a"))
	if err != nil || len(grants) != 1 || grants[0].Allocation.ID != had.ID ||
		grants[0].Allocation.Secret != had.Secret {
		t.Errorf("grants %v, %v", grants, err)
	}
}

// TestDevicePluginSocketChangesNoModeThroughLinks: third-party plugins can write to the directory of the socket.
func TestDevicePluginSocketChangesNoModeThroughLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs to be root: the attacker is another user")
	}
	directory, err := os.MkdirTemp("", "plugins") // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	victim := filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.Chmod(directory, 0o777), os.WriteFile(victim, nil, 0o600),
		os.Chmod(victim, 0o644)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(directory, "weft.sock")
	link := filepath.Join(directory, "link")
	done := make(chan struct{})
	ended := make(chan struct{})
	replaced := 0
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the goroutine, and its user with it
		if unix.Setfsuid(1234) != nil {
			return
		}
		for {
			select {
			case <-done:
				return
			default:
			}
			if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSocket {
				_ = os.Symlink(victim, link)
			} else if os.Rename(link, path) == nil {
				replaced++
			}
		}
	}()
	for range 1000 {
		if s, err := serve(path, &v1beta1.UnimplementedDevicePluginServer{}); err == nil {
			s.stop()
		}
		if info, err := os.Lstat(victim); err != nil || info.Mode() != 0o644 {
			t.Errorf("the file of root is %v now, %v: its mode was changed through a link", info.Mode(), err)
			break
		}
	}
	close(done)
	<-ended
	if replaced == 0 {
		t.Error("the attacker replaced no socket: the test proves nothing")
	}
}

// TestForeignFileAtTheSocketOfTheDevicePlugin: kubelet connects to the name of the socket, so the plugin takes the
// name. It follows no link and does not wait for a pipe. A directory with files is reported.
func TestForeignFileAtTheSocketOfTheDevicePlugin(t *testing.T) {
	for name, plant := range map[string]func(path, outside string) error{
		"link to a file":        func(path, outside string) error { return os.Symlink(outside+"/victim", path) },
		"link to a directory":   func(path, outside string) error { return os.Symlink(outside, path) },
		"link to nothing":       func(path, outside string) error { return os.Symlink(outside+"/missing", path) },
		"regular file":          func(path, _ string) error { return os.WriteFile(path, nil, 0o600) },
		"FIFO":                  func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
		"stale socket":          func(path, _ string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"empty directory":       func(path, _ string) error { return os.Mkdir(path, 0o700) },
		"directory with a file": func(path, _ string) error { return os.MkdirAll(path+"/file", 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), endpoint)
			outside := t.TempDir()
			if err := errors.Join(os.WriteFile(outside+"/victim", nil, 0o600), plant(path, outside)); err != nil {
				t.Fatal(err)
			}
			s, err := serve(path, &v1beta1.UnimplementedDevicePluginServer{})
			if name == "directory with a file" {
				if err == nil || !strings.Contains(err.Error(), path) || mode(path+"/file") == "" {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if mode(path) != "Srw-------" {
				t.Errorf("the socket is %s", mode(path))
			}
			s.stop()
			if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
				t.Errorf("outside: %v, %v", left, err)
			}
		})
	}
}

func TestOnlyRootMayConnectToTheDevicePlugin(t *testing.T) {
	was := unix.Umask(0)
	defer unix.Umask(was)
	path := filepath.Join(t.TempDir(), "s")
	s, err := serve(path, &v1beta1.UnimplementedDevicePluginServer{})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	s.stop()
}

// A kubelet that starts is tried often again, however long its predecessor was away.
func TestANewKubeletSocketResetsTheBackoff(t *testing.T) {
	dir := t.TempDir()
	r := newRegistrar(Config{Kubelet: Kubelet{PluginDir: dir}}.withDefaults(), bareNode(t).registrar.plugin)
	for range 20 { // of a kubelet that refused for long
		r.attempts.pause.NextBackOff()
	}
	if err := os.WriteFile(filepath.Join(dir, kubeletSocket), nil, 0o600); err != nil { // no process listens
		t.Fatal(err)
	}
	r.registerIfNeeded(t.Context())
	if wait := time.Until(r.attempts.notBefore); r.attempts.failures != 1 || wait > 2*minPause {
		t.Errorf("%d failures, the next attempt is after %s", r.attempts.failures, wait)
	}
}
