// Package outage_test kills the dataplane, at random moments and on chosen messages, and tests that pods survive.
package outage_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
	"github.com/weftnet/weft/test/programs"
)

func TestMain(m *testing.M) { netnstest.Main(m, programs.Keep()) }

// timeout is the timeout of the node's recovery.
const timeout = time.Minute

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	over := time.After(timeout)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("not within %s: %s", timeout, what)
		}
	}
}

// stage is a node with a dataplane that is killed.
type stage struct {
	*testing.T
	*node.Node
	runtime *node.Runtime
	flags   []string // of the agent
}

// newStage makes a node with veths, which need no kernel module on VPP.
func newStage(t *testing.T) *stage {
	t.Helper()
	return newStageWith(t, node.Options{PodInterface: "veth"})
}

// newStageWith makes a node with the given options and networks.
func newStageWith(t *testing.T, o node.Options) *stage {
	t.Helper()
	netnstest.RequireTap(t)
	o.CoolDown = 100 * time.Millisecond
	o.Networks = []node.Network{
		{Name: "blue", Type: "L2", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24")}},
		{Name: "red", Type: "L3", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.6.0.0/24")}},
	}
	n, err := node.New(programs.Build(t), o)
	must.Succeed(t, err)
	s := &stage{T: t, Node: n}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n.LogTails(200))
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	s.runtime, err = n.Runtime(os.Stderr)
	must.Succeed(t, err)
	return s
}

func (s *stage) start() {
	s.Helper()
	must.Succeed(s.T, s.StartAgent(s.Context(), s.flags...))
}

// add makes a pod with an interface on each network.
func (s *stage) add(name string) (*node.Pod, []node.Link) {
	s.Helper()
	p := s.sandbox(name)
	result, err := s.runtime.Add(s.Context(), p)
	must.Succeed(s.T, err)
	links, err := node.Links(result)
	must.Succeed(s.T, err)
	return p, links
}

func (s *stage) sandbox(name string) *node.Pod {
	s.Helper()
	p, err := s.NewPod(name)
	must.Succeed(s.T, err)
	p.Annotations = map[string]string{"contivpp.io/custom-if": "x0/veth/blue, x1/veth/red"}
	return p
}

func (s *stage) reach(from *node.Pod, to []node.Link) {
	s.Helper()
	p, err := ping.Open(from.Netns, to[0].Bare()[0])
	must.Succeed(s.T, err)
	defer p.Close()
	ctx, cancel := context.WithTimeout(s.Context(), timeout)
	defer cancel()
	if _, err := p.Reach(ctx, to[0].Bare()[0]); err != nil {
		s.Errorf("from %s: %v", from.Name, err)
	}
}

// ctl runs weftctl with JSON output.
func (s *stage) ctl(reply any, args ...string) error {
	text, err := s.Weftctl(s.Context(), append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), reply)
}

// entry is an entry of weftctl quarantine list.
type entry struct {
	Attachment struct{ ContainerID string }
	Pod        struct{ Name string }
	State      string
	Reason     string
}

// quarantined returns the names of quarantined pods.
func (s *stage) quarantined(state string) (names []string) {
	s.Helper()
	var reply struct{ Entries []entry }
	must.Succeed(s.T, s.ctl(&reply, "quarantine", "list"))
	for _, e := range reply.Entries {
		if e.State == state {
			names = append(names, e.Pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

// conditions returns the failed conditions with their messages.
func (s *stage) conditions() map[string]string {
	s.Helper()
	var reply struct {
		Conditions []struct {
			Name    string
			Ok      bool
			Message string
		}
	}
	failed := map[string]string{}
	if err := s.ctl(&reply, "status"); err != nil {
		failed["status"] = err.Error()
	}
	for _, c := range reply.Conditions {
		if !c.Ok {
			failed[c.Name] = c.Message
		}
	}
	return failed
}

// supervised is a dataplane that is restarted whenever it ends, as by a DaemonSet.
type supervised struct {
	*dataplane.Dataplane
	kills   chan struct{} // a token requests a kill
	closing chan struct{}
	done    chan error
}

func supervise(t *testing.T) *supervised {
	t.Helper()
	o := dataplane.Options{}
	if dataplane.Prefix() == "" {
		o.Programs = programs.Build(t)
	}
	d, err := dataplane.New(o)
	must.Succeed(t, err)
	s := &supervised{d, make(chan struct{}), make(chan struct{}), make(chan error, 1)}
	must.Succeed(t, d.Start(t.Context()))
	go func() { s.done <- s.run() }()
	t.Cleanup(func() {
		close(s.closing)
		must.Succeed(t, <-s.done)
	})
	return s
}

func (s *supervised) run() error {
	for {
		select {
		case <-s.closing:
			return s.Close()
		case <-s.kills:
			if err := errors.Join(s.Kill(), s.Start(context.Background())); err != nil {
				return errors.Join(err, s.Close())
			}
		}
	}
}
