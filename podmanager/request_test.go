package podmanager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// delegateOf is an ADD of mode delegate, as Multus calls it.
func delegateOf(ifName string) *weftv1.AddRequest {
	req := addOf("c1", "/run/netns/a")
	req.Mode = "delegate"
	req.Attachment.IfName = ifName
	req.DeviceId = "memif-3"
	req.InterfaceNetwork = "blue"
	req.InterfaceType = "memif"
	req.InterfaceOptions = `{"ringSize":512,"mtu":1400}`
	return req
}

func TestDelegateOptionsReachTheHandlers(t *testing.T) {
	n := newNode(t)
	asked := 0
	n.devices.granted = func(context.Context, pod.ID) ([]pod.Grant, error) {
		asked++
		return []pod.Grant{{Container: "vnf"}}, nil
	}
	ev, _ := n.asked(t, delegateOf("net1"))
	r := ev.Requested
	if r.Network != "blue" || r.Type != "memif" || r.DeviceID != "memif-3" || r.Options.MTU != 1400 ||
		r.Options.Memif.RingSize != 512 {
		t.Errorf("the handlers received %+v", r)
	}
	if asked != 1 || len(ev.Grants) != 1 {
		t.Errorf("%d calls of Grants, and the event has %d grants", asked, len(ev.Grants))
	}
	if ev.Attachment.Mode != "delegate" {
		t.Errorf("the attachment is of mode %q", ev.Attachment.Mode)
	}
}

func TestInvalidDelegateOptionsAreRejected(t *testing.T) {
	for text, spoil := range map[string]func(*weftv1.AddRequest){
		"are for mode delegate":               func(r *weftv1.AddRequest) { r.Mode = "primary" },
		`network "A B": expected default`:     func(r *weftv1.AddRequest) { r.InterfaceNetwork = "A B" },
		`interfaceType "vhost": expected tap`: func(r *weftv1.AddRequest) { r.InterfaceType = "vhost" },
		"options: speed: unknown option":      func(r *weftv1.AddRequest) { r.InterfaceOptions = `{"speed":1}` },
		"a tap has equal numbers of both": func(r *weftv1.AddRequest) {
			r.InterfaceType = "tap"
			r.InterfaceOptions = `{"rxQueues":2,"txQueues":3}`
		},
		"ringSize: only an interface of type memif": func(r *weftv1.AddRequest) { r.InterfaceType = "tap" },
		"ipam: another IPAM plugin is possible only for": func(r *weftv1.AddRequest) {
			r.DelegatedIps = []*weftv1.IP{{Address: "10.7.0.9/16"}}
		},
	} {
		n := newNode(t)
		req := delegateOf("net1")
		spoil(req)
		wantError(t, n.refusedAdd(t, req), 7, text)
	}
}

func TestSelectionsAreLookedUpForMainInterfacesOnly(t *testing.T) {
	for mode, want := range map[string]int{"": 1, "primary": 1, "chained": 0, "delegate": 0, "ipam": 0} {
		n := newNode(t)
		n.cluster.selected = func(context.Context, *pod.Request) ([]pod.InterfaceRequest, error) {
			return []pod.InterfaceRequest{{Name: "net1", Definition: "shop/blue"}}, nil
		}
		req := addOf("c1", "/run/netns/a")
		req.Mode = mode
		if ev, _ := n.asked(t, req); len(ev.Selected) != want {
			t.Errorf("mode %q: %d are selected, want %d", mode, len(ev.Selected), want)
		}
	}
	n := newNode(t)
	n.cluster.selected = func(context.Context, *pod.Request) ([]pod.InterfaceRequest, error) {
		return nil, pod.Errorf(pod.CodeUnknownNetwork, "no such definition")
	}
	wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/a")), 102, "no such definition")
	n.cluster.selected = func(context.Context, *pod.Request) ([]pod.InterfaceRequest, error) {
		t.Error("Selected was called")
		return nil, errors.New("")
	}
	plain := addOf("c2", "/run/netns/b")
	plain.Pod = nil
	n.asked(t, plain)
}

