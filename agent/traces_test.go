package agent

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/agent/tracing/tracingtest"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// Trace IDs of a runtime, and the ID of its span.
const (
	goodTrace   = "0af7651916cd43dd8448eb211c80319c"
	badTrace    = "1af7651916cd43dd8448eb211c80319c"
	runtimeSpan = "b7ad6b7169203331"
)

// traced executes the plugin as a runtime with a trace does.
func (l *lab) traced(p *node.Pod, trace string) error {
	cmd := exec.CommandContext(l.Context(), l.Program("weft-cni"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+p.ContainerID, "CNI_NETNS="+p.Netns,
		"CNI_IFNAME=eth0", "CNI_PATH=/",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=lab;K8S_POD_NAME="+p.Name,
		"TRACEPARENT=00-"+trace+"-"+runtimeSpan+"-01", "TRACESTATE=weft=é")
	cmd.Stdin = strings.NewReader(string(l.netconf(nil)))
	out, err := cmd.CombinedOutput()
	if err == nil {
		err = errorOf(out)
	}
	return err
}

func TestTraceOfTheRuntimeLeadsToTheDataplane(t *testing.T) {
	receiver := tracingtest.GRPC(t)
	l := newLabWith(t, programs.Build(t), node.Options{HTTP: endpointAddress, Tracing: receiver.URL})
	if err := l.traced(l.pod("a"), goodTrace); err != nil {
		t.Fatal(err)
	}
	b := l.pod("b")
	netnstest.Do(t, b.Netns, func() { occupyDefaultRoute(t) })
	if err := l.traced(b, badTrace); err == nil {
		t.Fatal("an ADD with an existing default route succeeds")
	}
	trees := map[string][]string{
		goodTrace: {
			"CNI ADD\n  event AddPod\n", "\n    load\n", "\n    queue\n",
			"\n    handlers\n      handler podmanager\n", "\n      handler ipnet\n",
			"\n    commit\n      transaction\n        plan\n", "\n        create vpp.interface\n",
			"\n        create linux.route\n", "\n    save\n",
		},
		badTrace: {
			"CNI ADD !\n  event AddPod !\n",
			"\n    commit !\n      transaction !\n", "\n        create linux.route !\n",
			"\n        rollback\n          delete ", "\n    undo\n",
		},
	}
	for trace, parts := range trees {
		l.eventually("the spans of the trace arrive", func() bool {
			tree := receiver.Tree(trace, runtimeSpan)
			return strings.Contains(tree, "transaction") && strings.HasPrefix(tree, "CNI ADD")
		})
		tree := receiver.Tree(trace, runtimeSpan)
		for _, part := range parts {
			if !strings.Contains(tree, part) {
				t.Errorf("the trace lacks %q:\n%s", part, tree)
			}
		}
		if trace == goodTrace && strings.Contains(tree, "!") {
			t.Errorf("a span of a successful ADD failed:\n%s", tree)
		}
		for _, s := range receiver.Spans(trace) {
			if s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
				t.Errorf("%s ends before it begins", s.GetName())
			}
		}
	}
	l.metric(`weft_trace_spans_total{result="exported"}`, atLeast(20))
}

func TestReceiverOfSpansThatHangsDelaysNoPod(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{HTTP: endpointAddress, Tracing: tracingtest.Hanging(t)})
	began := time.Now()
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := l.traced(l.pod(name), goodTrace); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("4 ADDs took %s", took)
	}
	began = time.Now()
	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the agent's end took %s", took)
	}
}
