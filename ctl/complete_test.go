package ctl_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/ctl"
)

// kubectl runs kubectl_complete-weft with the words of the command line; the last one is incomplete.
func TestPluginCompletesPodsAndNodesOfTheCluster(t *testing.T) {
	a := newAgents(t, says, "n1", "n2")
	a.node("m1", corev1.ConditionTrue)
	for _, name := range []string{"shop/cart", "shop/db", "lab/cart"} {
		namespace, name, _ := strings.Cut(name, "/")
		a.Put("pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	for _, tt := range []struct {
		plugin bool
		line   []string
		want   []string
	}{
		{true, []string{"pod", "shop/"}, []string{"shop/cart", "shop/db"}},
		{true, []string{"pod", "l"}, []string{"lab/cart"}},
		{true, []string{"pod", "shop/cart", ""}, nil},
		{true, []string{"attachments", "shop/c"}, []string{"shop/cart"}},
		{true, []string{"counters", "--pod", "shop/d"}, []string{"shop/db"}},
		{true, []string{"status", "--node", "n"}, []string{"n1\tagent weft-agent-n1", "n2\tagent weft-agent-n2"}},
		{true, []string{"status", "--node=n1,n2"}, []string{"n1,n2\tagent weft-agent-n2"}},
		{true, []string{"status", "-o", ""}, []string{"table", "wide", "json", "yaml", "name", "jsonpath="}},
		{true, []string{"pod", "-n", ""}, nil},
		{true, []string{"policy", "--from", ""}, nil},
		{true, []string{"policy", "--to", ""}, nil},
		{true, []string{"gc", "--force", ""}, nil},
		{false, []string{"pod", "--node", "n1", "shop/"}, []string{"shop/cart", "shop/db"}},
		{false, []string{"pod", "shop/"}, nil}, // this node has no agent
	} {
		args := ctl.Arguments("/usr/local/bin/kubectl_complete-weft",
			append([]string{"--kubeconfig=" + a.kubeconfig}, tt.line...))
		var out, failures strings.Builder
		code := ctl.Main(t.Context(), ctl.Env{In: strings.NewReader(""), Out: &out, Err: &failures, Plugin: tt.plugin},
			args)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		directive := lines[len(lines)-1]
		if got := lines[:len(lines)-1]; code != 0 || directive != ":4" ||
			!slices.Equal(got, tt.want) && len(got)+len(tt.want) > 0 {
			t.Errorf("%q of the plugin (%v): exit code %d, %q, want %q without files\n%s", tt.line, tt.plugin, code,
				lines, tt.want, failures.String())
		}
	}
}

func TestCompletionWithoutAClusterIsEmpty(t *testing.T) {
	a := newAgents(t, says, "n1")
	a.Disconnect()
	for _, line := range []string{"pod ", "status --node "} {
		args := append([]string{"__complete", "--kubeconfig=" + a.kubeconfig}, strings.Split(line, " ")...)
		var out, failures strings.Builder
		if code := ctl.Main(t.Context(), ctl.Env{In: strings.NewReader(""), Out: &out, Err: &failures, Plugin: true},
			args); code != 0 || out.String() != ":4\n" {
			t.Errorf("%q: exit code %d, %q", line, code, out.String())
		}
	}
}

func TestOnlyTheCompleterCompletes(t *testing.T) {
	for program, want := range map[string]string{
		"/usr/bin/kubectl_complete-weft": "__complete pod",
		"/usr/bin/kubectl-weft":          "pod",
		"weftctl":                        "pod",
	} {
		if got := strings.Join(ctl.Arguments(program, []string{"pod"}), " "); got != want {
			t.Errorf("%s runs %q, want %q", program, got, want)
		}
	}
	if !ctl.IsPlugin("/usr/bin/kubectl_complete-weft") {
		t.Error("the completer is not the plugin")
	}
}
