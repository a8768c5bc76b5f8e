package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/k8s/k8stest"
)

// agents is a cluster whose agents' pods run the weftctl of this test.
type agents struct {
	*k8stest.Server
	t          *testing.T
	kubeconfig string

	mu   sync.Mutex
	runs []string // NODE ARGUMENTS, sorted when read
}

// agentLabels are the labels of agents' pods in the chart.
var agentLabels = map[string]string{"app.kubernetes.io/name": "weft", "app.kubernetes.io/component": "agent"}

// newAgents starts an API server with agents on the nodes. weftctl is what runs beside them.
func newAgents(t *testing.T, weftctl func(node string, x k8stest.Exec) int, nodes ...string) *agents {
	a := &agents{Server: k8stest.New(t), t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := writeKubeconfig(a.kubeconfig, a.Connection().Host); err != nil {
		t.Fatal(err)
	}
	for _, name := range nodes {
		a.node(name, corev1.ConditionTrue)
		a.agent(name, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	}
	a.OnExec(func(x k8stest.Exec) int {
		node := strings.TrimPrefix(x.Pod, "weft-agent-")
		if x.Namespace != "weft-system" || x.Container != "agent" || x.Command[0] != "/usr/local/bin/weftctl" {
			t.Errorf("run in %s/%s/%s: %q", x.Namespace, x.Pod, x.Container, x.Command)
		}
		a.mu.Lock()
		a.runs = append(a.runs, node+" "+strings.Join(x.Command[1:], " "))
		a.mu.Unlock()
		return weftctl(node, x)
	})
	return a
}

func (a *agents) node(name string, ready corev1.ConditionStatus) {
	a.Put("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	})
}

func (a *agents) agent(node string, state corev1.ContainerState) {
	phase := corev1.PodRunning
	if state.Running == nil {
		phase = corev1.PodPending
	}
	a.Put("pods", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "weft-system", Name: "weft-agent-" + node, Labels: agentLabels},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase:             phase,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "agent", State: state}},
		},
	})
}

// ran returns what ran beside the agents.
func (a *agents) ran() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.runs)
	return a.runs
}

// run runs kubectl weft, or weftctl, with the kubeconfig of the cluster.
func (a *agents) run(plugin bool, args ...string) (stdout, stderr string, code int) {
	return a.runWith(a.t.Context(), plugin, args...)
}

func (a *agents) runWith(ctx context.Context, plugin bool, args ...string) (stdout, stderr string, code int) {
	a.t.Helper()
	var out, failures bytes.Buffer
	env := ctl.Env{In: strings.NewReader(""), Out: &out, Err: &failures, Plugin: plugin}
	code = ctl.Main(ctx, env, append(args, "--kubeconfig", a.kubeconfig))
	return out.String(), failures.String(), code
}

// says is a weftctl that prints its node, as a table or as JSON.
func says(node string, x k8stest.Exec) int {
	text := "hello from " + node + "\n"
	if slices.Contains(x.Command, "--output=json") {
		text = fmt.Sprintf("{\"name\": %q}\n", node)
	}
	_, _ = io.WriteString(x.Out, text)
	return 0
}

func (a *agents) mustPrint(plugin bool, want string, args ...string) {
	a.t.Helper()
	if out, failures, code := a.run(plugin, args...); code != 0 || out != want || failures != "" {
		a.t.Errorf("%v: exit code %d, output\n%s\nerrors\n%s\nwant\n%s", args, code, out, failures, want)
	}
}

func TestPluginRunsReadingCommandsOnAllNodes(t *testing.T) {
	a := newAgents(t, says, "n2", "n1")
	a.mustPrint(true, "node n1\nhello from n1\n\nnode n2\nhello from n2\n", "objects", "vpp.route", "--timeout", "3s")
	want := []string{
		"n1 objects --timeout=3s --output=table -- vpp.route", "n2 objects --timeout=3s --output=table -- vpp.route",
	}
	if got := a.ran(); !slices.Equal(got, want) {
		t.Errorf("ran %q", got)
	}
}

