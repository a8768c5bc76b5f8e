package podmanager

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// awaiting is an ADD with an IPAM plugin that needs the interface, such as dhcp.
func awaiting() *weftv1.AddRequest {
	req := delegateOf("eth0")
	req.InterfaceType = "tap"
	req.InterfaceOptions = ""
	req.AwaitsAddresses = true
	return req
}

// answered is the same request with the result of the plugin.
func answered() *weftv1.AddRequest {
	req := awaiting()
	req.DelegatedIps = []*weftv1.IP{{Address: "10.9.0.2/24", Gateway: "10.9.0.1"}}
	req.DelegatedDns = &weftv1.DNS{Nameservers: []string{"10.9.0.53"}}
	return req
}

// address calls Address.
func (n *node) address(t *testing.T, req *weftv1.AddRequest) *weftv1.AddReply {
	t.Helper()
	reply, err := n.Address(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func (n *node) finds(t *testing.T) bool {
	t.Helper()
	reply, err := n.Find(t.Context(), &weftv1.FindRequest{
		Caller:     caller(),
		Attachment: attachment("c1"),
		Netns:      "/run/netns/a",
	})
	if err != nil || reply.GetError() != nil {
		t.Fatal(reply, err)
	}
	return reply.GetFound() != nil
}

func TestAttachmentIsCompleteAfterAddress(t *testing.T) {
	n := newNode(t)
	for range 2 { // the second ADD is a repeat
		if ev, _ := n.askedOrRepeated(t, awaiting()); ev != nil && !ev.Requested.AwaitsAddresses {
			t.Errorf("the handlers received %+v", ev.Requested)
		}
		if n.finds(t) || len(n.happened()) != 0 {
			t.Errorf("found, or observed as %s, before it has addresses", n.happened())
		}
	}
	first := n.address(t, answered())
	if first.GetError() != nil || first.GetDns().GetNameservers()[0] != "10.9.0.53" {
		t.Fatalf("got %v", first)
	}
	if got := fmt.Sprint(n.happened()); !n.finds(t) || got != "[added shop/cart-0 c1 0]" {
		t.Errorf("not found, or observed as %s", got)
	}
	if again := n.address(t, answered()); bytesOf(t, again) != bytesOf(t, first) {
		t.Errorf("repeated: %v, and the first was %v", again, first)
	}
	n.want(t, "c1")
}

// askedOrRepeated is asked for an ADD that may be a repeat, which reaches no handler.
func (n *node) askedOrRepeated(t *testing.T, req *weftv1.AddRequest) (*pod.AddPod, *weftv1.AddReply) {
	t.Helper()
	n.set(func() {
		if _, there := n.Attachment(keyOfContainer("c1")); there {
			n.alias["/run/netns/a"] = "weft:weft/c1/eth0"
		}
	})
	return n.asked(t, req)
}

func TestFailedAddressLeavesTheAttachmentAwaitingAddresses(t *testing.T) {
	broken := func(context.Context, eventloop.Change) error { return errors.New("no reply of the dataplane") }
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, n *node, req *weftv1.AddRequest)
		code  uint
		text  string
	}{
		"no address": {
			func(_ *testing.T, _ *node, r *weftv1.AddRequest) { r.DelegatedIps = nil }, 7, "returned no address",
		},
		"an invalid address": {
			func(_ *testing.T, _ *node, r *weftv1.AddRequest) { r.DelegatedIps[0].Address = "10.9.0.2" }, 7,
			"address of the IPAM plugin",
		},
		"the commit fails": {
			func(_ *testing.T, n *node, _ *weftv1.AddRequest) { n.committer.Before(broken) }, 105,
			"no reply of the dataplane",
		},
		"it is not saved": {
			func(_ *testing.T, n *node, _ *weftv1.AddRequest) { n.saver.Before(unsaved) }, 5, "no space left",
		},
		"the agent starts": {
			func(_ *testing.T, n *node, _ *weftv1.AddRequest) { n.notReady = errors.New("resync") }, 11, "starting",
		},
		"an invalid key": {
			func(_ *testing.T, _ *node, r *weftv1.AddRequest) { r.Attachment.IfName = "" }, 4, "interface name",
		},
		"an unknown protocol": {
			func(_ *testing.T, _ *node, r *weftv1.AddRequest) { r.Caller = nil }, 107, "speaks protocol 0",
		},
		"a concurrent DEL removed it": {
			func(t *testing.T, n *node, _ *weftv1.AddRequest) { n.del(t, "c1") }, 11, "a concurrent DEL removed it",
		},
		"it was never added": {
			func(_ *testing.T, _ *node, r *weftv1.AddRequest) { r.Attachment.ContainerId = "c9" }, 11,
			"it is not connected",
		},
		"an invalid route": {func(_ *testing.T, _ *node, r *weftv1.AddRequest) {
			r.DelegatedRoutes = []*weftv1.Route{{Destination: "x"}}
		}, 7, "route of the IPAM plugin"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.asked(t, awaiting())
			req := answered()
			tt.spoil(t, n, req)
			wantError(t, n.address(t, req).GetError(), tt.code, tt.text)
			n.committer.Before(nil)
			n.saver.Before(nil)
			n.set(func() { n.notReady = nil })
			if _, there := n.Attachment(keyOfContainer("c1")); !there {
				return
			}
			if n.finds(t) {
				t.Error("it is complete")
			}
			if reply := n.address(t, answered()); reply.GetError() != nil || !n.finds(t) {
				t.Errorf("later: %v", reply)
			}
		})
	}
}

