package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/weftnet/weft/pod"
)

// memifs is a device manager in memory.
type memifs struct {
	mu          sync.Mutex
	allocations []pod.Allocation
	refusal     error
	used        map[string]error // why a claim is not released, by UID
	claimed     func()           // called after each Claim, before it returns
}

// use makes the release of a claim fail; nil ends that.
func (m *memifs) use(uid string, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used = map[string]error{uid: why}
}

func (m *memifs) Claimable() (ids []string) {
	for n := range 200 {
		ids = append(ids, fmt.Sprintf("memif-%d", n+100))
	}
	return ids
}

func (m *memifs) Claim(
	_ context.Context, claim pod.ClaimID, devices []pod.ClaimedDevice,
) (made []pod.Allocation, err error) {
	defer func() {
		if m.claimed != nil {
			m.claimed()
		}
	}()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refusal != nil {
		return nil, m.refusal
	}
	for _, d := range devices {
		a := pod.Allocation{ID: claim.Name + d.Device, Devices: []string{d.Device}, Claim: &d}
		made = append(made, a)
		if !slices.ContainsFunc(m.allocations, func(had pod.Allocation) bool { return had.ID == a.ID }) {
			m.allocations = append(m.allocations, a)
		}
	}
	return made, nil
}

func (m *memifs) Unclaim(_ context.Context, claim pod.ClaimID, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.used[claim.UID]; err != nil {
		return err
	}
	m.allocations = slices.DeleteFunc(m.allocations, func(a pod.Allocation) bool { return a.Claim.UID == claim.UID })
	return m.refusal
}

func (m *memifs) Claims() (ids []pod.ClaimID) {
	for _, a := range m.Allocations() {
		if !slices.Contains(ids, a.Claim.ClaimID) {
			ids = append(ids, a.Claim.ClaimID)
		}
	}
	return ids
}

func (m *memifs) Allocations() []pod.Allocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.allocations)
}

// claimOf returns a claim that has devices for request m, with parameters.
func claimOf(name, parameters string, devices ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
	}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "a", UID: "uid-a"}}
	for _, d := range devices {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "m", Driver: pod.ClaimDriver, Pool: "n1", Device: d})
	}
	c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
		resourceapi.DeviceRequestAllocationResult{
			Request: "gpu",
			Driver:  "gpu.example.com",
			Pool:    "n1",
			Device:  "gpu-0",
		})
	if parameters != "" {
		c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
			Source: resourceapi.AllocationConfigSourceClaim,
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: pod.ClaimDriver,
				Parameters: runtime.RawExtension{
					Raw: []byte(`{"apiVersion":"contivpp.io/v1","kind":"MemifParameters",` + parameters + `}`),
				},
			}},
		}}
	}
	return c
}

// claimAnswers has what the API server answers to requests for claims, by verb. Without an answer it looks into its
// store. A test sets answers while the driver runs, which the reactors of a fake client do not permit.
type claimAnswers struct {
	mu     sync.Mutex
	byVerb map[string]k8stesting.ReactionFunc
}

func (a *claimAnswers) set(verb string, answer k8stesting.ReactionFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byVerb[verb] = answer
}

func (a *claimAnswers) react(action k8stesting.Action) (bool, runtime.Object, error) {
	a.mu.Lock()
	answer := a.byVerb[action.GetVerb()]
	a.mu.Unlock()
	if answer == nil {
		return false, nil, nil
	}
	return answer(action)
}

// node is a driver with kubelet's directories, and an API server.
type node struct {
	*Driver
	memifs  *memifs
	api     *fake.Clientset
	answers *claimAnswers
	dir     string
}

