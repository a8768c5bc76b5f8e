package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/protobuf/proto"

	"github.com/weftnet/weft/cni/cnitest"
	"github.com/weftnet/weft/proto/deletequeue"
	"github.com/weftnet/weft/proto/serving"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// runtime calls the plugin in this process, as a container runtime calls the program.
type runtime struct {
	*cnitest.Agent
	t      *testing.T
	dir    string
	socket string
	args   skel.CmdArgs
	keys   map[string]any // of the plugin object, besides those that every call has
	ipam   bool           // the program is weft-ipam
}

// newRuntime has an agent whose reply to an ADD has one interface.
func newRuntime(t *testing.T) *runtime {
	t.Helper()
	r := withoutAgent(t)
	r.Answer = &weftv1.AddReply{
		Interfaces: []*weftv1.Interface{
			{Name: "eth0", Mac: "02:00:00:00:00:01", Mtu: 1450, Sandbox: "/run/netns/blue"},
		},
		Ips:    []*weftv1.IP{{Address: "10.1.1.7/32", Gateway: "169.254.1.1"}},
		Routes: []*weftv1.Route{{Destination: "0.0.0.0/0", Gateway: "169.254.1.1"}},
	}
	r.Listen(t, r.socket)
	return r
}

func withoutAgent(t *testing.T) *runtime {
	t.Helper()
	dir := t.TempDir()
	return &runtime{
		Agent: &cnitest.Agent{}, t: t, dir: dir, socket: filepath.Join(dir, "agent.sock"), keys: make(map[string]any),
		args: skel.CmdArgs{
			ContainerID: "c1",
			IfName:      "eth0",
			Netns:       "/run/netns/blue",
			Args:        "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web",
		},
	}
}

// call runs one command and returns what the plugin prints.
func (r *runtime) call(command string) (string, error) {
	r.t.Helper()
	object := map[string]any{
		"cniVersion": "1.1.0", "name": "weft", "type": "weft-cni", "socket": r.socket,
		"deleteQueue": filepath.Join(r.dir, "queue"), "dialTimeout": "50ms",
	}
	for key, value := range r.keys {
		object[key] = value
	}
	stdin, err := json.Marshal(object)
	if err != nil {
		r.t.Fatal(err)
	}
	args := r.args
	args.StdinData = stdin
	p := &plugin{role: role{ipam: r.ipam}, version: "v1", command: command, override: "1",
		del: delLimits{call: 5 * time.Second, lock: 5 * time.Second, last: time.Second}}
	verbs := p.verbs()
	do := map[string]func(*skel.CmdArgs) error{
		"ADD":    verbs.Add,
		"DEL":    verbs.Del,
		"CHECK":  verbs.Check,
		"STATUS": verbs.Status,
		"GC":     verbs.GC,
	}[command]
	return captured(r.t, func() error { return do(&args) })
}

// captured returns the output of do to stdout.
func captured(t *testing.T, do func() error) (string, error) {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "stdout")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stdout := os.Stdout
	os.Stdout = file
	result := do()
	os.Stdout = stdout
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), result
}

