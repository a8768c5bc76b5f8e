package multus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	netv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// forms are the forms of Multus: a program that does everything, and a daemon behind a shim.
var forms = []string{"thin", "thick"}

// define makes a NetworkAttachmentDefinition of Weft in the namespace shop, with more keys of its configuration.
func (m *machine) define(name, resource, keys string) {
	o := &npwg.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: npwg.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(
			`{"cniVersion": "1.1.0", "name": %q, "type": "weft-cni", "mode": "delegate", "socket": %q%s}`, name,
			m.Socket(), keys)},
	}
	if resource != "" {
		o.Annotations = map[string]string{"k8s.v1.cni.cncf.io/resourceName": resource}
	}
	m.server.Put("network-attachment-definitions.k8s.cni.cncf.io", o)
}

// sandbox makes a pod with a selection and its sandbox.
func (m *machine) sandbox(name, selection string) *node.Pod {
	m.t.Helper()
	p, err := m.NewPod(name)
	must(m.t, err)
	p.Namespace = "shop"
	p.UID = "uid-" + name
	m.server.Put("pods", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "shop",
			Name:        name,
			UID:         types.UID(p.UID),
			Annotations: map[string]string{pod.AnnotationNetworks: selection},
		},
		Spec: corev1.PodSpec{NodeName: node.Name},
	})
	return p
}

// add executes ADD, and DEL at the end of the test.
func (m *machine) add(p *node.Pod) *types100.Result {
	m.t.Helper()
	m.t.Cleanup(func() { must(m.t, m.runtime.Del(context.Background(), p)) })
	result, err := m.runtime.Add(m.t.Context(), p)
	must(m.t, err)
	return result
}

// status returns the annotation network-status of a pod, which Multus writes, by the interface.
func (m *machine) status(p *node.Pod) map[string]netv1.NetworkStatus {
	m.t.Helper()
	var o corev1.Pod
	if !m.server.Object("pods", "shop", p.Name, &o) {
		m.t.Fatalf("there is no pod %s", p.Name)
	}
	var list []netv1.NetworkStatus
	if err := json.Unmarshal([]byte(o.Annotations[netv1.NetworkStatusAnnot]), &list); err != nil {
		m.t.Fatalf("network-status %q: %v", o.Annotations[netv1.NetworkStatusAnnot], err)
	}
	by := make(map[string]netv1.NetworkStatus)
	for _, s := range list {
		by[s.Interface] = s
	}
	return by
}

// memifOf returns the deviceID that Multus passed to weft-cni for an interface, and the id of the memif that the pod
// got: libcni keeps configurations and results. A memif's socket is in a directory with its id.
func (m *machine) memifOf(ifName string) (deviceID, id string) {
	m.t.Helper()
	files, err := filepath.Glob(filepath.Join(m.Dir, "multus", "results", "*-"+ifName))
	must(m.t, err)
	if len(files) != 1 {
		m.t.Fatalf("results of %s: %q", ifName, files)
	}
	raw, err := os.ReadFile(files[0])
	must(m.t, err)
	var kept struct {
		Config []byte
		Result struct{ Interfaces []struct{ SocketPath string } }
	}
	must(m.t, json.Unmarshal(raw, &kept))
	var config struct{ DeviceID string }
	must(m.t, json.Unmarshal(kept.Config, &config))
	if len(kept.Result.Interfaces) != 1 {
		m.t.Fatalf("%s has the result %s", ifName, raw)
	}
	return config.DeviceID, filepath.Base(filepath.Dir(kept.Result.Interfaces[0].SocketPath))
}

// weftctl returns the output of the operator's program.
func (m *machine) weftctl(args ...string) string {
	m.t.Helper()
	out, err := m.Weftctl(m.t.Context(), args...)
	if err != nil {
		m.t.Fatalf("weftctl %q: %v\n%s", args, err, out)
	}
	return out
}

