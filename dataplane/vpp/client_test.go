package vpp

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// outcome names the outcome in an item's error.
func outcome(err error) string {
	known := new(kvscheduler.OpError)
	switch {
	case err == nil:
		return "applied"
	case !errors.As(err, &known):
		return "unknown"
	case known.Permanent:
		return "refused for good"
	}
	return known.Outcome.String()
}

func flagsRequests(n int) []*request {
	var requests []*request
	for i := range n {
		requests = append(requests, ask(fmt.Sprint("sw_interface_set_flags ", i),
			&interfaces.SwInterfaceSetFlags{SwIfIndex: Index(i).api()}, &interfaces.SwInterfaceSetFlagsReply{}))
	}
	return requests
}

// count counts outcomes.
func count(requests []*request) map[string]int {
	counts := map[string]int{}
	for _, r := range requests {
		counts[outcome(r.fault())]++
	}
	return counts
}

func TestDataplaneThatLacksAMessageIsRefused(t *testing.T) {
	other := &ip.IPRouteAddDel{}
	p := &peer{t: t, answer: obliging, messages: slices.DeleteFunc(slices.Clone(Needed), func(m api.Message) bool {
		return m.GetMessageName() == other.GetMessageName()
	})}
	p.listen()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := connectWithin(ctx, p.socket, Options{})
	missing := new(MissingMessages)
	if c != nil || !errors.As(err, &missing) || len(missing.Messages) != 1 ||
		missing.Messages[0].Name != "ip_route_add_del" {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(err.Error(), "ip_route_add_del (CRC "+other.GetCrcString()+")") || ctx.Err() != nil {
		t.Errorf("the error does not say it, or late: %v", err)
	}
}

// The agent must survive a VPP without acl_plugin.so, and use it after a restart with the plugin.
func TestRunWaitsForADataplaneWithAllPlugins(t *testing.T) {
	lacking := slices.DeleteFunc(slices.Clone(Needed), func(m api.Message) bool {
		return pluginOf(m) == "acl_plugin.so"
	})
	socket := filepath.Join(t.TempDir(), "s")
	refused := make(chan error, 100)
	connected := make(chan string, 1)
	c := New(socket, Options{
		Redial: time.Millisecond, Probe: 10 * time.Millisecond, Logger: testLogger(t),
		Events: Events{
			NotConnected: func(err error) {
				if missing := new(MissingMessages); errors.As(err, &missing) {
					refused <- err
				}
			},
			Connected: func(version string) { connected <- version },
		},
	})
	background(t, c.Run)
	old := &peer{t: t, socket: socket, answer: obliging, messages: lacking}
	stop := old.listen()
	err := <-refused
	if want := "its plugin acl_plugin.so is not loaded"; strings.Count(err.Error(), want) != 1 ||
		!strings.Contains(err.Error(), "macip_acl_add_replace") {
		t.Errorf("the reason is %v", err)
	}
	if health := c.Health(); health == nil || !strings.Contains(health.Error(), "acl_plugin.so") {
		t.Errorf("health is %v", health)
	}
	stop()
	(&peer{t: t, socket: socket, answer: obliging}).listen()
	<-connected
	if len(refused) > 0 {
		t.Errorf("the reason was given %d times more", len(refused))
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	mute := &peer{t: t, messages: []api.Message{}}
	mute.answer = func(*call) ([]api.Message, bool) { return nil, false }
	mute.listen()
	for name, socket := range map[string]string{"no listener": mute.socket + "-none", "no answer": mute.socket} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := connectWithin(ctx, socket, Options{Redial: time.Millisecond}); err == nil {
				t.Error("connected")
			}
		})
	}
}

func TestLateAnswerIsNotTakenForAnother(t *testing.T) {
	var late atomic.Pointer[call]
	p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
		if m, ok := c.msg.(*interfaces.SwInterfaceGetTable); ok {
			if m.SwIfIndex == 1 {
				late.Store(c)
				return nil, false
			}
			late.Load().reply(&interfaces.SwInterfaceGetTableReply{VrfID: 1}) // only now, before the right answer
			return []api.Message{&interfaces.SwInterfaceGetTableReply{VrfID: 2}}, false
		}
		return obliging(c)
	}}
	p.listen()
	c := connect(t, p.socket, Options{Limit: 3 * time.Second}) // the second is to be answered within it
	first := ask("first", &interfaces.SwInterfaceGetTable{SwIfIndex: 1}, &interfaces.SwInterfaceGetTableReply{})
	c.exchange(t.Context(), first)
	if got := outcome(first.fault()); got != "unknown" || !errors.Is(first.err, errNoAnswer) {
		t.Fatalf("the first is %s: %v", got, first.err)
	}
	reply := &interfaces.SwInterfaceGetTableReply{}
	second := ask("second", &interfaces.SwInterfaceGetTable{SwIfIndex: 2}, reply)
	c.exchange(t.Context(), second)
	if second.fault() != nil || reply.VrfID != 2 {
		t.Errorf("the second got %d, %v", reply.VrfID, second.fault())
	}
}