func newNode(t *testing.T, objects ...runtime.Object) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft") // t.TempDir is too long for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "plugins_registry"), 0o700); err != nil {
		t.Fatal(err)
	}
	n := &node{memifs: &memifs{}, answers: &claimAnswers{byVerb: map[string]k8stesting.ReactionFunc{}}, dir: dir}
	n.api = fake.NewClientset(append(objects, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1"},
	})...)
	n.api.PrependReactor("*", resourceClaims.Resource, n.answers.react)
	generated := 0
	n.api.PrependReactor("create", "resourceslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
		slice := action.(k8stesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
		if slice.Name == "" { // the fake server generates no names
			generated++
			slice.Name = fmt.Sprintf("%s%d", slice.GenerateName, generated)
		}
		return false, nil, nil
	})
	n.Driver = New(Config{
		Node:       "n1",
		Client:     n.api,
		Devices:    n.memifs,
		Limits:     Limits{RingSize: 4096, BufferSize: 16384, Queues: 4},
		KubeletDir: dir,
		CDIDir:     filepath.Join(dir, "cdi"),
		CDIDevice:  func(a *pod.Allocation) string { return "contivpp.io/memif=" + a.ID },
		Mount:      func(a *pod.Allocation) string { return "/run/memif-claims/" + a.Claim.Parameters.Interface },
		Collect:    20 * time.Millisecond,
		Log:        slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	t.Cleanup(n.statuses.keys.ShutDown) // for tests without run
	return n
}

// run runs the driver until the test ends.
func (n *node) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// kubelet finds the driver like kubelet: by the socket of its registration.
func (n *node) kubelet(t *testing.T) *grpc.ClientConn {
	t.Helper()
	socket := filepath.Join(n.dir, "plugins_registry", pod.ClaimDriver+"-reg.sock")
	eventually(t, "registration socket", func() bool { _, err := os.Lstat(socket); return err == nil })
	registry := registration.NewRegistrationClient(dial(t, socket))
	info, err := registry.GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if info.GetType() != registration.DRAPlugin || info.GetName() != "memif.contivpp.io" ||
		!slices.Contains(info.GetSupportedVersions(), drapb.DRAPluginService) {
		t.Fatalf("registration %v", info)
	}
	if _, err := registry.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{
		PluginRegistered: true,
	}); err != nil {
		t.Fatal(err)
	}
	return dial(t, info.GetEndpoint())
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// Kubelet prepares a claim, twice, and unprepares it, over the sockets of the driver.
func TestKubeletPreparesAndReleasesClaim(t *testing.T) {
	n := newNode(t, claimOf("c", `"interface":"fast","network":"blue"`, "memif-100", "memif-101"))
	n.run(t)
	kubelet := drapb.NewDRAPluginClient(n.kubelet(t))
	claims := []*drapb.Claim{{Namespace: "shop", Name: "c", Uid: "uid-c"}}
	resp, err := kubelet.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: claims})
	if err != nil || resp.GetClaims()["uid-c"].GetError() != "" {
		t.Fatalf("%v, %v", resp, err)
	}
	devices := resp.GetClaims()["uid-c"].GetDevices()
	if len(devices) != 2 {
		t.Fatalf("devices %v", devices)
	}
	for i, d := range devices {
		id := fmt.Sprintf("memif-10%d", i)
		cdi := []string{"contivpp.io/memif=c" + id}
		if i == 0 { // the file of the request
			cdi = append(cdi, "memif.contivpp.io/metadata=uid-c_m")
		}
		if d.GetDeviceName() != id || d.GetPoolName() != "n1" || !slices.Equal(d.GetRequestNames(), []string{"m"}) ||
			!slices.Equal(d.GetCdiDeviceIds(), cdi) {
			t.Errorf("device %v", d)
		}
		if got := n.memifs.Allocations()[i].Claim; got.Parameters.Interface != fmt.Sprintf("fast%d", i+1) ||
			got.Parameters.Network != "blue" || !slices.Equal(got.Pods, []string{"uid-a"}) {
			t.Errorf("claimed %+v", got)
		}
	}
	released, err := kubelet.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	if err != nil || released.GetClaims()["uid-c"].GetError() != "" || len(n.memifs.Allocations()) > 0 {
		t.Errorf("%v, %v: left %v", released, err, n.memifs.Allocations())
	}
}

