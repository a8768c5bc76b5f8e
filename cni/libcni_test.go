package cni

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"google.golang.org/protobuf/proto"

	"github.com/weftnet/weft/cni/cnitest"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// libcni is the library that runtimes use.
func TestLibcniCallsAllVerbs(t *testing.T) {
	dir := t.TempDir()
	const netns = "/run/netns/blue"
	agent := &cnitest.Agent{Answer: answer(netns)}
	agent.Listen(t, filepath.Join(dir, "agent.sock"))
	list := conflist(t, dir)
	runtime := libcni.NewCNIConfigWithCacheDir([]string{binaries}, filepath.Join(dir, "cache"), nil)
	container := &libcni.RuntimeConf{
		ContainerID: "c1", NetNS: netns, IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "cart"}},
		CapabilityArgs: map[string]any{
			"io.kubernetes.cri.pod-annotations": map[string]string{"contivpp.io/custom-if": "tap1/tap"},
		},
	}
	ctx := t.Context()

	if err := runtime.GetStatusNetworkList(ctx, list); err != nil {
		t.Error("STATUS:", err)
	}
	result, err := runtime.AddNetworkList(ctx, list, container)
	if err != nil {
		t.Fatal("ADD:", err)
	}
	if wired, err := types100.GetResult(result); err != nil || len(wired.IPs) != 2 || wired.Interfaces[0].Mtu != 1450 {
		t.Errorf("ADD gave %+v, %v", result, err)
	}
	if err := runtime.CheckNetworkList(ctx, list, container); err != nil {
		t.Error("CHECK:", err)
	}
	valid := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "c1", IfName: "eth0"}}}
	if err := runtime.GCNetworkList(ctx, list, valid); err != nil {
		t.Error("GC:", err)
	}
	if err := runtime.DelNetworkList(ctx, list, container); err != nil {
		t.Error("DEL:", err)
	}
	requests := agent.Requests()
	wantRequests(t, requests, &weftv1.StatusRequest{}, &weftv1.AddRequest{}, &weftv1.CheckRequest{},
		&weftv1.CollectRequest{}, &weftv1.DeleteRequest{})
	if add := requests[1].(*weftv1.AddRequest); add.GetAnnotations()["contivpp.io/custom-if"] != "tap1/tap" {
		t.Errorf("annotations are missing: %v", add)
	}
}

// A runtime without pods in a network sends an empty list, or null (CRI-O).
func TestGCWithAnEmptyListRemovesAllAttachments(t *testing.T) {
	for name, none := range map[string][]types.GCAttachment{"empty": {}, "null": nil} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			agent := &cnitest.Agent{}
			agent.Listen(t, filepath.Join(dir, "agent.sock"))
			runtime := libcni.NewCNIConfigWithCacheDir([]string{binaries}, filepath.Join(dir, "cache"), nil)
			if err := runtime.GCNetworkList(t.Context(), conflist(t, dir), &libcni.GCArgs{
				ValidAttachments: none,
			}); err != nil {
				t.Fatal(err)
			}
			requests := agent.Requests()
			wantRequests(t, requests, &weftv1.CollectRequest{})
			if asked := requests[0].(*weftv1.CollectRequest); len(asked.GetValid()) != 0 {
				t.Errorf("the agent keeps %v", asked.GetValid())
			}
		})
	}
}

// cnitool gc makes this call. libcni sends a DEL for each cached attachment.
func TestLibcniGCWithoutArgumentsRemovesNothing(t *testing.T) {
	dir := t.TempDir()
	agent := &cnitest.Agent{Answer: answer("/run/netns/blue")}
	agent.Listen(t, filepath.Join(dir, "agent.sock"))
	runtime := libcni.NewCNIConfigWithCacheDir([]string{binaries}, filepath.Join(dir, "cache"), nil)
	list := conflist(t, dir)
	if _, err := runtime.AddNetworkList(t.Context(), list, &libcni.RuntimeConf{
		ContainerID: "c1",
		NetNS:       "/run/netns/blue",
		IfName:      "eth0",
	}); err != nil {
		t.Fatal(err)
	}
	if err := runtime.GCNetworkList(t.Context(), list, nil); err != nil {
		t.Fatal(err)
	}
	wantRequests(t, agent.Requests(), &weftv1.AddRequest{}, &weftv1.DeleteRequest{})
}

func wantRequests(t *testing.T, requests []proto.Message, want ...proto.Message) {
	t.Helper()
	if len(requests) != len(want) {
		t.Fatalf("the agent was asked %d times, want %d: %v", len(requests), len(want), requests)
	}
	for i, w := range want {
		if got := requests[i].ProtoReflect().Descriptor().Name(); got != w.ProtoReflect().Descriptor().Name() {
			t.Errorf("request %d is %s, want %s", i, got, w.ProtoReflect().Descriptor().Name())
		}
	}
}

func conflist(t *testing.T, dir string) *libcni.NetworkConfigList {
	t.Helper()
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil,
		`{"cniVersion":"1.1.0","cniVersions":["0.4.0","1.0.0","1.1.0"],"name":"weft",
		"plugins":[{"type":"weft-cni","socket":%q,"deleteQueue":%q,
		"capabilities":{"ips":true,"mac":true,"deviceID":true,"io.kubernetes.cri.pod-annotations":true}}]}`,
		filepath.Join(dir, "agent.sock"), filepath.Join(dir, "queue")))
	if err != nil {
		t.Fatal(err)
	}
	return list
}