func TestNamesAndTemplatesOfSeveralNodes(t *testing.T) {
	a := newAgents(t, says, "n1", "n2")
	a.mustPrint(true, "hello from n1\nhello from n2\n", "attachments", "-o", "name")
	a.mustPrint(true, "n1 n2\n", "attachments", "-o", "jsonpath={.nodes[*].output.name}")
	a.mustPrint(true, "node n1\nhello from n1\n\nnode n2\nhello from n2\n", "attachments", "-n", "shop")
	want := []string{
		"n1 attachments --namespace=shop --output=table", "n1 attachments --output=json",
		"n1 attachments --output=name",
	}
	if got := a.ran(); !slices.Equal(got[:3], want) {
		t.Errorf("ran %q", got)
	}
}

func TestAnswersOfNodesAreOneDocument(t *testing.T) {
	a := newAgents(t, says, "n1", "n2")
	out, _, code := a.run(false, "devices", "--all-nodes", "-o", "json")
	var got struct {
		Nodes []struct {
			Node   string
			Output struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || len(got.Nodes) != 2 ||
		got.Nodes[1].Output.Name != "n2" {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	a.mustPrint(false, "nodes:\n- node: n1\n  output:\n    name: n1\n- node: n2\n  output:\n    name: n2\n", "devices",
		"--node", "n1,n2", "-o", "yaml")
}

func TestOutputOfOneNamedNodeIsPassedThrough(t *testing.T) {
	binary := "\x00\xff\n\nno newline at the end"
	a := newAgents(t, func(_ string, x k8stest.Exec) int {
		_, _ = io.WriteString(x.Out, binary)
		return 0
	}, "n1", "n2")
	a.mustPrint(false, binary, "devices", "--node", "n2")
	if got := a.ran(); !slices.Equal(got, []string{"n2 devices --output=table"}) {
		t.Errorf("ran %q", got)
	}
}

func TestNodesThatDidNotAnswerAreNamed(t *testing.T) {
	a := newAgents(t, func(node string, x k8stest.Exec) int {
		if node == "n2" {
			_, _ = io.WriteString(x.Err, "weftctl: no agent answers at /run/weft/agent.sock\n")
			return 1
		}
		return says(node, x)
	}, "n1", "n2")
	a.node("n3", corev1.ConditionTrue)
	a.node("n4", corev1.ConditionFalse)
	a.agent("n4", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}})
	out, failures, code := a.run(true, "devices")
	wantErr := "" +
		`node n2: no agent answers at /run/weft/agent.sock
node n3 did not answer: no agent: namespace weft-system has no pod with the labels app.kubernetes.io/name=weft,app.kubernetes.io/component=agent on this node
` + `node n4 did not answer: its agent weft-agent-n4 does not run: ImagePullBackOff
kubectl weft: the command failed on 1 of 4 nodes; 2 of 4 nodes did not answer
`
	if code != 1 || failures != wantErr || out != "node n1\nhello from n1\n\nnode n2\n" {
		t.Errorf("exit code %d, output\n%s\nerrors\n%s", code, out, failures)
	}
	out, _, code = a.run(true, "devices", "-o", "json")
	if code != 1 || !strings.Contains(out, `"error": "its agent weft-agent-n4 does not run: ImagePullBackOff"`) {
		t.Errorf("exit code %d, output %s", code, out)
	}
}

func TestSilentNodeIsBoundedByItsTimeout(t *testing.T) {
	a := newAgents(t, func(node string, x k8stest.Exec) int {
		if node != "n2" {
			return says(node, x)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, x.In)
		}()
		select {
		case <-ended:
		case <-time.After(k8stest.Patience):
		}
		return 0
	}, "n1", "n2")
	out, failures, code := a.run(true, "devices", "--node-timeout", "700ms")
	if code != 1 || !strings.Contains(out, "hello from n1") ||
		!strings.Contains(failures, "node n2 did not answer: no answer within 700ms; set a longer --node-timeout\n") {
		t.Errorf("exit code %d, output\n%s\nerrors\n%s", code, out, failures)
	}
}