func TestExistingSelectedInterfaceIsRejectedWithItsAnnotation(t *testing.T) {
	n := newNode(t)
	n.machine.linkAlias = func(_ context.Context, _ pod.Netns, name string) (string, bool, error) {
		return "", name == "net1", nil
	}
	n.cluster.selected = func(context.Context, *pod.Request) ([]pod.InterfaceRequest, error) {
		return []pod.InterfaceRequest{{Name: "net1", Definition: "shop/blue"}}, nil
	}
	wantError(t, n.refusedAdd(t, addOf("c1", "/run/netns/a")), 103,
		"choose another name in annotation k8s.v1.cni.cncf.io/networks")

	n.machine.linkAlias = func(context.Context, pod.Netns, string) (string, bool, error) {
		return "weft:weft/c1/eth0/net1", true, nil
	}
	second := delegateOf("net1")
	second.InterfaceType = "tap"
	second.InterfaceOptions = ""
	wantError(t, n.refusedAdd(t, second), 4, "if Multus calls Weft, set kubernetes.multus to true")
}

// A request is refused before the agent asks other components about the pod.
func TestTooLongListsAreRefusedBeforeTheSandboxIsInspected(t *testing.T) {
	routes := make([]*weftv1.Route, pod.MaxRoutes+1)
	for i := range routes {
		routes[i] = &weftv1.Route{Destination: fmt.Sprintf("11.0.0.%d/32", i)}
	}
	for text, spoil := range map[string]func(r *weftv1.AddRequest){
		"the IPAM plugin returned 65 routes, at most 64 are possible": func(r *weftv1.AddRequest) {
			r.DelegatedRoutes = routes
		},
		"the IPAM plugin returned 33 name servers, at most 32 are possible": func(r *weftv1.AddRequest) {
			r.DelegatedDns.Nameservers = make([]string, 33)
		},
		"the IPAM plugin returned 33 search domains, at most 32 are possible": func(r *weftv1.AddRequest) {
			r.DelegatedDns.Search = make([]string, 33)
		},
		"returned 33 options of the resolver, at most 32 are possible": func(r *weftv1.AddRequest) {
			r.DelegatedDns.Options = make([]string, 33)
		},
		"the IPAM configuration names 65 pools, at most 64 are possible": func(r *weftv1.AddRequest) {
			r.Mode = "ipam"
			r.Pools = make([]string, 65)
		},
		"the IPAM plugin returned domains with 256 bytes, at most 255 are": func(r *weftv1.AddRequest) {
			r.DelegatedDns.Domain = strings.Repeat("x", 256)
		},
		"is the second one of its family, one each is possible": func(r *weftv1.AddRequest) {
			r.DelegatedIps = append(r.DelegatedIps, r.DelegatedIps[0])
		},
		"requested address \"10.1.0.3\": one of this family is requested al": func(r *weftv1.AddRequest) {
			r.Ips = []string{"10.1.0.2", "10.1.0.3"}
		},
	} {
		n := newNode(t)
		n.machine.inspect = func(context.Context, string) (pod.Netns, error) {
			t.Errorf("%s: the sandbox is inspected", text)
			return pod.Netns{}, errors.New("")
		}
		req := addOf("c1", "/run/netns/a")
		req.DelegatedIps = []*weftv1.IP{{Address: "10.7.0.9/16"}}
		req.DelegatedDns = &weftv1.DNS{}
		spoil(req)
		wantError(t, n.refusedAdd(t, req), 7, text)
	}
	n := newNode(t)
	big := addOf("c1", "/run/netns/a")
	big.HasAnnotations = true
	big.Annotations = map[string]string{"contivpp.io/x": strings.Repeat("x", maxAnnotations)}
	wantError(t, n.refusedAdd(t, big), 7,
		"pod shop/cart-0: the runtime passes annotations of 278541 bytes, at most 278528 are possible; shorten them")
	n.asked(t, awaiting())
	tooMany := answered()
	tooMany.DelegatedRoutes = routes
	wantError(t, n.address(t, tooMany).GetError(), 7, "the IPAM plugin returned 65 routes, at most 64 are possible")
	if reply := n.address(t, answered()); reply.GetError() != nil || !n.finds(t) {
		t.Errorf("later: %v", reply)
	}
}

