package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/ctl/ctltest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// cluster is an API server with two nodes. The second node borrows an address.
type cluster struct {
	*k8stest.Server
	t                        *testing.T
	host, kubeconfig, socket string
}

// writeKubeconfig writes a kubeconfig for the API server at host.
func writeKubeconfig(name, host string) error {
	return os.WriteFile(name, []byte("apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a}]\n"+
		"clusters: [{name: a, cluster: {server: "+host+"}}]\n"), 0o600)
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{
		Server:     k8stest.New(t),
		t:          t,
		kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"),
		socket:     filepath.Join(t.TempDir(), "agent.sock"),
	}
	c.host = c.Connection().Host
	if err := writeKubeconfig(c.kubeconfig, c.host); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NODE_NAME", "n1")
	for _, name := range []string{"n1", "n2"} {
		ready := corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}
		c.Put("nodes", &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name)},
			Status:     ready,
		})
		c.Put("nodenetworks.contivpp.io", &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	c.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       v1.IPPoolSpec{CIDR: "10.1.0.0/16"},
	})
	c.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "blue"},
		Spec:       v1.CustomNetworkSpec{Type: v1.L3, CIDRs: []v1.CIDR{"fd00:5::/64"}, BlockSize: 26, BlockSizeV6: 122},
	})
	c.block("10.1.0.0-26", func(b *v1.IPBlock) {
		b.Spec.Offered = []v1.IP{"10.1.0.8", "10.1.0.9"}
		b.Spec.Borrowed = []v1.Loan{{Address: "10.1.0.9", Node: "n2"}}
		b.Status = v1.IPBlockStatus{Used: 2, Cooling: 1, Free: 57, Allocations: []v1.Allocation{
			{Address: "10.1.0.2", Namespace: "default", Pod: "a", Attachment: "weft/c1/eth0"},
			{Address: "10.1.0.3", Namespace: "default", Pod: "b", Attachment: "weft/c2/eth0"},
		}}
	})
	c.block("10.1.0.64-26", func(b *v1.IPBlock) { b.Status.Free = 64 })
	c.block("10.1.4.0-26", func(b *v1.IPBlock) { b.Spec.Node = "" })
	c.block("blue.fd00-0005-0000-0000-0000-0000-0000-0000-122", func(b *v1.IPBlock) {
		b.Spec.CIDR = "fd00:5::/122"
		b.Spec.Pool = ""
		b.Spec.Network = "blue"
		b.Spec.Node = "n2"
		b.Status.Free = 63
	})
	return c
}

// block stores a block of n1. Its prefix is its name unless set changes it.
func (c *cluster) block(name string, set func(*v1.IPBlock)) {
	b := &v1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec = v1.IPBlockSpec{CIDR: v1.CIDR(strings.ReplaceAll(name, "-", "/")), Pool: "pods", Node: "n1"}
	set(b)
	c.Put("ipblocks.contivpp.io", b)
}

// agent serves leases of these addresses at the socket. IPv6 addresses belong to the custom network.
func (c *cluster) agent(addresses ...string) {
	reply := &operatorv1.AddressesReply{}
	for _, a := range addresses {
		pool := "pods"
		if strings.Contains(a, ":") {
			pool = "blue:ip6"
		}
		reply.Leases = append(reply.Leases, &operatorv1.Lease{
			Pool:    pool,
			Address: a,
			State:   "used",
			Holder:  "weft/" + a + "/eth0",
		})
	}
	_, stop, err := ctltest.Serve(c.socket, ctltest.Replies{Addresses: reply})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(stop)
}

// run runs weftctl and returns its output and exit code.
func (c *cluster) run(args ...string) (string, int) {
	var out bytes.Buffer
	env := ctl.Env{Out: &out, Err: &out, Now: func() time.Time { return now }}
	code, err := checkedMain(context.Background(), env, append(args, "--socket", c.socket))
	if err != nil {
		c.t.Error(err)
	}
	text := strings.ReplaceAll(out.String(), c.socket, "SOCKET")
	return strings.ReplaceAll(text, strings.TrimPrefix(c.host, "http://"), "SERVER"), code
}

// unreachable points the kubeconfig to a port without a listener.
func (c *cluster) unreachable() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		c.host = "http://" + listener.Addr().String()
		err = errors.Join(listener.Close(), writeKubeconfig(c.kubeconfig, c.host))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) query(args ...string) (string, int) {
	return c.run(append(args, "--kubeconfig", c.kubeconfig)...)
}

func TestAddressesOfTheClusterArePrinted(t *testing.T) {
	c := newCluster(t)
	c.agent("10.1.0.2", "10.1.0.64")
	var b strings.Builder
	for _, command := range []string{
		"addresses blocks", "addresses blocks -o json", "addresses check", "addresses check -o json",
	} {
		got, code := c.query(strings.Fields(command)...)
		if code != 0 {
			t.Errorf("%s: exit code %d", command, code)
		}
		b.WriteString("$ weftctl " + command + "\n" + got + "\n")
	}
	golden(t, "cluster", b.String())
}

func TestAddressesCheckPrintsViolationsAndFails(t *testing.T) {
	c := newCluster(t)
	c.agent("10.1.0.2", "10.1.4.1", "10.1.9.9", "fd00:5::7")
	c.Remove("nodes", "", "n2")
	c.block("10.1.0.64-27", func(b *v1.IPBlock) { b.Status = v1.IPBlockStatus{Used: 1} })
	got, code := c.query("addresses", "check")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	golden(t, "violations", got)
	got, code = c.query("addresses", "check", "-o", "json")
	document, _, _ := strings.Cut(got, "weftctl:")
	var v struct {
		Violations []struct{ Rule, Object, Text string }
	}
	if err := json.Unmarshal([]byte(document), &v); err != nil || code != 1 || len(v.Violations) != 8 {
		t.Errorf("exit code %d, %d violations, error %v:\n%s", code, len(v.Violations), err, got)
	}
}