// fails runs a command that must fail with the code, and an error that contains all words.
func (r *runtime) fails(command string, code uint, words ...string) {
	r.t.Helper()
	out, err := r.call(command)
	e, is := errors.AsType[*types.Error](err)
	if !is || e.Code != code || out != "" {
		r.t.Errorf("%s: error %v with output %q, want code %d", command, err, out, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(e.Msg+e.Details, word) {
			r.t.Errorf("%s: %q does not contain %q", command, e.Msg, word)
		}
	}
}

// succeeds runs a command that sends one request, and returns the request and the output.
func succeeds[M proto.Message](r *runtime, command string) (M, string) {
	r.t.Helper()
	out, err := r.call(command)
	if err != nil {
		r.t.Fatalf("%s: %v", command, err)
	}
	requests := r.Requests()
	if len(requests) != 1 {
		r.t.Fatalf("%s: %d requests", command, len(requests))
	}
	req, is := requests[0].(M)
	if !is {
		r.t.Fatalf("%s: the request is a %T", command, requests[0])
	}
	return req, out
}

func TestAddRequestsTheAttachmentOfThePod(t *testing.T) {
	r := newRuntime(t)
	req, out := succeeds[*weftv1.AddRequest](r, "ADD")
	want := &weftv1.Attachment{Network: "weft", ContainerId: "c1", IfName: "eth0"}
	if !proto.Equal(req.GetAttachment(), want) || req.GetPod().GetName() != "web" ||
		req.GetPod().GetNamespace() != "shop" ||
		req.GetNetns() != "/run/netns/blue" || req.GetCaller().GetVersion() != "v1" || req.GetHasAnnotations() {
		t.Errorf("the request is %v", req)
	}
	var result struct {
		CNIVersion string
		IPs        []struct{ Address string }
		Routes     []struct{ Dst string }
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || result.CNIVersion != "1.1.0" ||
		len(result.IPs) != 1 ||
		result.IPs[0].Address != "10.1.1.7/32" ||
		len(result.Routes) != 1 || !strings.HasSuffix(out, "\n") {
		t.Errorf("the result is %s (%v)", out, err)
	}
}

func TestAddPrintsTheResultInTheConfiguredVersion(t *testing.T) {
	for version, key := range map[string]string{
		"0.2.0": `"ip4"`,
		"0.4.0": `"version": "4"`,
		"1.0.0": `"interfaces"`,
		"1.1.0": `"mtu"`,
	} {
		r := newRuntime(t)
		r.keys["cniVersion"] = version
		if _, out := succeeds[*weftv1.AddRequest](r, "ADD"); !strings.Contains(out, key) {
			t.Errorf("%s: %s is not in %s", version, key, out)
		}
	}
}

func TestAddSendsTheAnnotationsThatTheAgentReads(t *testing.T) {
	r := newRuntime(t)
	r.keys["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{
		"contivpp.io/custom-if": "t1/tap", "k8s.v1.cni.cncf.io/networks": "blue",
		"kubernetes.io/ingress-bandwidth": "1M", "example.org/large": strings.Repeat("x", 1000),
	}}
	req, _ := succeeds[*weftv1.AddRequest](r, "ADD")
	want := []string{"contivpp.io/custom-if", "k8s.v1.cni.cncf.io/networks", "kubernetes.io/ingress-bandwidth"}
	if got := slices.Sorted(maps.Keys(req.GetAnnotations())); !slices.Equal(got, want) || !req.GetHasAnnotations() {
		t.Errorf("annotations %v, present %t", got, req.GetHasAnnotations())
	}
}

func TestRuntimeConfigTakesPrecedenceOverArgs(t *testing.T) {
	args := map[string]any{"cni": map[string]any{"ips": []string{"10.1.1.3"}, "mac": "02:00:00:00:00:33"}}
	for name, tt := range map[string]struct {
		keys    map[string]any
		args    string
		ip, mac string
	}{
		"CNI_ARGS": {nil, "IP=10.1.1.4;MAC=02:00:00:00:00:44", "10.1.1.4", "02:00:00:00:00:44"},
		"args":     {map[string]any{"args": args}, "IP=10.1.1.4", "10.1.1.3", "02:00:00:00:00:33"},
		"runtimeConfig": {
			map[string]any{
				"args":          args,
				"runtimeConfig": map[string]any{"ips": []string{"10.1.1.2"}, "mac": "02:00:00:00:00:22"},
			},
			"", "10.1.1.2", "02:00:00:00:00:22",
		},
	} {
		r := newRuntime(t)
		r.keys = tt.keys
		r.args.Args = tt.args
		req, _ := succeeds[*weftv1.AddRequest](r, "ADD")
		if !slices.Equal(req.GetIps(), []string{tt.ip}) || req.GetMac() != tt.mac {
			t.Errorf("%s: addresses %v, MAC %s", name, req.GetIps(), req.GetMac())
		}
	}
}

func TestAddRejectsInvalidRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*runtime)
		code   uint
		word   string
	}{
		"an invalid address": {
			func(r *runtime) { r.args.Args = "IP=10.1.1" }, types.ErrInvalidNetworkConfig, "10.1.1",
		},
		"an invalid MAC": {func(r *runtime) { r.args.Args = "MAC=02:00" }, types.ErrInvalidNetworkConfig, "02:00"},
		"an EUI-64": {
			func(r *runtime) { r.args.Args = "MAC=02:00:00:00:00:00:00:01" }, types.ErrInvalidNetworkConfig,
			"six octets",
		},
		"a netns with a line": {
			func(r *runtime) { r.args.Netns = "/run/netns/a\nb" }, types.ErrInvalidEnvironmentVariables, "CNI_NETNS",
		},
		"port mappings": {
			func(r *runtime) { r.keys["runtimeConfig"] = map[string]any{"portMappings": []int{80}} },
			types.ErrInvalidNetworkConfig, "portmap",
		},
		"an unknown key": {func(r *runtime) { r.keys["sokcet"] = "x" }, types.ErrInvalidNetworkConfig, "socket"},
		"a chain without a pod": {
			func(r *runtime) { r.keys["mode"] = "chained" }, types.ErrInvalidNetworkConfig, "prevResult",
		},
		"a long container id": {
			func(r *runtime) { r.args.ContainerID = strings.Repeat("c", 300) }, types.ErrInvalidEnvironmentVariables,
			"CNI_CONTAINERID",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t)
			tt.change(r)
			r.fails("ADD", tt.code, tt.word)
			if asked := r.Requests(); len(asked) > 0 {
				t.Errorf("the agent was asked %v", asked)
			}
		})
	}
}

