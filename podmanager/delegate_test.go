package podmanager

import (
	"context"
	"errors"
	"testing"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// delegateOf is an ADD as Multus has it made for a network of its own.
func delegateOf(ifName string) *weftv1.AddRequest {
	req := addOf("c1", "/run/netns/a")
	req.Mode, req.Attachment.IfName, req.DeviceId = "delegate", ifName, "memif-3"
	req.InterfaceNetwork, req.InterfaceType, req.InterfaceOptions = "blue", "memif", `{"ringSize":512,"mtu":1400}`
	return req
}

func TestWhatADelegateIsToBeReachesTheHandlers(t *testing.T) {
	n := newNode(t)
	asked := 0
	n.config.Grants = func(context.Context, pod.ID) ([]pod.Grant, error) {
		asked++
		return []pod.Grant{{Container: "vnf"}}, nil
	}
	ev, _ := n.asked(t, delegateOf("net1"))
	r := ev.Requested
	if r.Network != "blue" || r.Type != "memif" || r.DeviceID != "memif-3" || r.Options.MTU != 1400 || r.Options.Memif.RingSize != 512 {
		t.Errorf("the handlers saw %+v", r)
	}
	if asked != 1 || len(ev.Grants) != 1 {
		t.Errorf("kubelet was asked %d times, and the event has %d grants", asked, len(ev.Grants))
	}
	if ev.Attachment.Mode != "delegate" {
		t.Errorf("the attachment is of mode %q", ev.Attachment.Mode)
	}
}

func TestWhatADelegateCannotBeIsRefused(t *testing.T) {
	for text, spoil := range map[string]func(*weftv1.AddRequest){
		"are for mode delegate":               func(r *weftv1.AddRequest) { r.Mode = "primary" },
		`network "A B": expected default`:     func(r *weftv1.AddRequest) { r.InterfaceNetwork = "A B" },
		`interfaceType "vhost": expected tap`: func(r *weftv1.AddRequest) { r.InterfaceType = "vhost" },
		"options: speed: unknown option":      func(r *weftv1.AddRequest) { r.InterfaceOptions = `{"speed":1}` },
		"a tap has as many of both": func(r *weftv1.AddRequest) {
			r.InterfaceType, r.InterfaceOptions = "tap", `{"rxQueues":2,"txQueues":3}`
		},
		"ringSize: only an interface of type memif": func(r *weftv1.AddRequest) { r.InterfaceType = "tap" },
		"ipam: another plugin gives addresses for":  func(r *weftv1.AddRequest) { r.DelegatedIps = []*weftv1.IP{{Address: "10.7.0.9/16"}} },
	} {
		n, req := newNode(t), delegateOf("net1")
		spoil(req)
		wantError(t, n.refusedAdd(t, req), 7, text)
	}
}

func TestSelectionsAreLookedUpForMainInterfacesOnly(t *testing.T) {
	for mode, want := range map[string]int{"": 1, "primary": 1, "chained": 0, "delegate": 0, "ipam": 0} {
		n := newNode(t)
		n.config.Selected = func(context.Context, *pod.AddPod) ([]pod.InterfaceRequest, error) {
			return []pod.InterfaceRequest{{Name: "net1", Definition: "shop/blue"}}, nil
		}
		req := addOf("c1", "/run/netns/a")
		req.Mode = mode
		if ev, _ := n.asked(t, req); len(ev.Selected) != want {
			t.Errorf("mode %q: %d are selected, want %d", mode, len(ev.Selected), want)
		}
	}
	n := newNode(t)
	n.config.Selected = func(context.Context, *pod.AddPod) ([]pod.InterfaceRequest, error) {
		return nil, pod.Errorf(pod.CodeUnknownNetwork, "no such definition")
	}
	wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/a")), 102, "no such definition")
	n.config.Selected = func(context.Context, *pod.AddPod) ([]pod.InterfaceRequest, error) {
		t.Error("asked")
		return nil, errors.New("")
	}
	plain := addOf("c2", "/run/netns/b")
	plain.Pod = nil
	n.asked(t, plain)
}

func TestASelectedInterfaceThatExistsIsRefusedByItsAnnotation(t *testing.T) {
	n := newNode(t)
	n.config.LinkExists = func(_ context.Context, _ pod.Netns, name string) (string, bool, error) {
		return "", name == "net1", nil
	}
	n.config.Selected = func(context.Context, *pod.AddPod) ([]pod.InterfaceRequest, error) {
		return []pod.InterfaceRequest{{Name: "net1", Definition: "shop/blue"}}, nil
	}
	wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/a")), 103, "choose another name in annotation k8s.v1.cni.cncf.io/networks")

	n.config.LinkExists = func(context.Context, pod.Netns, string) (string, bool, error) {
		return "weft:weft/c1/eth0/net1", true, nil
	}
	second := delegateOf("net1")
	second.InterfaceType, second.InterfaceOptions = "tap", ""
	wantError(t, n.refusedAdd(t, second), 4, "where Multus calls Weft, kubernetes.multus is to be true")
}