// FuzzRequested parses arbitrary ADD requests. Accepted ones have valid addresses, at most one of each family.
func FuzzRequested(f *testing.F) {
	for _, req := range []*weftv1.AddRequest{
		{Mac: "02:00:00:00:00:01", Ips: []string{"10.0.0.1/24", "fd00::1"}},
		{Ips: []string{"10.0.0.1", "::ffff:10.0.0.2"}, Mac: "01:00:00:00:00:01"},
		{
			Mode:             pod.ModeDelegate,
			InterfaceNetwork: "blue",
			InterfaceType:    "memif",
			InterfaceOptions: `{"ringSize":512}`,
		},
		{
			DelegatedIps:    []*weftv1.IP{{Address: "10.0.0.1/24", Gateway: "10.0.0.2"}},
			DelegatedRoutes: []*weftv1.Route{{Destination: "0.0.0.0/0"}},
		},
	} {
		raw, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req weftv1.AddRequest
		if proto.Unmarshal(raw, &req) != nil {
			return
		}
		got, err := requested(&req)
		if err != nil {
			if e, is := errors.AsType[*pod.Error](err); !is || e.Code == 0 {
				t.Errorf("the error has no code: %v", err)
			}
			return
		}
		if len(got.Addresses) > 2 || len(got.Delegated) > 2 || len(got.DelegatedGateways) != len(got.Delegated) ||
			!got.MAC.IsZero() && !got.MAC.IsUnicast() || got.Validate() != nil {
			t.Errorf("%v was accepted: %+v", &req, got)
		}
		for _, a := range got.Addresses {
			if !a.IsValid() || a.Addr().Is4In6() {
				t.Errorf("%v was accepted: address %v", &req, a)
			}
		}
		for _, p := range got.Delegated {
			if !p.IsValid() {
				t.Errorf("%v was accepted: address %v", &req, p)
			}
		}
	})
}

// TestAdjacentProtocolsWorkTogether: a plugin of the previous or next release can add and delete pods.
func TestAdjacentProtocolsWorkTogether(t *testing.T) {
	const ours = weftv1.Protocol
	for protocol := range uint32(ours + 3) {
		served := protocol > 0 && protocol+1 >= ours && protocol <= ours+1
		n := newNode(t)
		add := addOf("c1", "/run/netns/a")
		add.Caller.Protocol = protocol
		if !served {
			wantError(t, n.refusedAdd(t, add), 107, "install the plugin of the agent's release")
			n.add(t, "c1", "/run/netns/a")
		} else if reply, err := n.Add(t.Context(), add); err != nil || reply.GetError() != nil {
			t.Errorf("ADD of protocol %d: %v, %v", protocol, reply.GetError(), err)
		}
		reply, err := n.Delete(t.Context(), &weftv1.DeleteRequest{Caller: add.Caller, Attachment: attachment("c1")})
		if err != nil || (reply.GetError() == nil) != served {
			t.Errorf("DEL of protocol %d: %v, %v", protocol, reply.GetError(), err)
		}
	}
}