func TestAddWaitsForAnAgentThatStarts(t *testing.T) {
	r := newRuntime(t)
	r.Behave(cnitest.Starting, cnitest.Unavailable, cnitest.Serve)
	if out, err := r.call("ADD"); err != nil || !strings.Contains(out, "10.1.1.7") || len(r.Requests()) != 3 {
		t.Errorf("%s, %v", out, err)
	}
}

func TestAddWithoutAnAgentReturnsTryAgainLater(t *testing.T) {
	withoutAgent(t).fails("ADD", types.ErrTryAgainLater, "agent not reachable at")
}

func TestAddReturnsTheErrorOfTheAgent(t *testing.T) {
	r := newRuntime(t)
	r.Error = &weftv1.Error{Code: 103, Msg: "annotation contivpp.io/custom-if: bad", Details: "see the docs"}
	r.Behave(cnitest.Refuse)
	r.fails("ADD", 103, "custom-if", "see the docs")
}

func TestAddDeletesAnAttachmentWhoseReplyIsInvalid(t *testing.T) {
	r := newRuntime(t)
	r.Behave(cnitest.Nonsense, cnitest.Serve)
	r.fails("ADD", types.ErrInternal, "10.1.1.300")
	requests := r.Requests()
	if len(requests) != 2 {
		t.Fatalf("requests %v", requests)
	}
	if del, is := requests[1].(*weftv1.DeleteRequest); !is || del.GetAttachment().GetContainerId() != "c1" {
		t.Errorf("after the ADD came %v", requests[1])
	}
}

func TestWeftIPAMHasAnAttachmentOfItsOwn(t *testing.T) {
	r := newRuntime(t)
	r.ipam = true
	own := map[string]any{"type": "weft-ipam", "socket": r.socket, "pool": "blue"}
	r.keys["ipam"] = own
	req, _ := succeeds[*weftv1.AddRequest](r, "ADD")
	if req.GetAttachment().GetNetwork() != "weft.weft-ipam" || req.GetMode() != "ipam" ||
		!slices.Equal(req.GetPools(), []string{"blue"}) {
		t.Errorf("the request is %v", req)
	}
}

