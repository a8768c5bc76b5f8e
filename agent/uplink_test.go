package agent

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// uplinkSaid returns the message of the uplink condition; "" if it holds.
func (l *lab) uplinkSaid() string {
	l.Helper()
	var reply struct {
		Ready      bool
		Conditions []struct {
			Name, Message string
			OK            bool `json:"ok"`
		}
	}
	l.ctl(&reply, "status")
	for _, c := range reply.Conditions {
		if c.Name == health.Uplink && !c.OK {
			return c.Message
		}
	}
	return ""
}

func TestNodeWithoutItsUplinkServesPodsAndReportsIt(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{HTTP: endpointAddress})
	l.metric(`weft_condition{condition="uplink"}`, is(1))
	if output := l.uplinkSaid(); output != "" {
		t.Errorf("message of a node with its uplink: %s", output)
	}
	l.restartAfter(func(string) error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	if len(l.logged("uplink not found, continuing without it")) != 1 {
		t.Error("the agent does not log that it continues without the uplink")
	}
	if output := l.uplinkSaid(); !strings.Contains(output, "10.200.0.11") {
		t.Errorf("message about the missing uplink: %q", output)
	}
	l.metric(`weft_condition{condition="uplink"}`, is(0))
	l.metric(`weft_condition{condition="started"}`, is(1))
	a := l.pod("a")
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "b1/tap"})
	result := l.cni("ADD", a, nil)
	l.check(a, result)
	l.cni("DEL", a, nil)

	uplinkOf(t)
	l.restartAfter(func(string) error { return nil })
	if output := l.uplinkSaid(); output != "" {
		t.Errorf("message after a start with the uplink: %s", output)
	}
}
