package multus_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	netv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	netfake "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned/fake"
	netinformers "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/informers/externalversions"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/k8sclient"
	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/kubeletclient"
	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/types"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/k8s/dra"
	"github.com/weftnet/weft/pod"
)

// timeout bounds what a slow machine may take for each step.
const timeout = 2 * time.Minute

// memifs stand for the device manager: each claimed device has an allocation with a fixed id.
type memifs struct{}

func (memifs) Claimable() []string { return []string{"memif-80", "memif-81"} }

func (memifs) Claim(_ context.Context, _ pod.ClaimID, devices []pod.ClaimedDevice) (made []pod.Allocation, _ error) {
	for _, d := range devices {
		made = append(made, pod.Allocation{
			ID:      "AllocationOf" + strings.ReplaceAll(d.Device, "-", ""),
			Devices: []string{d.Device},
			Claim:   &d,
		})
	}
	return made, nil
}

func (memifs) Unclaim(context.Context, pod.ClaimID, string) error { return nil }
func (memifs) Claims() []pod.ClaimID                              { return nil }
func (memifs) Allocations() []pod.Allocation                      { return nil }

// claim is allocated: the devices of Weft's driver for requests a and b.
func claim() *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "fast", UID: "1f0c"}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "vnf", UID: "uid-vnf"}}
	c.Status.Allocation = &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "a", Driver: pod.ClaimDriver, Pool: "n1", Device: "memif-80"}, {
				Request: "b",
				Driver:  pod.ClaimDriver,
				Pool:    "n1",
				Device:  "memif-81",
			},
		}},
	}
	return c
}

// prepare lets Weft's driver prepare the claim as kubelet does, and returns what kubelet then has of it.
func prepare(t *testing.T) *podresources.DynamicResource {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft") // t.TempDir is too long for a socket path
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Mkdir(filepath.Join(dir, "plugins_registry"), 0o700))
	driver := dra.New(dra.Config{
		Node:       "n1",
		Client:     fake.NewClientset(claim(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1"}}),
		Devices:    memifs{},
		KubeletDir: dir,
		CDIDir:     filepath.Join(dir, "cdi"),
		CDIDevice:  devicemanager.CDIDevice,
		Mount:      func(*pod.Allocation) string { return "/run/memif-claims/m" },
		Log:        slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- driver.Run(ctx) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })
	return prepareBy(t, dir)
}

// prepareBy lets the driver with its socket in kubelet's directory prepare the claim.
func prepareBy(t *testing.T, dir string) *podresources.DynamicResource {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "plugins", pod.ClaimDriver, "dra.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	limited, stop := context.WithTimeout(t.Context(), timeout)
	defer stop()
	reply, err := drapb.NewDRAPluginClient(conn).NodePrepareResources(limited, &drapb.NodePrepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: "shop", Name: "fast", Uid: "1f0c"}},
	}, grpc.WaitForReady(true))
	must(t, err)
	prepared := reply.GetClaims()["1f0c"]
	if prepared.GetError() != "" || len(prepared.GetDevices()) != 2 {
		t.Fatalf("prepared %v", prepared)
	}
	resource := &podresources.DynamicResource{ClaimName: "fast", ClaimNamespace: "shop"}
	for _, d := range prepared.GetDevices() {
		of := &podresources.ClaimResource{
			DriverName: pod.ClaimDriver,
			PoolName:   d.GetPoolName(),
			DeviceName: d.GetDeviceName(),
		}
		for _, id := range d.GetCdiDeviceIds() {
			of.CdiDevices = append(of.CdiDevices, &podresources.CDIDevice{Name: id})
		}
		resource.ClaimResources = append(resource.ClaimResources, of)
	}
	return resource
}

// kubelet answers the query that Multus makes.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	claim *podresources.DynamicResource
}

func (k *kubelet) List(
	context.Context, *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
		Name:      "vnf",
		Namespace: "shop",
		Containers: []*podresources.ContainerResources{
			{Name: "vnf", DynamicResources: []*podresources.DynamicResource{k.claim}},
		},
	}}}, nil
}