func TestCheckSendsPrevResult(t *testing.T) {
	r := newRuntime(t)
	_, result := succeeds[*weftv1.AddRequest](r, "ADD")
	r.keys["prevResult"] = json.RawMessage(result)
	req, _ := succeeds[*weftv1.CheckRequest](r, "CHECK")
	if len(req.GetInterfaces()) != 1 || req.GetInterfaces()[0].GetMtu() != 1450 || len(req.GetIps()) != 1 ||
		req.GetIps()[0].GetAddress() != "10.1.1.7/32" || len(req.GetRoutes()) != 1 {
		t.Errorf("the request is %v", req)
	}
	r.Error = &weftv1.Error{Code: 110, Msg: "route missing"}
	r.Behave(cnitest.Refuse)
	r.fails("CHECK", 110, "route missing")
}

func TestCheckNeedsAPrevResult(t *testing.T) {
	newRuntime(t).fails("CHECK", types.ErrInvalidNetworkConfig, "prevResult")
}

func TestDelNeedsOnlyTheKey(t *testing.T) {
	r := newRuntime(t)
	r.args.Netns = ""
	r.args.Args = ""
	r.keys["timeout"] = "never"
	r.keys["unknown"] = true // no ADD would be served with these
	req, _ := succeeds[*weftv1.DeleteRequest](r, "DEL")
	if req.GetAttachment().GetContainerId() != "c1" || req.GetAttachment().GetIfName() != "eth0" {
		t.Errorf("the request is %v", req)
	}
}