func TestRequestsOfABatchArePipelined(t *testing.T) {
	var held []*call
	p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
		if _, ok := c.msg.(*interfaces.SwInterfaceSetFlags); !ok {
			return obliging(c)
		}
		held = append(held, c)
		if len(held) == window { // the peer answers when the window is full
			for _, h := range held {
				h.reply(&interfaces.SwInterfaceSetFlagsReply{})
			}
			held = nil
		}
		return nil, false
	}}
	p.listen()
	c := connect(t, p.socket, Options{})
	requests := flagsRequests(3 * window)
	c.exchange(t.Context(), requests...)
	if got := count(requests); got["applied"] != 3*window {
		t.Errorf("outcomes: %v", got)
	}
}

func TestConnectionLostInMidBatch(t *testing.T) {
	const (
		answered = 3
		all      = 200
	)
	p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
		if m, ok := c.msg.(*interfaces.SwInterfaceSetFlags); ok && m.SwIfIndex == answered {
			return nil, true
		}
		return obliging(c)
	}}
	p.listen()
	c := connect(t, p.socket, Options{})
	requests := flagsRequests(all)
	begin := time.Now()
	c.exchange(t.Context(), requests...)
	if took := time.Since(begin); took > c.options.Limit/2 {
		t.Errorf("the loss was noticed after %s", took)
	}
	got := count(requests)
	if got["applied"] != answered || got["unknown"] < 1 || got["unknown"] > window ||
		got["not applied"] != all-answered-got["unknown"] {
		t.Errorf("outcomes: %v", got)
	}
	for _, r := range requests[answered:] {
		if !errors.Is(r.fault(), kvscheduler.ErrDown) {
			t.Fatalf("not said to be down: %v", r.fault())
		}
	}
	if err := c.Health(); !errors.Is(err, kvscheduler.ErrDown) {
		t.Errorf("health: %v", err)
	}
}

func TestSentPartOfACancelledBatchIsUnknown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
		if _, ok := c.msg.(*interfaces.SwInterfaceSetFlags); ok {
			cancel()
			return nil, false
		}
		return obliging(c)
	}}
	p.listen()
	c := connect(t, p.socket, Options{Limit: 50 * time.Millisecond})
	requests := flagsRequests(2 * window)
	c.exchange(ctx, requests...)
	if got := count(requests); got["unknown"] != window || got["not applied"] != window {
		t.Errorf("outcomes: %v", got)
	}
	again := flagsRequests(1)
	c.exchange(ctx, again...)
	if got := outcome(again[0].fault()); got != "not applied" {
		t.Errorf("with a context that has ended: %s", got)
	}
}

func TestRefusalNamesTheRequestAndWhetherItIsPermanent(t *testing.T) {
	var retval api.VPPApiError
	p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
		if _, ok := c.msg.(*tapv2.TapCreateV3); ok {
			return []api.Message{&tapv2.TapCreateV3Reply{Retval: int32(retval)}}, false
		}
		if _, ok := c.msg.(*memclnt.ControlPing); ok {
			return []api.Message{&memclnt.ControlPingReply{}}, false
		}
		return obliging(c)
	}}
	p.listen()
	c := connect(t, p.socket, Options{})
	for _, tt := range []struct {
		retval api.VPPApiError
		want   string
	}{{api.SYSCALL_ERROR_7, "not applied"}, {api.INVALID_ARGUMENT, "refused for good"}, {
		api.UNIMPLEMENTED, "refused for good",
	}} {
		retval = tt.retval
		batch := []interfaceItem{
			{
				Name: "pod-a",
				Want: wire.Interface{Type: wire.TypeTap, Tap: wire.Tap{Namespace: "/run/netns/a", Name: "eth0"}},
			},
		}
		ifaces{c}.Create(t.Context(), batch)
		text := fmt.Sprint(batch[0].Err)
		if outcome(batch[0].Err) != tt.want ||
			!strings.HasPrefix(text, "tap_create_v3 pod-a (eth0 in network namespace /run/netns/a): ") ||
			!strings.Contains(text, tt.retval.Error()) {
			t.Errorf("%v is %s: %s", tt.retval, outcome(batch[0].Err), text)
		}
	}
}

