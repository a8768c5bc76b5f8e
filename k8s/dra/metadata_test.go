package dra

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"
	metadataapi "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/weftnet/weft/pod"
)

// mounted reads the file that the runtime mounts into a container, by the CDI file of a request, as Kubernetes' library
// for consumers does.
func (n *node) mounted(t *testing.T, uid, request string) (target string, found metadataapi.DeviceMetadata) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.dir, "cdi", pod.ClaimDriver+"_metadata_"+uid+"_"+request+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(raw, &spec); err != nil {
		t.Fatal(err)
	}
	mount := spec.Devices[0].ContainerEdits.Mounts[0]
	content, err := os.ReadFile(mount.HostPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(bytes.NewReader(content)), &found); err != nil {
		t.Fatal(err)
	}
	return mount.ContainerPath, found
}

// described returns attributes and interface of a device in words.
func described(d metadataapi.Device) string {
	text := fmt.Sprintf("%s/%s/%s", d.Driver, d.Pool, d.Name)
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		switch a := d.Attributes[name]; {
		case a.StringValue != nil:
			text += fmt.Sprintf(" %s=%s", name, *a.StringValue)
		case a.IntValue != nil:
			text += fmt.Sprintf(" %s=%d", name, *a.IntValue)
		default:
			text += fmt.Sprintf(" %s=%+v", name, a)
		}
	}
	if d.NetworkData != nil {
		text += fmt.Sprint(" ", d.NetworkData.InterfaceName, " ", d.NetworkData.HardwareAddress, " ", d.NetworkData.IPs)
	}
	return text
}

// metadataFilesLeft returns the files of the library.
func (n *node) metadataFilesLeft(t *testing.T) (left []string) {
	t.Helper()
	for _, root := range []string{
		filepath.Join(n.dir, "cdi"), filepath.Join(n.dir, "plugins", pod.ClaimDriver, "dra-device-metadata"),
	} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && path != root {
				left = append(left, path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return left
}

// served waits until the driver writes metadata at once.
func (n *node) served(t *testing.T) {
	t.Helper()
	eventually(t, "kubelet is served", func() bool {
		n.metadata.mu.Lock()
		defer n.metadata.mu.Unlock()
		return n.metadata.helper != nil
	})
}

func prepareOf(claim string) *drapb.NodePrepareResourcesRequest {
	return &drapb.NodePrepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: "shop", Name: claim, Uid: "uid-" + claim}},
	}
}