func TestAddressesCheckWithoutAgentSkipsLeases(t *testing.T) {
	c := newCluster(t)
	got, code := c.query("addresses", "check")
	if code != 0 || !strings.Contains(got, "leases not checked: no agent answers at SOCKET\n") ||
		!strings.Contains(got, "no problems") {
		t.Errorf("exit code %d:\n%s", code, got)
	}
	if got, code = c.query("addresses", "check", "--node", "n1"); code != 1 ||
		got != "weftctl: no agent answers at SOCKET\n" {
		t.Errorf("with --node: exit code %d:\n%s", code, got)
	}
	c.agent("10.1.9.9")
	t.Setenv("NODE_NAME", "elsewhere")
	const unknown = `the cluster has no node "elsewhere"; set --node to the name of this node`
	if got, code = c.query("addresses", "check"); code != 0 || !strings.Contains(got, "leases not checked: "+unknown) {
		t.Errorf("with NODE_NAME of a missing node: exit code %d:\n%s", code, got)
	}
	if got, code = c.query("addresses", "check", "--node", "elsewhere"); code != 1 || got != "weftctl: "+unknown+"\n" {
		t.Errorf("with --node of a missing node: exit code %d:\n%s", code, got)
	}
}

func TestAPIServerErrorsAreOneLineThatSaysWhatToDo(t *testing.T) {
	const refused = "weftctl: list ipblocks.contivpp.io: the API server at SERVER "
	for name, tt := range map[string]struct {
		breakIt func(*cluster)
		args    []string
		want    string
	}{
		"unreachable": {
			func(c *cluster) { c.unreachable() }, nil,
			refused + "cannot be asked: dial tcp SERVER: connect: connection refused\n",
		},
		"without CRDs": {
			func(c *cluster) { c.Uninstall("ipblocks.contivpp.io") }, nil,
			refused + "has no such kind: are Weft's custom resource definitions installed?\n",
		},
		"without rights": {
			func(c *cluster) { c.Fail(func(*http.Request) int { return http.StatusForbidden }) }, nil,
			"weftctl: list ipblocks.contivpp.io: requested by the test\n",
		},
		"silent": {
			func(c *cluster) {
				released := make(chan struct{})
				c.t.Cleanup(func() { close(released) })
				c.Fail(func(*http.Request) int { <-released; return 0 })
			}, []string{"--timeout", "100ms"},
			"weftctl: list ipblocks.contivpp.io: no answer of the API server at SERVER: context deadline exceeded (within 100ms; set a longer --timeout)\n",
		},
		"no time left": {
			func(*cluster) {}, []string{"--timeout", "1ns"},
			refused + "cannot be reached: no answer within the timeout (within 1ns; set a longer --timeout)\n",
		},
		"no file": {
			func(c *cluster) { c.kubeconfig = "/nowhere/kubeconfig" }, nil,
			"weftctl: read kubeconfig: stat /nowhere/kubeconfig: no such file or directory\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			tt.breakIt(c)
			for _, command := range []string{"check", "blocks"} {
				if got, code := c.query(append([]string{"addresses", command}, tt.args...)...); got != tt.want ||
					code != 1 {
					t.Errorf("%s: exit code %d, %q, want 1 and %q", command, code, got, tt.want)
				}
			}
		})
	}
}

// Regression test: the check reported no problem while two pods had the same address.
func TestAddressesCheckListsTakenAddressesAndUncheckedNodes(t *testing.T) {
	c := newCluster(t)
	c.agent()
	c.Put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}})
	c.Put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	got, code := c.query("addresses", "check")
	for _, want := range []string{
		"node n2: Kubernetes does not report it as ready", "node n3: its agent has not announced it",
		"no problems, but 2 nodes not checked",
	} {
		if code != 0 || !strings.Contains(got, want) {
			t.Errorf("exit code %d, want %q in\n%s", code, want, got)
		}
	}
	c.Put("nodenetworks.contivpp.io", &v1.NodeNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: v1.NodeNetworkStatus{Conditions: v1.Conditions{
			{
				Type:    v1.ConditionAddresses,
				Status:  metav1.ConditionFalse,
				Message: "pod default/a: its address 10.1.9.9 is of block 10.1.9.0/26, which is node n2's now: delete the pod",
			},
		}},
	})
	got, code = c.query("addresses", "check")
	if want := "address-taken: node n1: pod default/a: its address 10.1.9.9 is of block"; code != 1 ||
		!strings.Contains(got, want) {
		t.Errorf("exit code %d, want %q in\n%s", code, want, got)
	}
}

func TestAddressesCheckReadsBlocksBeforeNodes(t *testing.T) {
	c := newCluster(t)
	if _, code := c.query("addresses", "check"); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	want := []string{
		"GET /apis/contivpp.io/v1/ipblocks", "GET /apis/contivpp.io/v1/ippools",
		"GET /apis/contivpp.io/v1/customnetworks", "GET /api/v1/nodes",
		"GET /apis/contivpp.io/v1/nodenetworks",
	}
	if got := c.Requests(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("requests %q, want %q", got, want)
	}
}
