package fleet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/exec"
	"github.com/weftnet/weft/k8s/fleet"
	"github.com/weftnet/weft/k8s/k8stest"
)

// created is the time at which the first agents were created.
var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var running = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}

// lab is a cluster, and access to its agents.
type lab struct {
	*k8stest.Server
	*fleet.Fleet
}

func newLab(t *testing.T) lab {
	t.Helper()
	s := k8stest.New(t)
	c, err := client.New(s.Connection())
	if err != nil {
		t.Fatal(err)
	}
	return lab{s, fleet.New(c, "")}
}

func (l lab) node(name, system string, ready corev1.ConditionStatus) {
	l.Put("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: system}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	})
}

// agent adds the pod of an agent: its name is NODE-NUMBER, and a higher number is newer.
func (l lab) agent(node string, number int, phase corev1.PodPhase, state corev1.ContainerState) {
	l.Put("pods", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "weft-system",
			Name:              node + "-" + string(rune('0'+number)),
			CreationTimestamp: metav1.NewTime(created.Add(time.Duration(number) * time.Hour)),
			Labels: map[string]string{
				"app.kubernetes.io/name":      "weft",
				"app.kubernetes.io/component": "agent",
			},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{
			{Name: "vpp", Image: "vpp:1"}, {Name: "agent", Image: "weft:1", ImagePullPolicy: corev1.PullNever},
		}},
		Status: corev1.PodStatus{
			Phase:             phase,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "vpp", State: running}, {Name: "agent", State: state}},
		},
	})
}

func TestNodesHaveTheNewestRunningAgentOrAReason(t *testing.T) {
	l := newLab(t)
	l.node("windows", "windows", corev1.ConditionTrue)
	for _, name := range []string{"renewed", "crashing", "ended", "pending", "bare"} {
		l.node(name, "linux", corev1.ConditionTrue)
	}
	l.node("away", "", corev1.ConditionUnknown)
	l.agent("renewed", 1, corev1.PodRunning, running)
	l.agent("renewed", 2, corev1.PodRunning, running)
	l.agent("renewed", 3, corev1.PodPending, corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"},
	})
	l.agent("crashing", 1, corev1.PodRunning, corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"},
	})
	l.agent("ended", 1, corev1.PodRunning, corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled"},
	})
	l.agent("pending", 1, corev1.PodPending, corev1.ContainerState{})
	l.agent("away", 1, corev1.PodRunning, running)
	nodes, err := l.Nodes(t.Context())
	want := []fleet.Node{
		{Name: "away", Agent: "away-1"},
		{
			Name:   "bare",
			Ready:  true,
			Absent: "no agent: namespace weft-system has no pod with the labels app.kubernetes.io/name=weft,app.kubernetes.io/component=agent on this node",
		},
		{Name: "crashing", Ready: true, Absent: "its agent crashing-1 does not run: CrashLoopBackOff"},
		{Name: "ended", Ready: true, Absent: "its agent ended-1 does not run: OOMKilled"},
		{Name: "pending", Ready: true, Absent: "its agent pending-1 does not run: Pending"},
		{Name: "renewed", Ready: true, Agent: "renewed-2"},
	}
	if err != nil || !reflect.DeepEqual(nodes, want) {
		t.Errorf("error %v, nodes\n%+v\nwant\n%+v", err, nodes, want)
	}
}

func TestNodesAreChosenByNameInTheirOrder(t *testing.T) {
	var nodes []fleet.Node
	for _, name := range strings.Fields("a b c d e f g") {
		nodes = append(nodes, fleet.Node{Name: name})
	}
	chosen, err := fleet.Choose(nodes, []string{"f", "b", "b"})
	if err != nil || len(chosen) != 2 || chosen[0].Name != "b" || chosen[1].Name != "f" {
		t.Errorf("chosen %v, %v", chosen, err)
	}
	for names, want := range map[int]string{
		7: `the cluster has no node "x"; it has a, b, c, d, e, 2 more`,
		1: `the cluster has no node "x"; it has a`,
		0: `the cluster has no node "x"; it has none`,
	} {
		if _, err := fleet.Choose(nodes[:names], []string{"x"}); err == nil || err.Error() != want {
			t.Errorf("of %d nodes: %v, want %s", names, err, want)
		}
	}
}