// A container finds socket and attributes of its devices from the start, and their interfaces after the ADD, also after
// a repeated preparation and a restart of the agent. The secret is not in the file.
func TestContainersHaveTheMetadataOfTheirDevices(t *testing.T) {
	n := newNode(t, claimOf("c", `"interface":"fast"`, "memif-100", "memif-101"))
	n.run(t)
	n.served(t)
	kubelet := drapb.NewDRAPluginClient(n.kubelet(t))
	prepare := func() {
		t.Helper()
		if reply, err := kubelet.NodePrepareResources(t.Context(), prepareOf("c")); err != nil ||
			reply.GetClaims()["uid-c"].GetError() != "" {
			t.Fatalf("%v, %v", reply, err)
		}
	}
	prepare()
	first := "memif.contivpp.io/n1/memif-100 interfaces=/run/memif-claims/fast1/interfaces.json " +
		"k8s.cni.cncf.io/deviceID=memif-100 k8s.cni.cncf.io/resourceName=contivpp.io/memif " +
		"maxBufferSize=16384 maxQueues=4 maxRingSize=4096 node=n1 nodeRole=server number=100 role=client " +
		"secret=/run/memif-claims/fast1/secret socket=/run/memif-claims/fast1/memif.sock"
	second := strings.NewReplacer("memif-100", "memif-101", "number=100", "number=101", "fast1", "fast2").Replace(first)
	has := func(when string, want ...string) {
		t.Helper()
		target, found := n.mounted(t, "uid-c", "m")
		if target != "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/m/memif.contivpp.io-metadata.json" {
			t.Errorf("%s: mounted at %s", when, target)
		}
		var got []string
		for _, d := range found.Requests[0].Devices {
			got = append(got, described(d))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: devices\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	has("prepared", first, second)
	at := attachmentOf("cmemif-101")
	at.Interfaces[1].Network = "blue"
	at.Interfaces[1].MTU = 1400
	at.Interfaces[1].Memif.ID = 1
	at.Interfaces[1].Memif.Mode = "ip"
	at.Interfaces[1].Memif.RxQueues = 2
	at.Interfaces[1].Memif.TxQueues = 3
	at.Interfaces[1].Memif.RingSize = 512
	at.Interfaces[1].Memif.BufferSize = 4096
	n.Observe(at)
	second = "memif.contivpp.io/n1/memif-101 bufferSize=4096 id=1 interfaces=/run/memif-claims/fast2/interfaces.json " +
		"k8s.cni.cncf.io/deviceID=memif-101 k8s.cni.cncf.io/resourceName=contivpp.io/memif " +
		"maxBufferSize=16384 maxQueues=4 maxRingSize=4096 mode=ip mtu=1400 network=blue node=n1 nodeRole=server " +
		"number=101 ringSize=512 role=client rxQueues=2 secret=/run/memif-claims/fast2/secret " +
		"socket=/run/memif-claims/fast2/memif.sock txQueues=3 fast 02:fe:00:00:00:01 [10.5.0.7/24]"
	has("connected", first, second)
	prepare()
	has("prepared again", first, second)
	if reply, err := kubelet.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{
		Claims: prepareOf("c").GetClaims(),
	}); err != nil || reply.GetClaims()["uid-c"].GetError() != "" {
		t.Fatalf("%v, %v", reply, err)
	}
	if left := n.metadataFilesLeft(t); len(left) > 0 || len(n.metadata.interfaces) > 0 {
		t.Errorf("left %q, interfaces %v", left, n.metadata.interfaces)
	}
}

// Pods on a direct network connect to each other: the server's name and the client's socket are not those of the
// dataplane.
func TestMetadataOfADirectMemifHaveItsOwnSocket(t *testing.T) {
	n := newNode(t)
	a := &pod.Allocation{ID: "c", Claim: &pod.ClaimedDevice{Device: "memif-100"}}
	a.Claim.Parameters.Interface = "fast"
	for role, want := range map[string]string{
		"":             "/run/memif-claims/fast/memif.sock client",
		pod.RoleClient: "/run/memif-claims/fast/d7.sock client",
		pod.RoleServer: "@weft/fast server",
	} {
		i := attachmentOf("c").Interfaces[1]
		i.Memif.Role = role
		i.Memif.ID = 7
		i.Memif.SocketPath = "/run/weft/memif/c/memif.sock"
		n.metadata.interfaces = map[string]pod.Interface{"c": i}
		m := n.metadata.of(a)
		if got := *m.Attributes["socket"].StringValue + " " + *m.Attributes["role"].StringValue; got != want {
			t.Errorf("role %q: %s, want %s", role, got, want)
		}
	}
}

// A claim is prepared and connected by different runs of the agent: the later one observes the attachments from before
// and then serves kubelet.
func TestMetadataHasTheInterfacesFromBeforeARestart(t *testing.T) {
	n := newNode(t, claimOf("c", `"interface":"fast"`, "memif-100"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	reply, err := drapb.NewDRAPluginClient(n.kubelet(t)).NodePrepareResources(t.Context(), prepareOf("c"))
	cancel()
	if err := errors.Join(err, <-ended); err != nil || reply.GetClaims()["uid-c"].GetError() != "" {
		t.Fatalf("%v, %v", reply, err)
	}
	n.Driver = New(n.config)
	n.Observe(attachmentOf("cmemif-100"))
	n.run(t)
	eventually(t, "metadata with the interface", func() bool {
		_, found := n.mounted(t, "uid-c", "m")
		return found.Requests[0].Devices[0].NetworkData != nil &&
			found.Requests[0].Devices[0].NetworkData.InterfaceName == "fast"
	})
}

// claimedIn returns the devices of a claim of the API server.
func claimedIn(t *testing.T, n *node, name string) []pod.ClaimedDevice {
	t.Helper()
	claim, err := n.api.ResourceV1().ResourceClaims("shop").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := requestedDevices(claim, "n1")
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

// Another program may remove the files, and the library removes those of a claim together with those of its predecessor
// of the same name.
func TestLostMetadataIsRecreated(t *testing.T) {
	n := newNode(t, claimOf("c", `"interface":"fast"`, "memif-100"))
	n.run(t)
	if reply, err := drapb.NewDRAPluginClient(n.kubelet(t)).NodePrepareResources(t.Context(),
		prepareOf("c")); err != nil || reply.GetClaims()["uid-c"].GetError() != "" {
		t.Fatalf("%v, %v", reply, err)
	}
	had := n.metadataFilesLeft(t)
	for i, lost := range []string{
		filepath.Join(n.dir, "cdi"), filepath.Join(n.dir, "plugins", pod.ClaimDriver, "dra-device-metadata"), had[0],
	} {
		// at once: the driver may recreate a part meanwhile
		if err := os.Rename(lost, fmt.Sprint(n.dir, "/lost", i)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "files after the loss of "+lost, func() bool { return slices.Equal(n.metadataFilesLeft(t), had) })
	}
	for _, file := range had {
		if filepath.Ext(file) != ".json" {
			continue
		}
		// A full disk may cut a file.
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
		eventually(t, "content of the empty file "+file, func() bool {
			content, err := os.ReadFile(file)
			return err == nil && json.Valid(content)
		})
	}
}

// Kubelet may release a claim after it prepared another one of the same name, as for a pod of a StatefulSet that was
// deleted by force: the library removes the files of both.
func TestMetadataOutlivesTheLateReleaseOfAPredecessor(t *testing.T) {
	first := claimOf("c", `"interface":"fast"`, "memif-100")
	n := newNode(t, first)
	n.config.Collect = time.Hour
	devices, err := requestedDevices(first, "n1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.memifs.Claim(t.Context(), idOf(first), devices); err != nil {
		t.Fatal(err)
	}
	n.run(t)
	eventually(t, "metadata that are restored at the start, and not again for an hour", func() bool {
		return len(n.metadata.lostClaims()) == 0
	})
	kubelet := drapb.NewDRAPluginClient(n.kubelet(t))
	prepare := func(uid string) {
		t.Helper()
		reply, err := kubelet.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{
			Claims: []*drapb.Claim{{Namespace: "shop", Name: "c", Uid: uid}},
		})
		if err != nil || reply.GetClaims()[uid].GetError() != "" {
			t.Fatalf("%v, %v", reply, err)
		}
	}
	second := claimOf("c", `"interface":"fast"`, "memif-101")
	second.UID = "uid-d"
	claims := n.api.ResourceV1().ResourceClaims("shop")
	if err := claims.Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := claims.Create(t.Context(), second, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	prepare("uid-d")
	released, err := kubelet.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: "shop", Name: "c", Uid: "uid-c"}},
	})
	if err != nil || released.GetClaims()["uid-c"].GetError() != "" {
		t.Fatalf("%v, %v", released, err)
	}
	if lost := n.metadata.lostClaims(); !lost[pod.ClaimID{Namespace: "shop", Name: "c", UID: "uid-d"}] {
		t.Fatal("the library keeps the files of the second claim: the driver need not restore them")
	}
	eventually(t, "metadata of the second claim", func() bool { return len(n.metadata.lostClaims()) == 0 })
}