// claimFor puts the claim of two memifs for delegates, which is reserved for a pod, and lets Weft's driver prepare it
// for kubelet.
func (m *machine) claimFor(p *node.Pod) {
	m.t.Helper()
	c := claim()
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{
		Resource: "pods", Name: p.Name, UID: types.UID(p.UID),
	}}
	for i := range c.Status.Allocation.Devices.Results {
		c.Status.Allocation.Devices.Results[i].Device = fmt.Sprint("memif-", i+2)
	}
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: pod.ClaimDriver,
			Parameters: runtime.RawExtension{
				Raw: []byte(`{"apiVersion": "contivpp.io/v1", "kind": "MemifParameters", "delegate": true}`),
			},
		}},
	}}
	m.server.Put("resourceclaims.resource.k8s.io", c)
	m.kubelet.claim = prepareBy(m.t, m.kubeletDir())
}

// Multus in both its forms executes weft-cni, which asks Weft's agent.
func TestMultusConnectsPodsByWeft(t *testing.T) {
	netnstest.RequireTap(t)
	built := programs.Build(t)
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			m := newMachine(t, built, form)
			must(t, m.runtime.Status(t.Context()))
			for _, tt := range []struct {
				name string
				test func(t *testing.T, m *machine)
			}{
				{"memifs of a claim", memifsOfClaim},
				{"a memif of limits", memifOfLimits},
				{"empty values", emptyValues},
				{"a DEL without an ADD", deleteUnknown},
				{"a limit and a claim", limitAndClaim},
			} {
				t.Run(tt.name, func(t *testing.T) {
					whole := m.t
					m.t = t
					defer func() { m.t = whole }()
					tt.test(t, m)
				})
			}
		})
	}
}

// memifsOfClaim: each selection of the definition gets a memif of its own of the claim.
func memifsOfClaim(t *testing.T, m *machine) {
	m.define("fast", "fast", `, "interfaceType": "memif", "capabilities": {"mac": true, "ips": true, "deviceID": true}`)
	p := m.sandbox("vnf", `[{"name": "fast"}, {"name": "fast", "interface": "m1", "mac": "02:00:00:00:00:17"}]`)
	m.claimFor(p)
	first := m.add(p)
	links, err := node.Links(first)
	must(t, err)
	if len(links) != 1 || links[0].Name != "eth0" || len(links[0].Addresses) != 2 {
		t.Errorf("the result has %+v", first)
	}
	status := m.status(p)
	if len(status) != 3 || !status["eth0"].Default || status["net1"].Name != "shop/fast" ||
		status["m1"].Name != "shop/fast" || status["m1"].Mac != "02:00:00:00:00:17" || status["net1"].Mac == "" ||
		len(status["net1"].IPs) != 2 || len(status["m1"].IPs) != 2 {
		t.Errorf("network-status is %+v", status)
	}
	firstDevice, firstMemif := m.memifOf("net1")
	otherDevice, otherMemif := m.memifOf("m1")
	areClaims := true
	for _, id := range []string{firstDevice, firstMemif, otherDevice, otherMemif} {
		areClaims = areClaims && m.kubelet.has(id)
	}
	// Multus may pass two names of one device; then Weft takes the other device of the claim.
	if firstMemif == otherMemif || firstDevice == otherDevice || !areClaims {
		t.Errorf("net1 has memif %s for device %s, m1 has %s for %s, the claim has %v", firstMemif, firstDevice,
			otherMemif, otherDevice, m.kubelet.claim)
	}
	must(t, m.runtime.Check(t.Context(), p))
	// Multus itself refuses a repeated ADD, and deletes the main interface. The runtime then sends a DEL.
	if _, err := m.runtime.Add(t.Context(), p); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("a repeated ADD: %v", err)
	}
	must(t, m.runtime.Del(t.Context(), p))
	if left := m.weftctl("pods"); strings.Contains(left, "vnf") {
		t.Errorf("after DEL:\n%s", left)
	}
	m.add(p)
	if _, id := m.memifOf("net1"); id != firstMemif {
		t.Errorf("after DEL and ADD net1 has memif %s, before %s", id, firstMemif)
	}
}