func unsaved(_ context.Context, saved []eventloop.Saved) error {
	if len(saved) > 1 { // more than the record of the event
		return errors.New("no space left")
	}
	return nil
}

func TestAwaitedAddressesSurviveRestart(t *testing.T) {
	n := newNode(t)
	n.asked(t, awaiting())
	saved := n.saver.Bucket(bucket)[keyOfContainer("c1").String()].(*pod.Attachment)
	n = newNode(t)
	n.Restore([]*pod.Attachment{saved})
	if n.finds(t) {
		t.Error("it is complete")
	}
	if reply := n.address(t, answered()); reply.GetError() != nil || !n.finds(t) {
		t.Errorf("got %v", reply)
	}
}

func TestAwaitedAddressesComeFromTheIPAMPluginOnly(t *testing.T) {
	n := newNode(t)
	n.asked(t, awaiting())
	n.set(func() { n.alias["/run/netns/a"] = "weft:weft/c1/eth0" })
	other := awaiting()
	other.AwaitsAddresses = false
	wantError(t, n.refusedAdd(t, other), 4, "awaits addresses of another IPAM plugin than the configured one")
	if err := n.del(t, "c1"); err != nil {
		t.Error(err)
	}
	n.want(t)
}

func TestOlderSandboxIsKeptWithoutHandedOverAddresses(t *testing.T) {
	n := newNode(t)
	if reply, err := n.Add(context.Background(), addOf("old", "/run/netns/a")); err != nil || reply.GetError() != nil {
		t.Fatal(reply, err)
	}
	old := n.Attachments()[0]
	n.onConnect = func(_ context.Context, ev *pod.AddPod) error {
		less := clone(&old)
		less.Interfaces[0].Addresses = nil
		ev.HandedOver = append(ev.HandedOver, less)
		return nil
	}
	if reply, err := n.Add(context.Background(), addOf("new", "/run/netns/b")); err != nil || reply.GetError() != nil {
		t.Fatal(reply, err)
	}
	got, ok := n.Attachment(old.Key)
	if !ok || len(got.Interfaces) != 1 || len(got.Interfaces[0].Addresses) != 0 {
		t.Errorf("the old sandbox has %+v", got)
	}
}