func TestNodeOfAPodAnswers(t *testing.T) {
	a := newAgents(t, says, "n1", "n2")
	a.Put("pods", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "a"},
		Spec:       corev1.PodSpec{NodeName: "n2"},
	})
	a.Put("pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "b"}})
	a.mustPrint(true, "hello from n2\n", "counters", "--pod", "lab/a")
	a.mustPrint(true, "hello from n2\n", "-n", "lab", "counters", "--pod", "a")
	a.mustPrint(true, "hello from n2\n", "pod", "a", "-n", "lab")
	if ran := a.ran(); slices.ContainsFunc(ran, func(line string) bool {
		return strings.Contains(line, "namespace") || !strings.Contains(line, "lab/a")
	}) {
		t.Errorf("ran %q: the name of the pod has the namespace", ran)
	}
	for args, want := range map[string]string{
		"counters --pod lab/b":   "pod lab/b has no node: it is not scheduled yet",
		"counters --pod lab/x":   "there is no pod lab/x; set --node for a pod that was deleted",
		"devices --node n9":      `the cluster has no node "n9"; it has n1, n2`,
		"quarantine release a/b": "there is no pod a/b; set --node for a pod that was deleted",
	} {
		if _, failures, code := a.run(true, strings.Fields(args)...); code != 1 ||
			failures != "kubectl weft: "+want+"\n" {
			t.Errorf("%s: exit code %d: %s", args, code, failures)
		}
	}
}

func TestChangesNeedAChoiceOfNodes(t *testing.T) {
	a := newAgents(t, says, "n1", "n2")
	for args, want := range map[string]string{
		"resync":                         "resync changes the state of nodes: choose them with --node NAME or --all-nodes",
		"gc":                             "gc changes the state of nodes: choose them with --node NAME or --all-nodes",
		"devices --node n1 --all-nodes":  "--node and --all-nodes exclude each other",
		"devices --node n1 --socket /a":  "--socket names an agent of this machine: it excludes --node and --all-nodes",
		"devices --node= ":               "--node: the name is empty",
		"devices --node-timeout -1s":     "--node-timeout -1s: must be positive",
		"frobnicate --all-nodes":         `unknown command "frobnicate"; kubectl weft --help lists them`,
		"objects a b --node n1":          "objects: accepts at most 1 arg(s), received 2",
		"resync sideways --node n1":      "resync: invalid argument \"sideways\" for \"kubectl weft resync\"",
		"devices --node n1 --output xml": `--output "xml": must be table, wide, json, yaml, name or jsonpath=TEMPLATE`,
	} {
		if _, failures, code := a.run(true, strings.Fields(args)...); code != 2 ||
			!strings.HasPrefix(failures, "kubectl weft: "+want) {
			t.Errorf("%s: exit code %d: %s", args, code, failures)
		}
	}
	if got := a.ran(); len(got) > 0 {
		t.Errorf("ran %q", got)
	}
	a.mustPrint(true, "node n1\nhello from n1\n\nnode n2\nhello from n2\n", "gc", "--dry-run")
	a.mustPrint(true, "hello from n1\n", "resync", "--node", "n1")
}