// The file cannot be written when the ADD connects the device. It is whole, so it is not lost, and lacks the interface.
func TestMetadataThatAnADDCannotWriteIsWrittenLater(t *testing.T) {
	n := newNode(t, claimOf("c", `"interface":"fast"`, "memif-100"))
	n.run(t)
	if reply, err := drapb.NewDRAPluginClient(n.kubelet(t)).NodePrepareResources(t.Context(),
		prepareOf("c")); err != nil || reply.GetClaims()["uid-c"].GetError() != "" {
		t.Fatalf("%v, %v", reply, err)
	}
	directory, _ := n.metadata.files(pod.ClaimID{Namespace: "shop", Name: "c", UID: "uid-c"})
	file := filepath.Join(directory, "m", "metadata.json")
	other := filepath.Join(n.dir, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	exchange := func() { // at once: a file that is missing is lost
		if err := unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
	}
	exchange()
	n.Observe(attachmentOf("cmemif-100"))
	exchange()
	eventually(t, "metadata with the interface", func() bool {
		_, found := n.mounted(t, "uid-c", "m")
		return found.Requests[0].Devices[0].NetworkData != nil
	})
	n.metadata.mu.Lock()
	defer n.metadata.mu.Unlock()
	if len(n.metadata.unwritten) > 0 {
		t.Errorf("files that are still to be written: %v", n.metadata.unwritten)
	}
}

// A claim that kubelet prepares has devices before it has files. The driver does not prepare it a second time:
// that would cut files that a container already reads.
func TestMetadataThatIsBeingWrittenIsNotLost(t *testing.T) {
	n := newNode(t, claimOf("c", `"interface":"fast"`, "memif-100"))
	n.config.Collect = time.Hour // the test looks for lost files
	var calls, reads atomic.Int32
	asked := make(chan struct{})
	n.answers.set("get", func(k8stesting.Action) (bool, runtime.Object, error) {
		if reads.Add(1) == 2 { // the first read is for kubelet's request
			close(asked)
		}
		return false, nil, nil
	})
	var restored sync.WaitGroup
	n.memifs.claimed = func() {
		if calls.Add(1) > 1 {
			return
		}
		restored.Go(func() { n.metadata.restore(t.Context()) })
		select {
		case <-asked: // the driver's own request waits for this one
		case <-time.After(time.Minute):
			t.Error("a claim without files does not look lost")
		}
	}
	n.run(t)
	kubelet := drapb.NewDRAPluginClient(n.kubelet(t))
	for range 2 {
		if reply, err := kubelet.NodePrepareResources(t.Context(), prepareOf("c")); err != nil ||
			reply.GetClaims()["uid-c"].GetError() != "" {
			t.Fatalf("%v, %v", reply, err)
		}
	}
	restored.Wait()
	if got := calls.Load(); got != 2 {
		t.Errorf("%d preparations, want 2", got)
	}
}

// The event loop adds the interfaces of an ADD to the metadata, and prepares claims. While the driver recreates lost
// files, an ADD does not wait for it, and its interfaces are in the new files.
func TestAnADDDoesNotWaitForLostMetadata(t *testing.T) {
	n := newNode(t, claimOf("c", `"interface":"fast"`, "memif-100"))
	var calls atomic.Int32
	n.memifs.claimed = func() {
		if calls.Add(1) != 2 { // the driver's own request
			return
		}
		observed := make(chan struct{})
		go func() {
			defer close(observed)
			n.Observe(attachmentOf("cmemif-100"))
		}()
		select {
		case <-observed:
		case <-time.After(5 * time.Second):
			t.Error("an ADD waits for the preparation of a claim")
		}
	}
	n.run(t)
	if reply, err := drapb.NewDRAPluginClient(n.kubelet(t)).NodePrepareResources(t.Context(),
		prepareOf("c")); err != nil || reply.GetClaims()["uid-c"].GetError() != "" {
		t.Fatalf("%v, %v", reply, err)
	}
	if err := os.RemoveAll(filepath.Join(n.dir, "plugins", pod.ClaimDriver, "dra-device-metadata")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the files are recreated", func() bool { return calls.Load() >= 2 && len(n.metadata.lostClaims()) == 0 })
	eventually(t, "metadata with the interface", func() bool {
		n.metadata.writing.Lock()
		defer n.metadata.writing.Unlock()
		_, found := n.mounted(t, "uid-c", "m")
		return found.Requests[0].Devices[0].NetworkData != nil
	})
}

// Kubelet that lost its state releases no claim. A claim of the same name, of another UID, keeps its files.
func TestCollectedClaimLeavesNoMetadata(t *testing.T) {
	n := newNode(t, claimOf("c", `"interface":"fast"`, "memif-100"))
	for _, file := range []string{
		"memif.contivpp.io_metadata_uid-old_m.json", "memif.contivpp.io_metadata_uid-c_m.json", "foreign.json",
	} {
		if err := errors.Join(os.MkdirAll(n.config.CDIDir, 0o755),
			os.WriteFile(filepath.Join(n.config.CDIDir, file), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	old := pod.ClaimID{Namespace: "shop", Name: "c", UID: "uid-old"}
	gone := pod.ClaimID{Namespace: "shop", Name: "gone", UID: "uid-gone"}
	for _, id := range []pod.ClaimID{old, gone} {
		directory, _ := n.metadata.files(id)
		if err := os.MkdirAll(directory+"/m", 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := n.memifs.Claim(t.Context(), id, []pod.ClaimedDevice{
			{ClaimID: id, Device: "memif-" + id.UID, Request: "m"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.memifs.Claim(t.Context(), pod.ClaimID{Namespace: "shop", Name: "c", UID: "uid-c"},
		claimedIn(t, n, "c")); err != nil {
		t.Fatal(err)
	}
	n.collector.collect(t.Context())
	kept, _ := n.metadata.files(old)
	want := []string{
		n.config.CDIDir + "/foreign.json", n.config.CDIDir + "/memif.contivpp.io_metadata_uid-c_m.json", kept,
		kept + "/m",
	}
	if left := n.metadataFilesLeft(t); !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
	if err := n.metadata.remove(pod.ClaimID{Namespace: "x/../../..", Name: "x", UID: "u"}); err == nil {
		t.Error("a namespace that leads out of the directory is accepted")
	}
}