// The dataplane answers with a number whatever is wrong with the Linux end of a tap.
func TestRefusedTapNamesTheLinkThatHasItsName(t *testing.T) {
	p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
		if _, ok := c.msg.(*tapv2.TapCreateV3); ok {
			return []api.Message{&tapv2.TapCreateV3Reply{Retval: int32(api.SYSCALL_ERROR_3)}}, false
		}
		return obliging(c)
	}}
	p.listen()
	c := connect(t, p.socket, Options{InTheWay: func(namespace, name string) error {
		if namespace != "/run/netns/a" || name != "eth0" {
			return nil
		}
		return errors.New("link eth0 already exists: a dummy")
	}})
	for namespace, want := range map[string]string{
		"/run/netns/a": "create tap eth0 in network namespace /run/netns/a: link eth0 already exists: a dummy",
		"/run/netns/b": "tap_create_v3 pod-a (eth0 in network namespace /run/netns/b): ",
	} {
		tap := wire.Interface{Type: wire.TypeTap, Tap: wire.Tap{Namespace: namespace, Name: "eth0"}}
		batch := []interfaceItem{{Name: "pod-a", Want: tap}}
		ifaces{c}.Create(t.Context(), batch)
		if text := fmt.Sprint(batch[0].Err); outcome(batch[0].Err) != "not applied" || !strings.HasPrefix(text, want) {
			t.Errorf("%s: %s, want %q", outcome(batch[0].Err), text, want)
		}
	}
}

func TestInterfaceThatCannotBeFinishedIsRemoved(t *testing.T) {
	for name, removal := range map[string]int32{"and that works": 0, "and that does not": int32(api.UNSPECIFIED)} {
		t.Run(name, func(t *testing.T) {
			var removed atomic.Uint32
			p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
				switch m := c.msg.(type) {
				case *tapv2.TapCreateV3:
					return []api.Message{&tapv2.TapCreateV3Reply{SwIfIndex: 5}}, false
				case *interfaces.SwInterfaceSetMtu:
					return []api.Message{&interfaces.SwInterfaceSetMtuReply{Retval: int32(api.INVALID_VALUE)}}, false
				case *tapv2.TapDeleteV2:
					removed.Store(uint32(m.SwIfIndex))
					return []api.Message{&tapv2.TapDeleteV2Reply{Retval: removal}}, false
				}
				return obliging(c)
			}}
			p.listen()
			c := connect(t, p.socket, Options{})
			batch := []interfaceItem{
				{
					Name: "pod-a",
					Want: wire.Interface{Type: wire.TypeTap, MTU: 1, Up: true, Tap: wire.Tap{Name: "eth0"}},
				},
			}
			ifaces{c}.Create(t.Context(), batch)
			want := "refused for good"
			if removal != 0 {
				want = "unknown"
			}
			if got := outcome(batch[0].Err); got != want || removed.Load() != 5 ||
				!strings.Contains(batch[0].Err.Error(), "sw_interface_set_mtu") {
				t.Errorf("outcome %s, removed %d: %v", got, removed.Load(), batch[0].Err)
			}
		})
	}
}

func TestLostConnectionIsReestablished(t *testing.T) {
	p := &peer{t: t, answer: obliging}
	p.listen()
	events := make(chan string, 10)
	c := connect(t, p.socket, Options{
		Probe: 5 * time.Millisecond, Redial: time.Millisecond,
		Events: Events{
			Connected: func(string) { events <- "connected" },
			Lost:      func(error) { events <- "lost" },
		},
	})
	background(t, c.Run)
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-events:
			if got != want {
				t.Fatalf("event %s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event, want %s", want)
		}
	}
	expect("connected")
	for range 3 {
		p.hangUp()
		expect("lost")
		expect("connected")
	}
	if err := c.Health(); err != nil {
		t.Errorf("health: %v", err)
	}
}

func TestDataplaneThatComesBackAtOnceIsConnectedWithoutThePauseOfRedials(t *testing.T) {
	p := &peer{t: t, answer: obliging}
	stop := p.listen()
	connected := make(chan string, 1)
	away := make(chan error, 10)
	c := connect(t, p.socket, Options{
		Redial: time.Hour, Logger: testLogger(t),
		Events: Events{
			Connected:    func(version string) { connected <- version },
			NotConnected: func(err error) { away <- err },
		},
	})
	<-connected
	background(t, c.Run)
	stop()
	p.hangUp()
	if err := <-away; err == nil {
		t.Error("the dataplane that is away was connected to")
	}
	(&peer{t: t, socket: p.socket, answer: obliging}).listen()
	select {
	case <-connected:
	case <-time.After(time.Minute):
		t.Error("not connected again")
	}
}

func TestDataplaneThatDoesNotAnswerProbesIsLost(t *testing.T) {
	var deaf atomic.Bool
	p := &peer{t: t, answer: func(c *call) ([]api.Message, bool) {
		if _, ok := c.msg.(*memclnt.ControlPing); ok && deaf.Load() {
			return nil, false
		}
		return obliging(c)
	}}
	p.listen()
	lost := make(chan error, 10)
	c := connect(t, p.socket, Options{
		Probe:  time.Millisecond,
		Limit:  20 * time.Millisecond,
		Events: Events{Lost: func(err error) { lost <- err }},
	})
	background(t, c.Run)
	deaf.Store(true)
	select {
	case err := <-lost:
		if !errors.Is(err, errNoAnswer) {
			t.Errorf("lost because of %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("not lost")
	}
}