func TestStreamsHaveTheNodeBeforeEachLine(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var ended sync.WaitGroup
	ended.Add(2)
	a := newAgents(t, func(node string, x k8stest.Exec) int {
		defer ended.Done()
		_, _ = fmt.Fprintf(x.Out, "event 1 of %s\nevent 2", node)
		_, _ = fmt.Fprintf(x.Out, " of %s\n", node)
		_, _ = io.Copy(io.Discard, x.In)
		return 0
	}, "n1", "node-2")
	var out eventuallyBuffer
	done := make(chan int)
	go func() {
		env := ctl.Env{In: strings.NewReader(""), Out: &out, Err: &out, Plugin: true}
		done <- ctl.Main(ctx, env, []string{"events", "-f", "--kubeconfig", a.kubeconfig})
	}()
	k8stest.Eventually(t, "all lines arrive", func() bool { return strings.Count(out.String(), "\n") == 4 })
	stop()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d", code)
	}
	ended.Wait() // the programs on the nodes see that the operator is gone
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(got)
	want := []string{
		"n1      event 1 of n1", "n1      event 2 of n1", "node-2  event 1 of node-2", "node-2  event 2 of node-2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("output %q", got)
	}
	if got := a.ran(); got[0] != "n1 --end-with-input events --follow=true --output=table" {
		t.Errorf("ran %q", got)
	}
}

// eventuallyBuffer is a buffer that a test reads while a program writes.
type eventuallyBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *eventuallyBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *eventuallyBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestFilesOfTheOperatorAreSentToTheNodes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(file, []byte("a: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAgents(t, func(_ string, x k8stest.Exec) int {
		_, err := io.Copy(x.Out, x.In)
		if err != nil {
			return 1
		}
		return 0
	}, "n1", "n2")
	a.mustPrint(true, "node n1\na: b\n\nnode n2\na: b\n", "configure", "lab", file, "--all-nodes")
	if got := a.ran(); got[0] != "n1 configure --output=table -- lab -" {
		t.Errorf("ran %q", got)
	}
}

func TestMissingPermissionIsExplained(t *testing.T) {
	a := newAgents(t, says, "n1")
	a.Fail(func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/exec") {
			return http.StatusForbidden
		}
		return 0
	})
	_, failures, code := a.run(true, "devices")
	if code != 1 || !strings.Contains(failures, "node n1 did not answer: exec in weft-agent-n1/agent: ") {
		t.Errorf("exit code %d: %s", code, failures)
	}
	var methods []string
	for _, request := range a.Requests() {
		if strings.Contains(request, "/exec?") {
			methods = append(methods, strings.Fields(request)[0])
		}
	}
	if !slices.Equal(methods, []string{"GET", "POST"}) { // WebSocket, then SPDY
		t.Errorf("requests %v", methods)
	}
}

// A hung node waits for its timeout, and 32 of them at a time would add up.
func TestCommandOnManyNodesHasOneBudget(t *testing.T) {
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("n%03d", i))
	}
	hang := make(chan struct{})
	a := newAgents(t, func(string, k8stest.Exec) int {
		<-hang
		return 0
	}, names...)
	defer close(hang)
	for _, command := range []string{"status", "objects"} {
		before := len(a.ran())
		out, messages, code := a.run(true, command, "--node-timeout", "1s", "-o", "json")
		all := out + messages
		runs := len(a.ran()) - before
		if code != 1 || runs == 0 || runs >= len(names) || !strings.Contains(all, "no answer within 1s") ||
			!strings.Contains(all, "the whole command has taken 3s; choose fewer nodes, or set a longer --node-timeout") {
			t.Errorf("%s: exit code %d after %d runs\n%s", command, code, runs, all)
		}
	}
}

// The state of the cluster comes from the API server, which may be as slow as the nodes.
func TestStatusReadsTheClusterWhileNodesAnswer(t *testing.T) {
	read := make(chan struct{})
	a := newAgents(t, func(_ string, x k8stest.Exec) int {
		<-read
		_, _ = io.WriteString(x.Out, `{"ready":true}`)
		return 0
	}, "n1")
	var once sync.Once
	a.Fail(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/customnetworks") {
			once.Do(func() { close(read) })
		}
		return 0
	})
	out, messages, _ := a.run(true, "status", "--node-timeout", "5s", "-o", "json")
	once.Do(func() { close(read) })
	if !strings.Contains(out, `"answered": true`) {
		t.Errorf("messages %s\n%s", messages, out)
	}
}