// Regression: such a DEL failed forever, although no ADD can have succeeded.
func TestDELOfAnIllegalKeySucceeds(t *testing.T) {
	n := newNode(t)
	n.add(t, "c1", "/run/netns/a")
	for name, spoil := range map[string]func(a *weftv1.Attachment){
		"a long container id":            func(a *weftv1.Attachment) { a.ContainerId = strings.Repeat("c", 257) },
		"a long network":                 func(a *weftv1.Attachment) { a.Network = strings.Repeat("n", 257) },
		"an interface that is not ASCII": func(a *weftv1.Attachment) { a.IfName = "ethé" },
		"a long interface":               func(a *weftv1.Attachment) { a.IfName = "a234567890123456" },
		"a container id with a slash":    func(a *weftv1.Attachment) { a.ContainerId = "../c1" },
		"a reserved interface":           func(a *weftv1.Attachment) { a.IfName = "default" },
	} {
		add := addOf("c1", "/run/netns/a")
		spoil(add.Attachment)
		reply, err := n.Delete(t.Context(), &weftv1.DeleteRequest{Caller: caller(), Attachment: add.Attachment})
		if err != nil || reply.GetError() != nil {
			t.Errorf("%s: DEL: %v, %v", name, reply.GetError(), err)
		}
		if e := n.refusedAdd(t, add); e.GetCode() != 4 {
			t.Errorf("%s: ADD: %v", name, e)
		}
		check, err := n.Check(t.Context(), &weftv1.CheckRequest{
			Caller:     caller(),
			Attachment: add.Attachment,
			Netns:      "/run/netns/a",
		})
		if err != nil || check.GetError() == nil {
			t.Errorf("%s: CHECK succeeded: %v", name, err)
		}
	}
	hole := &weftv1.Attachment{Network: "weft", IfName: "eth0"}
	if reply, err := n.Delete(t.Context(), &weftv1.DeleteRequest{Caller: caller(), Attachment: hole}); err != nil ||
		reply.GetError().GetCode() != 4 {
		t.Errorf("DEL without a container: %v, %v", reply.GetError(), err)
	}
	collect := &weftv1.CollectRequest{Caller: caller(), Network: "weft", Valid: []*weftv1.Attachment{
		attachment("c1"), attachment(strings.Repeat("c", 257)), {ContainerId: "c1", IfName: "ethé"},
	}}
	if reply, err := n.Collect(t.Context(), collect); err != nil || reply.GetError() != nil ||
		len(reply.GetRemoved()) > 0 {
		t.Errorf("GC: %v, %v", reply, err)
	}
	n.want(t, "c1")
}

// Regression: these names failed in the dataplane, with its error.
func TestReservedInterfaceNamesAreRejectedBeforeTheLoop(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"default", "all", "lo", "eth%d"} {
		req := addOf("c1", "/run/netns/a")
		req.Attachment.IfName = name
		wantError(t, n.refusedAdd(t, req), 4, "cannot be the name of a pod's interface")
	}
	n.want(t)
}

// Regression: errors quoted annotations of 16 KiB in replies and stored records.
func TestErrorsAreBounded(t *testing.T) {
	n := newNode(t)
	for name, err := range map[string]error{
		"of a handler": pod.Errorf(pod.CodeInvalidAnnotation, "item %q", strings.Repeat("€", 6000)),
		"of another":   &longError{},
	} {
		n.onConnect = func(context.Context, *pod.AddPod) error { return err }
		e := n.refusedAdd(t, addOf("c1", "/run/netns/a"))
		if len(e.GetMsg()) > 2048 || !utf8.ValidString(e.GetMsg()) || !strings.Contains(e.GetMsg(), "€") ||
			!strings.HasSuffix(e.GetMsg(), " bytes cut)") {
			t.Errorf("%s: %d bytes: %.100s", name, len(e.GetMsg()), e.GetMsg())
		}
	}
	if text := pod.Errorf(pod.CodeInvalidAnnotation, "item %q", strings.Repeat("x", 16<<10)).Error(); len(text) > 2048 {
		t.Errorf("an error of a pod has %d bytes", len(text))
	}
}

// longError is an error without a code.
type longError struct{}

func (longError) Error() string { return strings.Repeat("€", 6000) }