// memifOfLimits: Multus copies the device information, which tells programs the socket.
func memifOfLimits(t *testing.T, m *machine) {
	m.define("limits", node.Memif,
		`, "interfaceType": "memif", "capabilities": {"deviceID": true, "CNIDeviceInfoFile": true}`)
	p := m.sandbox("limits", "limits")
	_, err := m.Admit(t.Context(), p, kubelettest.Container{Name: "c", Limit: 1})
	must(t, err)
	m.listPods(m.Kubelet.PodResources())
	defer m.listPods(m.own)
	m.add(p)
	info := m.status(p)["net1"].DeviceInfo
	if info == nil || info.Type != "memif" || info.Memif == nil || info.Memif.Role == "" || info.Memif.Mode == "" ||
		!strings.HasPrefix(info.Memif.Path, m.Memifs()) {
		t.Errorf("the device information is %+v of %+v", info, m.status(p))
	}
}

// emptyValues: an optional key without a value is no key, as without Multus.
func emptyValues(t *testing.T, m *machine) {
	m.define("empty", "",
		`, "ipam": {}, "interfaceType": "", "options": {}, "capabilities": {}, "args": {}, "deviceID": ""`)
	m.define("plain", "", "")
	p := m.sandbox("empty", `[{"name": "plain"},
		{"name": "empty", "ips": [], "mac": "", "bandwidth": null, "ipam-claim-reference": ""}]`)
	m.add(p)
	status := m.status(p)
	if len(status["net1"].IPs) != 2 || len(status["net1"].IPs) != len(status["net2"].IPs) || status["net1"].Mac == "" ||
		status["net1"].Mtu != status["net2"].Mtu {
		t.Errorf("network-status is %+v", status)
	}
}

// deleteUnknown: a DEL without an ADD succeeds, also if it is repeated.
func deleteUnknown(t *testing.T, m *machine) {
	m.define("plain", "", "")
	p := m.sandbox("unknown", "plain")
	must(t, m.runtime.Del(t.Context(), p))
	must(t, m.runtime.Del(t.Context(), p))
}

// limitAndClaim: Multus passes neither of both to a definition without capabilities; the agent reads them in the pod.
func limitAndClaim(t *testing.T, m *machine) {
	m.define("plain", "", "")
	m.server.Put("ipamclaims.k8s.cni.cncf.io", &npwg.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "held", UID: "uid-held"},
		Spec:       npwg.IPAMClaimSpec{Network: "default", Interface: "net2"},
	})
	selection := `[{"name": "plain", "bandwidth": {"ingressRate": 2000000}},
		{"name": "plain", "ipam-claim-reference": "held"}]`
	p := m.sandbox("first", selection)
	m.add(p)
	was := m.status(p)["net2"]
	var stored npwg.IPAMClaim
	m.server.Object("ipamclaims.k8s.cni.cncf.io", "shop", "held", &stored)
	if len(stored.Status.IPs) != 2 || !strings.HasPrefix(stored.Status.IPs[0], was.IPs[0]) {
		t.Errorf("the claim holds %q, the pod has %q", stored.Status.IPs, was.IPs)
	}
	if shown := m.weftctl("pod", "shop/first"); !strings.Contains(shown, "2 Mbit/s") {
		t.Errorf("no limit of net1:\n%s", shown)
	}
	must(t, m.runtime.Del(t.Context(), p))
	next := m.sandbox("next", selection)
	m.add(next)
	if is := m.status(next)["net2"]; !slices.Equal(is.IPs, was.IPs) || is.Mac != was.Mac {
		t.Errorf("the next pod has %+v, the first had %+v", is, was)
	}
	ambiguous := m.sandbox("ambiguous", `[{"name": "plain", "interface": "n", "bandwidth": {"ingressRate": 2000000}},
		{"name": "plain", "interface": "n"}]`)
	t.Cleanup(func() { must(t, m.runtime.Del(context.Background(), ambiguous)) })
	_, err := m.runtime.Add(t.Context(), ambiguous)
	if err == nil || !strings.Contains(err.Error(), "name a different interface in each") {
		t.Errorf("two elements for one interface: %v", err)
	}
}