// has reports whether a device of the claim has the name in CDI. Each has one for its memif, and one for its metadata;
// Multus passes any of them.
func (k *kubelet) has(id string) bool {
	for _, r := range k.claim.GetClaimResources() {
		for _, d := range r.GetCdiDevices() {
			if _, name, _ := strings.Cut(d.GetName(), "="); name == id {
				return true
			}
		}
	}
	return false
}

// serve serves kubelet's socket of pod resources.
func serve(t *testing.T, k *kubelet) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "kubelet.sock")
	l, err := net.Listen("unix", socket)
	must(t, err)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, k)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); must(t, <-ended) })
	return socket
}

// definition is the one of docs/dra.md, for the claim that the annotation names.
func definition() *netv1.NetworkAttachmentDefinition {
	return &netv1.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "shop",
			Name:        "fast",
			Annotations: map[string]string{"k8s.v1.cni.cncf.io/resourceName": "fast"},
		},
		Spec: netv1.NetworkAttachmentDefinitionSpec{
			Config: `{"cniVersion": "1.0.0", "name": "fast", "type": "weft-cni", "mode": "delegate",
			"network": "blue", "interfaceType": "memif", "capabilities": {"mac": true, "ips": true, "deviceID": true}}`,
		},
	}
}

// clients are those of thin Multus, which reads definitions from the API server, and of the thick one, whose server has
// them from an informer.
func clients(t *testing.T) map[string]*k8sclient.ClientInfo {
	t.Helper()
	api := netfake.NewSimpleClientset()
	if _, err := api.K8sCniCncfIoV1().NetworkAttachmentDefinitions("shop").Create(t.Context(), definition(),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	informer := netinformers.NewSharedInformerFactory(api,
		0).K8sCniCncfIo().V1().NetworkAttachmentDefinitions().Informer()
	must(t, informer.GetStore().Add(definition()))
	return map[string]*k8sclient.ClientInfo{
		"thin":  {Client: fake.NewClientset(), NetClient: api},
		"thick": {Client: fake.NewClientset(), NetClient: api, NetDefInformer: informer},
	}
}

// Multus 4.3.0 passes a deviceID for each selection of a definition, and weft-cni understands each of them as a device
// of the claim.
func TestMultusNamesTheDevicesOfAClaim(t *testing.T) {
	prepared := prepare(t)
	socket := serve(t, &kubelet{claim: prepared})
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "shop",
			Name:        "vnf",
			UID:         "uid-vnf",
			Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "fast,fast"},
		},
	}
	for name, client := range clients(t) {
		t.Run(name, func(t *testing.T) {
			kubelet, err := kubeletclient.GetResourceClient(socket)
			must(t, err)
			devices, err := kubelet.GetPodResourceMap(p)
			must(t, err)
			networks, err := k8sclient.GetPodNetwork(p)
			must(t, err)
			delegates, err := k8sclient.GetNetworkDelegates(client, p, networks, &types.NetConf{}, devices)
			must(t, err)
			if len(delegates) != 2 {
				t.Fatalf("%d delegates", len(delegates))
			}
			for _, d := range delegates {
				var config struct {
					DeviceID string `json:"deviceID"`
					Type     string `json:"type"`
				}
				must(t, json.Unmarshal(d.Bytes, &config))
				if config.Type != "weft-cni" || config.DeviceID == "" || config.DeviceID != d.DeviceID {
					t.Errorf("configuration %s with device %q", d.Bytes, d.DeviceID)
				}
				if of := claimedAs(config.DeviceID); len(of) == 0 {
					t.Errorf("deviceID %q is of no device of the claim", config.DeviceID)
				}
			}
			if delegates[0].DeviceID == delegates[1].DeviceID {
				t.Errorf("both definitions have device %s", delegates[0].DeviceID)
			}
		})
	}
}

// claimedAs returns the devices of the claim that weft-cni understands by a deviceID.
func claimedAs(id string) (found []string) {
	c := claim()
	for _, r := range c.Status.Allocation.Devices.Results {
		made, _ := memifs{}.Claim(context.Background(), pod.ClaimID{}, []pod.ClaimedDevice{{
			ClaimID: pod.ClaimID{Namespace: c.Namespace, Name: c.Name, UID: string(c.UID)},
			Device:  r.Device,
			Request: r.Request,
		}})
		if made[0].IsClaimedAs(id) {
			found = append(found, r.Device)
		}
	}
	return found
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