func TestUnreadableClusterIsAnError(t *testing.T) {
	l := newLab(t)
	l.node("n1", "linux", corev1.ConditionTrue)
	for _, resource := range []string{"nodes", "pods"} {
		l.Fail(func(r *http.Request) int {
			if strings.Contains(r.URL.Path, "/"+resource) {
				return http.StatusForbidden
			}
			return 0
		})
		if nodes, err := l.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), resource) || nodes != nil {
			t.Errorf("%s cannot be read: nodes %v, error %v", resource, nodes, err)
		}
	}
}

func TestNodeOfAPod(t *testing.T) {
	l := newLab(t)
	l.Put("pods", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "a"},
		Spec:       corev1.PodSpec{NodeName: "n2"},
	})
	l.Put("pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "b"}})
	if node, err := l.NodeOf(t.Context(), "lab", "a"); node != "n2" || err != nil {
		t.Errorf("node %q, %v", node, err)
	}
	for name, want := range map[string]string{
		"b": "pod lab/b has no node: it is not scheduled yet",
		"c": "there is no pod lab/c; set --node for a pod that was deleted",
	} {
		if _, err := l.NodeOf(t.Context(), "lab", name); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestWeftctlRunsBesideTheAgent(t *testing.T) {
	l := newLab(t)
	l.agent("n1", 1, corev1.PodRunning, running)
	l.OnExec(func(x k8stest.Exec) int {
		if x.Namespace != "weft-system" || x.Pod != "n1-1" || x.Container != "agent" ||
			!slices.Equal(x.Command, []string{"/usr/local/bin/weftctl", "objects", "--", "-x"}) {
			t.Errorf("run in %s/%s/%s: %q", x.Namespace, x.Pod, x.Container, x.Command)
		}
		_, _ = io.WriteString(x.Out, "some")
		return 3
	})
	var out bytes.Buffer
	err := l.Weftctl(t.Context(), fleet.Node{Name: "n1", Agent: "n1-1"}, []string{"objects", "--", "-x"}, exec.Streams{
		Out: &out,
	})
	if exit, ok := errors.AsType[exec.ExitError](err); !ok || exit.Code != 3 || out.String() != "some" {
		t.Errorf("error %v, output %q", err, out.String())
	}
}

// A node whose agent accepts the command and prints a part only.
func TestNodeThatStopsAnsweringIsBoundedByTheContext(t *testing.T) {
	l := newLab(t)
	l.agent("n1", 1, corev1.PodRunning, running)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.OnExec(func(x k8stest.Exec) int {
		_, _ = io.WriteString(x.Out, "half")
		_, _ = io.Copy(io.Discard, x.In)
		return 0
	})
	hold, end := io.Pipe()
	defer end.Close()
	out := writer(func(p []byte) {
		if string(p) == "half" {
			cancel()
		}
	})
	err := l.Weftctl(ctx, fleet.Node{Name: "n1", Agent: "n1-1"}, []string{"objects"}, exec.Streams{In: hold, Out: out})
	if !errors.Is(err, context.Canceled) || errors.As(err, new(exec.ExitError)) {
		t.Errorf("error %v", err)
	}
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func TestAbsentAgentSaysWhyWithoutARequest(t *testing.T) {
	l := newLab(t)
	node := fleet.Node{Name: "n1", Absent: "its agent n1-1 does not run: CrashLoopBackOff"}
	err := l.Weftctl(t.Context(), node, []string{"objects"}, exec.Streams{})
	_, _, imageErr := l.Image(t.Context(), node)
	for _, err := range []error{err, imageErr} {
		if absent, ok := errors.AsType[fleet.AbsentError](err); !ok || absent.Error() != node.Absent {
			t.Errorf("error %v", err)
		}
	}
	if requests := l.Requests(); len(requests) > 0 {
		t.Errorf("requests %q", requests)
	}
}

func TestImageIsThatOfTheAgentsContainer(t *testing.T) {
	l := newLab(t)
	l.agent("n1", 1, corev1.PodRunning, running)
	image, policy, err := l.Image(t.Context(), fleet.Node{Agent: "n1-1"})
	if image != "weft:1" || policy != corev1.PullNever || err != nil {
		t.Errorf("image %q, %s, %v", image, policy, err)
	}
	l.Put("pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "weft-system", Name: "other"}})
	if _, _, err := l.Image(t.Context(), fleet.Node{Agent: "other"}); err == nil ||
		err.Error() != "pod weft-system/other has no container agent with an image" {
		t.Errorf("error %v", err)
	}
	if _, _, err := l.Image(t.Context(), fleet.Node{Agent: "gone"}); err == nil ||
		!strings.Contains(err.Error(), "weft-system/gone") {
		t.Errorf("error %v", err)
	}
}