// socketsOf returns the files that a driver left in kubelet's directories.
func (n *node) socketsOf(t *testing.T) []string {
	t.Helper()
	registered, err := filepath.Glob(filepath.Join(n.dir, "plugins_registry", "*"))
	if err != nil {
		t.Fatal(err)
	}
	served, err := filepath.Glob(filepath.Join(n.dir, "plugins", pod.ClaimDriver, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return append(registered, served...)
}

// Kubelet may make its directories after the agent has started. A start that failed must not hold the sockets of the
// next one.
func TestDriverServesAfterAFailedStart(t *testing.T) {
	n := newNode(t)
	registry := filepath.Join(n.dir, "plugins_registry")
	if err := os.Remove(registry); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := n.start(t.Context()); err == nil || !strings.Contains(err.Error(), registry) {
			t.Fatalf("without a directory: %v", err)
		}
		if left := n.socketsOf(t); len(left) > 0 {
			t.Errorf("a failed start left %v", left)
		}
	}
	if err := os.Mkdir(registry, 0o700); err != nil {
		t.Fatal(err)
	}
	n.run(t)
	n.kubelet(t)
}

// The driver of a node without a name publishes nothing.
func TestDriverThatCannotPublishEndsItsSockets(t *testing.T) {
	n := newNode(t)
	n.config.Node = ""
	for range 2 {
		if _, err := n.start(t.Context()); err == nil || !strings.Contains(err.Error(), "publish devices") {
			t.Fatalf("start: %v", err)
		}
		if left := n.socketsOf(t); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	}
}

// The directory of the driver is in one that kubelet and other drivers share.
func TestDriverUsesNoForeignDirectory(t *testing.T) {
	outside := t.TempDir()
	for name, plant := range map[string]func(own string) error{
		"link to a directory": func(own string) error { return os.Symlink(outside, own) },
		"link to nothing": func(own string) error {
			return os.Symlink(filepath.Join(outside, "missing"), own)
		},
		"FIFO":         func(own string) error { return unix.Mkfifo(own, 0o600) },
		"regular file": func(own string) error { return os.WriteFile(own, nil, 0o600) },
		"directory of another user": func(own string) error {
			return errors.Join(os.Mkdir(own, 0o700), os.Chown(own, 1234, 1234))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			own := filepath.Join(n.dir, "plugins", pod.ClaimDriver)
			if err := os.Mkdir(filepath.Dir(own), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := plant(own); errors.Is(err, fs.ErrPermission) {
				t.Skip("needs to be root: ", err)
			} else if err != nil {
				t.Fatal(err)
			}
			helper, err := n.start(t.Context())
			if err == nil {
				helper.Stop()
			}
			if err == nil || !strings.Contains(err.Error(), own+" is not a directory owned by root") {
				t.Errorf("start: %v", err)
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("made outside: %v, %v", left, err)
			}
		})
	}
}

// A file that is not a socket is not replaced, and a link at the name of a socket is not followed.
func TestDriverReplacesNoForeignFile(t *testing.T) {
	for name, plant := range map[string]func(socket, outside string) error{
		"link to a file":  func(socket, outside string) error { return os.Symlink(outside+"/victim", socket) },
		"link to nothing": func(socket, outside string) error { return os.Symlink(outside+"/missing", socket) },
		"regular file":    func(socket, _ string) error { return os.WriteFile(socket, nil, 0o600) },
		"FIFO":            func(socket, _ string) error { return unix.Mkfifo(socket, 0o600) },
		"directory":       func(socket, _ string) error { return os.Mkdir(socket, 0o700) },
	} {
		for _, at := range []string{
			"plugins_registry/" + pod.ClaimDriver + "-reg.sock", "plugins/" + pod.ClaimDriver + "/dra.sock",
		} {
			t.Run(name+" at "+at, func(t *testing.T) {
				n := newNode(t)
				outside := t.TempDir()
				socket := filepath.Join(n.dir, at)
				err := errors.Join(os.MkdirAll(filepath.Dir(socket), 0o700),
					os.WriteFile(outside+"/victim", nil, 0o600), plant(socket, outside))
				if err != nil {
					t.Fatal(err)
				}
				before, err := os.Lstat(socket)
				if err != nil {
					t.Fatal(err)
				}
				helper, err := n.start(t.Context())
				if err == nil {
					helper.Stop()
				}
				if err == nil || !strings.Contains(err.Error(), "not a socket") ||
					!strings.Contains(err.Error(), socket) {
					t.Errorf("start: %v", err)
				}
				if after, err := os.Lstat(socket); err != nil || !os.SameFile(before, after) {
					t.Errorf("the file was replaced: %v", err)
				}
				if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
					t.Errorf("made outside: %v, %v", left, err)
				}
			})
		}
	}
}