func TestDelOfAnInvalidKeySucceeds(t *testing.T) {
	r := withoutAgent(t)
	r.args.ContainerID = strings.Repeat("c", 300)
	if out, err := r.call("DEL"); err != nil || out != "" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestDelWithoutAnAgentIsQueuedOnce(t *testing.T) {
	r := withoutAgent(t)
	for range 2 {
		if out, err := r.call("DEL"); err != nil || out != "" {
			t.Fatalf("%q, %v", out, err)
		}
	}
	queue, err := deletequeue.Open(filepath.Join(r.dir, "queue"))
	if err != nil {
		t.Fatal(err)
	}
	var queued []string
	_, failed, err := queue.Drain(t.Context(), func(e deletequeue.Entry) error {
		queued = append(queued, e.Key().String())
		return nil
	})
	if err != nil || failed > 0 || !slices.Equal(queued, []string{"weft/c1/eth0"}) {
		t.Errorf("queued: %v, %d failed, %v", queued, failed, err)
	}
}

func TestDelReturnsTheErrorOfTheAgent(t *testing.T) {
	r := newRuntime(t)
	r.Error = &weftv1.Error{Code: 100, Msg: "not allowed"}
	r.Behave(cnitest.Refuse)
	r.fails("DEL", 100, "not allowed")
}

func TestStatusReturnsOnlyCodesOfTheSpecification(t *testing.T) {
	for code, want := range map[uint32]uint{
		11:  types.ErrPluginNotAvailable,
		50:  types.ErrPluginNotAvailable,
		51:  types.ErrLimitedConnectivity,
		103: types.ErrPluginNotAvailable,
	} {
		r := newRuntime(t)
		r.Error = &weftv1.Error{Code: code, Msg: "why"}
		r.Behave(cnitest.Refuse)
		r.fails("STATUS", want, "why")
	}
	if out, err := newRuntime(t).call("STATUS"); err != nil || out != "" {
		t.Errorf("an agent that serves: %q, %v", out, err)
	}
}

func TestStatusSucceedsDuringTheGraceAfterTheAgentServed(t *testing.T) {
	r := withoutAgent(t)
	r.fails("STATUS", types.ErrPluginNotAvailable, "agent")
	if err := serving.Mark(r.socket); err != nil {
		t.Fatal(err)
	}
	if out, err := r.call("STATUS"); err != nil || out != "" {
		t.Errorf("within the grace: %q, %v", out, err)
	}
}

func TestGCSendsTheValidAttachments(t *testing.T) {
	for name, tt := range map[string]struct {
		valid any
		want  int
	}{
		"two": {
			[]map[string]string{{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c2", "ifname": "eth0"}}, 2,
		},
		"empty": {[]map[string]string{}, 0},
		"null":  {nil, 0},
	} {
		r := newRuntime(t)
		r.keys["cni.dev/valid-attachments"] = tt.valid
		req, _ := succeeds[*weftv1.CollectRequest](r, "GC")
		if len(req.GetValid()) != tt.want || req.GetNetwork() != "weft" {
			t.Errorf("%s: %v", name, req)
		}
	}
}

func TestGCWithoutAListRemovesNothing(t *testing.T) {
	r := newRuntime(t)
	if out, err := r.call("GC"); err != nil || out != "" || len(r.Requests()) > 0 {
		t.Errorf("%q, %v", out, err)
	}
}

func TestThePluginsOwnNetworkNamespaceIsRejected(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, word := range map[string]string{
		fmt.Sprintf("/proc/%d/ns/net", os.Getpid()): "runtime itself",
		file: "not a network namespace",
	} {
		n := netns{path: path}
		if err := n.validateFile(); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", path, err)
		}
		n.ownAllowed = true
		if err := n.validateFile(); err != nil {
			t.Errorf("%s with %s: %v", path, netnsOverride, err)
		}
	}
	missing := netns{path: file + ".missing"}
	if err := missing.validateFile(); err != nil {
		t.Errorf("a missing path is the agent's to check: %v", err)
	}
}

func TestDelIsQueuedOnlyIfTheAgentDidNotProcessIt(t *testing.T) {
	for name, tt := range map[string]struct {
		behaviour cnitest.Behaviour
		code      uint32 // of Refuse
		queued    int
		want      uint
	}{
		"an agent that starts":              {cnitest.Starting, 0, 1, 0},
		"an agent that is not available":    {cnitest.Unavailable, 0, 1, 0},
		"an event that timed out":           {cnitest.Refuse, 106, 1, 0},
		"a refusal":                         {cnitest.Refuse, 103, 0, 103},
		"the same code with other details":  {cnitest.Refuse, 11, 0, 11},
		"a caller without permission":       {cnitest.Deny, 0, 0, types.ErrInternal},
		"an agent that starts, then serves": {cnitest.Serve, 0, 0, 0},
	} {
		r := newRuntime(t)
		r.Error = &weftv1.Error{Code: tt.code, Msg: "why"}
		r.Behave(tt.behaviour)
		if tt.behaviour == cnitest.Serve {
			r.Behave(cnitest.Starting, cnitest.Serve)
		}
		_, err := r.call("DEL")
		var code uint
		if e, is := errors.AsType[*types.Error](err); is {
			code = e.Code
		}
		queue, openErr := deletequeue.Open(filepath.Join(r.dir, "queue"))
		if openErr != nil {
			t.Fatal(openErr)
		}
		if n, lenErr := queue.Len(); n != tt.queued || lenErr != nil || code != tt.want {
			t.Errorf("%s: %d DELs are queued, want %d; error %v, want code %d (%v)", name, n, tt.queued, err, tt.want,
				lenErr)
		}
	}
}

// The agent's second reply counts: it was asked under the lock, so it is not starting.
func TestDelReturnsTheErrorOfTheLastAttempt(t *testing.T) {
	r := newRuntime(t)
	r.Error = &weftv1.Error{Code: 103, Msg: "why"}
	r.Behave(cnitest.Starting, cnitest.Refuse)
	r.fails("DEL", 103, "why")
}

func TestDelReturnsTryAgainLaterWhileTheQueueIsLocked(t *testing.T) {
	c := callIn(t.TempDir())
	queue, err := deletequeue.Open(c.conf.DeleteQueue)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := queue.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	c.plugin.del.lock = 50 * time.Millisecond
	if e, is := errors.AsType[*types.Error](del(c)); !is || e.Code != types.ErrTryAgainLater {
		t.Errorf("error %v", e)
	}
}

func TestDelSendsThePodOnlyIfTheArgsAreValid(t *testing.T) {
	for args, want := range map[string]string{
		"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web":   "web",
		"K8S_POD_NAME=web":                          "",
		"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;A": "",
	} {
		r := newRuntime(t)
		r.args.Args = args
		if req, _ := succeeds[*weftv1.DeleteRequest](r, "DEL"); req.GetPod().GetName() != want {
			t.Errorf("%q: pod %v", args, req.GetPod())
		}
	}
}

func TestDelOfATooLongNetworkNameSucceeds(t *testing.T) {
	for _, ipam := range []bool{false, true} {
		r := withoutAgent(t)
		r.ipam = ipam
		r.keys["name"] = strings.Repeat("n", maxID+1)
		if out, err := r.call("DEL"); err != nil || out != "" {
			t.Errorf("weft-ipam %t: %q, %v", ipam, out, err)
		}
		if _, err := os.Stat(filepath.Join(r.dir, "queue")); err == nil {
			t.Errorf("weft-ipam %t: it is queued", ipam)
		}
	}
	r := newRuntime(t)
	r.keys["name"] = strings.Repeat("n", maxID+1)
	r.fails("ADD", types.ErrInvalidNetworkConfig, "more than 256 characters")
}

func TestAddSendsTheInterfaceOfModeDelegate(t *testing.T) {
	r := newRuntime(t)
	r.args.IfName = "net1"
	r.keys["mode"] = "delegate"
	r.keys["network"] = "blue"
	r.keys["interfaceType"] = "memif"
	r.keys["options"] = map[string]int{"ringSize": 512}
	r.keys["deviceID"] = "memif-2"
	r.keys["runtimeConfig"] = map[string]any{"deviceID": "memif-1"}
	req, _ := succeeds[*weftv1.AddRequest](r, "ADD")
	if req.GetMode() != "delegate" || req.GetInterfaceNetwork() != "blue" || req.GetInterfaceType() != "memif" ||
		req.GetInterfaceOptions() != `{"ringSize":512}` ||
		req.GetDeviceId() != "memif-1" || req.GetAttachment().GetIfName() != "net1" {
		t.Errorf("the request is %v", req)
	}
}

func TestAddInAChainKeepsPrevResult(t *testing.T) {
	r := newRuntime(t)
	r.keys["mode"] = "chained"
	r.keys["prevResult"] = json.RawMessage(`{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.2/24"}],"vendor":{"a":1}}`)
	if _, out := succeeds[*weftv1.AddRequest](r, "ADD"); !strings.Contains(out, "10.9.0.2/24") ||
		!strings.Contains(out, "10.1.1.7/32") || strings.Contains(out, "vendor") {
		t.Errorf("the reply is appended: %s", out)
	}
	r.Answer = nil
	if _, out := succeeds[*weftv1.AddRequest](r, "ADD"); !strings.Contains(out, `"vendor":{"a":1}`) {
		t.Errorf("nothing is appended, and unknown members are kept: %s", out)
	}
	r.keys["cniVersion"] = "1.0.0"
	if _, out := succeeds[*weftv1.AddRequest](r, "ADD"); !strings.Contains(out, `"cniVersion": "1.0.0"`) ||
		strings.Contains(out, "vendor") {
		t.Errorf("another version is converted: %s", out)
	}
}

func TestAddReportsAFailedUndo(t *testing.T) {
	r := newRuntime(t)
	r.Error = &weftv1.Error{Code: 103, Msg: "in use"}
	r.Behave(cnitest.Nonsense, cnitest.Refuse)
	r.fails("ADD", types.ErrInternal, "10.1.1.300", "the undo failed: in use")
}

func TestStatusDuringTheGraceReturnsErrorsThatDoNotEndByThemselves(t *testing.T) {
	for name, tt := range map[string]struct {
		behaviour cnitest.Behaviour
		succeeds  bool
	}{
		"the first resync runs":       {cnitest.Restoring, true},
		"not available yet":           {cnitest.Unavailable, true},
		"no reply in time":            {cnitest.Hang, true},
		"a caller without permission": {cnitest.Deny, false},
		"a refusal":                   {cnitest.Refuse, false},
	} {
		r := newRuntime(t)
		r.Error = &weftv1.Error{Code: 51, Msg: "no uplink"}
		if err := serving.Mark(r.socket); err != nil {
			t.Fatal(err)
		}
		r.Behave(tt.behaviour)
		if _, err := r.call("STATUS"); (err == nil) != tt.succeeds {
			t.Errorf("%s: %v", name, err)
		}
	}
}
