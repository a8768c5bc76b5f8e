package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// refusalOf parses the error that the plugin printed.
func refusalOf(t *testing.T, printed string) (code int, msg string) {
	t.Helper()
	var e struct {
		Code int    `json:"code"`
		Msg  string `json:"msg"`
	}
	if err := json.Unmarshal([]byte(printed), &e); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	return e.Code, e.Msg
}

// exhaust adds pods until an ADD fails, and returns their number, and the last pod.
func (l *lab) exhaust() (count int, last *node.Pod, output string) {
	l.Helper()
	for i := range 20 {
		p := l.pod(fmt.Sprint("p", i))
		output, failed := l.tries("ADD", p)
		if failed {
			return i, p, output
		}
		l.Cleanup(func() { _, _ = l.tries("DEL", p) })
	}
	l.Fatal("the pool is not exhausted")
	return 0, nil, ""
}

func TestAddFailsWhenPoolIsExhausted(t *testing.T) {
	server := k8stest.New(t)
	size := int32(30)
	server.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       v1.IPPoolSpec{CIDR: "10.9.0.0/29", BlockSize: &size},
	})
	server.Put("ipblocks.contivpp.io", &v1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "10.9.0.0-30"},
		Spec:       v1.IPBlockSpec{CIDR: "10.9.0.0/30", Pool: "pods", Node: "n2"},
	})
	l := clusterLabWith(t, server, node.Options{ClusterPools: true})
	for i := range 20 {
		l.put(server, &node.Pod{Name: fmt.Sprint("p", i)}, nil)
	}
	l.eventually("the agent has the cluster's objects", func() bool { return len(announced(server)) > 0 })
	count, last, output := l.exhaust()
	code, msg := refusalOf(t, output)
	want := "pool exhausted: all blocks of pool pods (10.9.0.0/29, 2 blocks of 4 addresses) are claimed, and this node has no free address; delete pods, add an IPPool"
	if count == 0 || code != 100 || !strings.Contains(msg, want) {
		t.Errorf("after %d pods ADD failed with %d %s, want %q", count, code, msg, want)
	}
	if output, failed := l.tries("STATUS", last); failed {
		t.Errorf("STATUS fails on a node with exhausted pools: %s", output)
	}
}

// To wait for a further block is in vain, although the pool has free ones.
func TestAddDoesNotWaitForABlockOnANodeWithTheMostBlocks(t *testing.T) {
	server := k8stest.New(t)
	size := int32(30)
	most := int32(1)
	server.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       v1.IPPoolSpec{CIDR: "10.9.0.0/24", BlockSize: &size},
	})
	server.Put("weftconfigs.contivpp.io", &v1.WeftConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       v1.WeftConfigSpec{Addresses: v1.AddressesSpec{MaxBlocks: &most}},
	})
	l := clusterLabWith(t, server, node.Options{ClusterPools: true})
	for i := range 20 {
		l.put(server, &node.Pod{Name: fmt.Sprint("p", i)}, nil)
	}
	l.restartKnown("--kubernetes-block-wait=1m")
	count, last, _ := l.exhaust()
	began := time.Now()
	output := l.fails(last)
	took := time.Since(began)
	if code, msg := refusalOf(t, output); count == 0 || code != 100 {
		t.Errorf("after %d pods ADD failed with %d %s", count, code, msg)
	}
	if took > 40*time.Second {
		t.Errorf("the ADD failed after %s", took)
	}
}

func TestStatusFailsWhenPoolsAreExhaustedIfConfiguredSo(t *testing.T) {
	netnstest.RequireTap(t)
	l := newLab(t, programs.Build(t))
	if err := l.KillAgent(); err != nil {
		t.Fatal(err)
	}
	if err := l.StartAgent(t.Context(), "--pools=small=10.1.0.0/29", "--exhausted-is-unavailable"); err != nil {
		t.Fatal(err)
	}
	first := l.pod("first")
	if output, failed := l.tries("STATUS", first); failed {
		t.Errorf("STATUS of a node with free addresses: %s", output)
	}
	_, last, output := l.exhaust()
	if code, msg := refusalOf(t, output); code != 100 ||
		!strings.Contains(msg, "pool exhausted: all addresses of pool small are held, 5 by this node; delete pods") {
		t.Errorf("ADD failed with %d %s", code, msg)
	}
	output, _ = l.tries("STATUS", last)
	if code, msg := refusalOf(t, output); code != 50 ||
		!strings.Contains(msg,
			"pool exhausted: all 5 addresses that this node has of pool small (10.1.0.0/29) are held; delete pods, or add a pool") {
		t.Errorf("STATUS failed with %d %s", code, msg)
	}
}

func TestReadinessHasTheCodeOfLimitedConnectivityWhileTheDataplaneIsDown(t *testing.T) {
	h := health.New("", slog.New(slog.DiscardHandler))
	isLimited := func() bool {
		coded, is := errors.AsType[*pod.Error](h.Missing())
		return is && coded.Code == pod.CodeLimited
	}
	if h.Missing() == nil || isLimited() {
		t.Errorf("conditions that a starting agent lacks: %v", h.Missing())
	}
	h.Set(health.Started, true, "")
	if !isLimited() {
		t.Errorf("without a dataplane: %v", h.Missing())
	}
	h.Set(health.Dataplane, true, "")
	if err := h.Missing(); err != nil {
		t.Error(err)
	}
	h.Set(health.Network, false, "the host link is missing")
	if !isLimited() {
		t.Errorf("without the host link: %v", h.Missing())
	}
	h.Require(health.Addresses, "the node has no block yet")
	if h.Missing() == nil || isLimited() {
		t.Errorf("on a node without addresses: %v", h.Missing())
	}
	h.Set(health.Addresses, true, "")
	h.Set(health.Network, true, "")
	h.Require(health.Gates, "not polled yet")
	if h.Missing() == nil || isLimited() {
		t.Errorf("while a gate is closed: %v", h.Missing())
	}
}