// An invalid claim, or one that the node refuses, fails with its reason; another one of the same request succeeds.
func TestClaimThatCannotBePreparedFailsAlone(t *testing.T) {
	n := newNode(t, claimOf("good", "", "memif-100"), claimOf("bad", `"network":"Blue"`, "memif-101"))
	n.run(t)
	kubelet := drapb.NewDRAPluginClient(n.kubelet(t))
	resp, err := kubelet.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{
		{Namespace: "shop", Name: "good", Uid: "uid-good"}, {Namespace: "shop", Name: "bad", Uid: "uid-bad"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if why := resp.GetClaims()["uid-bad"].GetError(); !strings.Contains(why,
		"claim shop/bad: request m: network \"Blue\": the network must be default, stub or the name of a custom network") {
		t.Errorf("bad: %q", why)
	}
	if why := resp.GetClaims()["uid-good"].GetError(); why != "" || len(n.memifs.Allocations()) != 1 {
		t.Errorf("good: %q", why)
	}
	n.memifs.mu.Lock()
	n.memifs.refusal = errors.New("device memif-100: it is still claim shop/other's")
	n.memifs.mu.Unlock()
	resp, err = kubelet.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: "shop", Name: "good", Uid: "uid-good"}},
	})
	if err != nil || !strings.Contains(resp.GetClaims()["uid-good"].GetError(), "still claim shop/other's") {
		t.Errorf("%v, %v", resp, err)
	}
}

// The scheduler sees all devices, in slices of at most 128.
func TestDevicesAreOfferedWithTheirAttributes(t *testing.T) {
	n := newNode(t)
	n.run(t)
	var slicesOf *resourceapi.ResourceSliceList
	eventually(t, "two slices", func() bool {
		var err error
		slicesOf, err = n.api.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(slicesOf.Items) == 2
	})
	seen := map[string]bool{}
	for _, s := range slicesOf.Items {
		if s.Spec.Driver != "memif.contivpp.io" || s.Spec.NodeName == nil || *s.Spec.NodeName != "n1" ||
			s.Spec.Pool.Name != "n1" || s.Spec.Pool.ResourceSliceCount != 2 {
			t.Errorf("slice %+v", s.Spec)
		}
		for _, d := range s.Spec.Devices {
			seen[d.Name] = true
			if *d.Attributes["role"].StringValue != "client" || *d.Attributes["node"].StringValue != "n1" ||
				*d.Attributes["maxQueues"].IntValue != 4 || *d.Attributes["maxRingSize"].IntValue != 4096 {
				t.Errorf("attributes of %s: %+v", d.Name, d.Attributes)
			}
			resource := d.Attributes["k8s.cni.cncf.io/resourceName"]
			id := d.Attributes["k8s.cni.cncf.io/deviceID"]
			if resource.StringValue == nil || *resource.StringValue != "contivpp.io/memif" || id.StringValue == nil ||
				*id.StringValue != d.Name {
				t.Errorf("attributes of %s for Multus: %+v, %+v", d.Name, resource, id)
			}
		}
	}
	if len(seen) != 200 {
		t.Errorf("%d devices", len(seen))
	}
}

// A device without a NUMA node must not have the attribute: a constraint would treat it as equal to that of other such
// devices.
func TestDevicesHaveTheNUMANodeOfTheDataplane(t *testing.T) {
	n := newNode(t)
	attributes := n.offer.device("memif-100").Attributes
	for _, name := range []resourceapi.QualifiedName{"resource.kubernetes.io/numaNode", "dra.net/numaNode"} {
		if a, is := attributes[name]; is {
			t.Errorf("without a NUMA node: %s %+v", name, a)
		}
	}
	node := 1
	n.config.NUMANode = &node
	attributes = n.offer.device("memif-100").Attributes
	for _, name := range []resourceapi.QualifiedName{"resource.kubernetes.io/numaNode", "dra.net/numaNode"} {
		if a := attributes[name]; a.IntValue == nil || *a.IntValue != 1 {
			t.Errorf("%s %+v", name, a)
		}
	}
}

