package devicemanager

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weftnet/weft/pod"
)

// within is how soon the devices are back, whatever happened to kubelet.
const within = 2 * time.Second

// TestWhateverHappensToKubeletTheDevicesAreBackSoon both with the kernel's watch of the directory and without.
// rows: MEM-04
func TestWhateverHappensToKubeletTheDevicesAreBackSoon(t *testing.T) {
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
		{"its directory is made anew", func(t *testing.T, n *node) error {
			err := errors.Join(n.kubelet.Stop(), os.Rename(n.kubelet.PluginDir(), n.dir+"/gone"))
			soon(t, within, "the agent withdraws", func() bool { return !n.Stats().Registered })
			return errors.Join(err, n.kubelet.Start())
		}},
		{"its directory is wiped, then it restarts", func(_ *testing.T, n *node) error { return errors.Join(n.kubelet.Wipe(), n.kubelet.Restart()) }},
		{"our socket is removed", func(_ *testing.T, n *node) error { return os.Remove(n.kubelet.PluginDir() + "/" + endpoint) }},
		{"somebody else takes our socket's place", func(t *testing.T, n *node) error {
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
				n := bareNode(t, func(n *node) { n.config.Count, n.config.Poll = 3, 0 }) // the default
				n.presence.unwatched = unwatched
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

// TestAKubeletThatLostUsWithoutASignIsToldAgain: a broken connection is all there is to see.
func TestAKubeletThatLostUsWithoutASignIsToldAgain(t *testing.T) {
	n := newNode(t, func(n *node) { n.config.Count = 3 })
	before := n.kubelet.Registrations()
	if err := n.kubelet.Disconnect(pod.Resource); err != nil {
		t.Fatal(err)
	}
	soon(t, 2*streamGrace+within, "registered again", func() bool { return n.kubelet.Registrations() > before })
	n.await(t, 3)
}

// TestARefusedPluginTriesAgain with pauses, and says so once.
func TestARefusedPluginTriesAgain(t *testing.T) {
	n := bareNode(t, func(n *node) { n.config.Count = 3 })
	n.kubelet.Refuse(errors.New("no plugins today"))
	n.run(t)
	eventually(t, "three tries", func() bool { return n.Stats().Registrations["error"] >= 3 })
	n.kubelet.Refuse(nil)
	soon(t, within, "it is registered, once", func() bool {
		s := n.Stats()
		return s.Registrations["ok"] == 1 && s.Registered
	})
	if lines := strings.Count(n.log.String(), "not registered with kubelet"); lines != 1 {
		t.Errorf("%d lines:\n%s", lines, n.log)
	}
}

// TestWhereThereIsNoKubeletTheAgentWaitsQuietly and serves one that comes later.
func TestWhereThereIsNoKubeletTheAgentWaitsQuietly(t *testing.T) {
	n := bareNode(t, func(n *node) { n.config.Count, n.config.Poll = 3, time.Millisecond })
	if err := errors.Join(n.kubelet.Stop(), os.Rename(n.kubelet.PluginDir(), n.dir+"/gone")); err != nil {
		t.Fatal(err)
	}
	n.run(t)
	eventually(t, "it says so", func() bool { return strings.Contains(n.log.String(), "no kubelet here") })
	if err := n.kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	n.await(t, 3)
	if lines := strings.Count(n.log.String(), "no kubelet here"); lines != 1 || strings.Contains(n.log.String(), "level=WARN") {
		t.Errorf("%d lines:\n%s", lines, n.log)
	}
}

// TestHealthFollowsTheDataplane and no list is ever without a device, at an agent's restart neither.
func TestHealthFollowsTheDataplane(t *testing.T) {
	n := newNode(t, func(n *node) { n.config.Count = 3 })
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

// TestStreamsEndWithTheirKubeletAndWithTheServer: no goroutine is left, as TestMain sees.
func TestStreamsEndWithTheirKubeletAndWithTheServer(t *testing.T) {
	n := newNode(t)
	conn, err := grpc.NewClient("unix://"+n.kubelet.PluginDir()+"/"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	streams := n.presence.plugin.streams
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
		t.Errorf("%d streams outlive the server", count())
	}
	if _, err := os.Lstat(n.kubelet.PluginDir() + "/" + endpoint); err == nil {
		t.Error("the socket outlives the server")
	}
}

// TestARestartStorm restarts kubelet and agent, often and at the same time: what pods have stays theirs.
func TestARestartStorm(t *testing.T) {
	n := newNode(t, func(n *node) { n.config.Count = 5 })
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
	soon(t, within, "the devices are there", func() bool {
		_, allocatable := n.kubelet.Capacity(pod.Resource)
		return allocatable == 5
	})
	grants, err := n.Devices(t.Context(), idOf("a"))
	if err != nil || len(grants) != 1 || grants[0].Allocation.ID != had.ID || grants[0].Allocation.Secret != had.Secret {
		t.Errorf("grants %v, %v", grants, err)
	}
}