// Claims that vanished while kubelet had no state are released; others stay.
func TestClaimsThatVanishedAreCollected(t *testing.T) {
	idle := claimOf("idle", "", "memif-102")
	again := claimOf("again", "", "memif-103")
	idle.Status.ReservedFor = nil
	n := newNode(t, claimOf("used", "", "memif-100"), idle, again)
	for _, name := range []string{"used", "gone", "idle", "again"} {
		id := pod.ClaimID{Namespace: "shop", Name: name, UID: "uid-" + name}
		if name == "again" {
			id.UID = "uid of its predecessor"
		}
		if _, err := n.memifs.Claim(t.Context(), id, []pod.ClaimedDevice{
			{ClaimID: id, Device: "memif-" + name},
		}); err != nil {
			t.Fatal(err)
		}
	}
	n.run(t)
	eventually(t, "one claim left", func() bool { return len(n.memifs.Claims()) == 1 })
	if left := n.memifs.Claims(); left[0].Name != "used" {
		t.Errorf("left %v", left)
	}
}

// After the ADD the claim's status has the interface, its addresses and its MAC.
func TestStatusOfClaimHasTheInterface(t *testing.T) {
	n := newNode(t, claimOf("c", `"interface":"fast"`, "memif-100"))
	n.run(t)
	id := pod.ClaimID{Namespace: "shop", Name: "c", UID: "uid-c"}
	if _, err := n.memifs.Claim(t.Context(), id, []pod.ClaimedDevice{
		{ClaimID: id, Device: "memif-100", Request: "m"},
	}); err != nil {
		t.Fatal(err)
	}
	n.Observe(attachmentOf("cmemif-100"))
	var status resourceapi.AllocatedDeviceStatus
	eventually(t, "status", func() bool {
		claim, err := n.api.ResourceV1().ResourceClaims("shop").Get(t.Context(), "c", metav1.GetOptions{})
		if err != nil || len(claim.Status.Devices) != 1 {
			return false
		}
		status = claim.Status.Devices[0]
		return true
	})
	if status.Driver != pod.ClaimDriver || status.Pool != "n1" || status.Device != "memif-100" ||
		status.NetworkData == nil ||
		status.NetworkData.InterfaceName != "fast" || status.NetworkData.HardwareAddress != "02:fe:00:00:00:01" ||
		!slices.Equal(status.NetworkData.IPs, []string{"10.5.0.7/24"}) {
		t.Errorf("status %+v, network %+v", status, status.NetworkData)
	}
	if len(status.Conditions) != 1 || status.Conditions[0].Type != "Ready" ||
		status.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("conditions %+v", status.Conditions)
	}
}

// Kubelet learns the health of the devices, and each change.
func TestKubeletLearnsHealth(t *testing.T) {
	n := newNode(t)
	n.run(t)
	stream, err := drahealth.NewDRAResourceHealthClient(n.kubelet(t)).NodeWatchResources(t.Context(),
		&drahealth.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, healthy := range []bool{false, true, false} {
		n.SetHealthy(healthy)
		want := map[bool]drahealth.HealthStatus{
			true:  drahealth.HealthStatus_HEALTHY,
			false: drahealth.HealthStatus_UNHEALTHY,
		}[healthy]
		for got := drahealth.HealthStatus_UNKNOWN; got != want; {
			report, err := stream.Recv()
			if err != nil || len(report.GetDevices()) != 200 {
				t.Fatalf("%v, %v", report, err)
			}
			got = report.GetDevices()[0].GetHealth()
		}
	}
}

func TestClaimPrecedesItsClass(t *testing.T) {
	c := claimOf("c", `"network":"blue"`, "memif-100")
	class := *claimOf("class", `"network":"red","interface":"fast"`).Status.Allocation
	class.Devices.Config[0].Source = resourceapi.AllocationConfigSourceClass
	other := *claimOf("other", `"network":"green"`).Status.Allocation
	other.Devices.Config[0].Requests = []string{"gpu"}
	foreign := *claimOf("foreign", `"network":"red"`).Status.Allocation // of another driver, for all requests
	foreign.Devices.Config[0].Opaque.Driver = "gpu.example.com"
	c.Status.Allocation.Devices.Config = slices.Concat(c.Status.Allocation.Devices.Config, class.Devices.Config,
		other.Devices.Config, foreign.Devices.Config)
	devices, err := requestedDevices(c, "n1")
	if err != nil || len(devices) != 1 {
		t.Fatalf("%v, %v", devices, err)
	}
	if p := devices[0].Parameters; p.Network != "blue" || p.Interface != "fast" {
		t.Errorf("parameters %+v", p)
	}
}
