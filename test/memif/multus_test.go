package memif_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/node"
)

// multus handles NetworkAttachmentDefinitions as Multus does: it executes the plugin of each with a generated
// configuration and arguments, for one sandbox, sequentially.
type multus struct {
	*lab
	cni *libcni.CNIConfig
	pod *node.Pod
}

// selection is a network that a pod selects, with its request for the interface.
type selection struct {
	definition  string // name of the definition and of the network
	ifName      string
	awaitOutput map[string]any // the definition's configuration except the agent's socket

	device, mac string
	ips         []string
	args        map[string]any // cni-args
}

func newMultus(l *lab, p *node.Pod) *multus {
	return &multus{
		l, libcni.NewCNIConfigWithCacheDir([]string{filepath.Dir(l.Program("weft-cni"))}, l.Dir+"/multus", nil), p,
	}
}

// config is the configuration that Multus generates: it adds the device, under two keys, and the pod's cni-args.
func (m *multus) config(s selection) *libcni.PluginConfig {
	m.Helper()
	conf := map[string]any{
		"cniVersion": "1.0.0", "name": s.definition, "type": "weft-cni", "mode": "delegate",
		"socket": m.Socket(), "deleteQueue": filepath.Join(m.State(), "delete-queue"),
		"capabilities": map[string]bool{"mac": true, "ips": true, "deviceID": true},
	}
	maps.Copy(conf, s.awaitOutput)
	if s.device != "" {
		conf["deviceID"] = s.device
		conf["pciBusID"] = s.device
	}
	if s.args != nil {
		conf["args"] = map[string]any{"cni": s.args}
	}
	text, err := json.Marshal(conf)
	m.try(err)
	plugin, err := libcni.NetworkPluginConfFromBytes(text)
	m.try(err)
	return plugin
}

// arguments are Multus' own, followed by the runtime's, so that most occur twice, and the pod's request.
func (m *multus) arguments(s selection) *libcni.RuntimeConf {
	of := func(ignore string) [][2]string {
		return [][2]string{
			{"IgnoreUnknown", ignore}, {"K8S_POD_NAMESPACE", cmp.Or(m.pod.Namespace, "demo")}, {
				"K8S_POD_NAME", m.pod.Name,
			},
			{"K8S_POD_INFRA_CONTAINER_ID", m.pod.ContainerID}, {"K8S_POD_UID", m.pod.ContainerID[:32]},
		}
	}
	r := &libcni.RuntimeConf{
		ContainerID:    m.pod.ContainerID,
		NetNS:          m.pod.Netns,
		IfName:         s.ifName,
		Args:           append(of("true"), of("1")...),
		CapabilityArgs: map[string]any{},
	}
	if s.mac != "" {
		r.CapabilityArgs["mac"] = s.mac
	}
	if s.ips != nil {
		r.CapabilityArgs["ips"] = s.ips
	}
	if s.device != "" {
		r.CapabilityArgs["deviceID"] = s.device
		r.CapabilityArgs["CNIDeviceInfoFile"] = "/var/run/k8s.cni.cncf.io/devinfo/cni/" + s.definition
	}
	return r
}

func (m *multus) add(s selection) node.Link {
	m.Helper()
	given, err := m.cni.AddNetwork(m.Context(), m.config(s), m.arguments(s))
	m.try(err)
	result, err := types100.NewResultFromResult(given)
	m.try(err)
	links, err := node.Links(result)
	m.try(err)
	if len(links) != 1 || links[0].Name != s.ifName {
		m.Fatalf("ADD of %s returned %+v", s.ifName, links)
	}
	return links[0]
}

func (m *multus) check(selections []selection) {
	m.Helper()
	for _, s := range selections {
		if err := m.cni.CheckNetwork(m.Context(), m.config(s), m.arguments(s)); err != nil {
			m.Errorf("CHECK of %s: %v", s.ifName, err)
		}
	}
}

// ADD, CHECK and DEL concern one network each; they have the same container id and different interface names. The
// memifs are those that kubelet allocated for Multus.
func TestMultusAddsChecksAndDeletesSeveralNetworks(t *testing.T) {
	l := newLab(t, node.Options{Networks: networks()})
	asker, err := l.NewPod("asker")
	l.try(err)
	asker.Annotations = map[string]string{"contivpp.io/custom-if": "b0/tap/blue,r0/veth/red"}
	l.add(asker)
	p, containers := l.admit("d", "", "",
		kubelettest.Container{Name: "vnf", Limit: 2}, kubelettest.Container{Name: "side", Limit: 1})
	vnf := containers[0]
	side := containers[1]
	places := leftovers.Places{
		Namespaces: map[string]string{"node": "", "d": p.Netns},
		Agent:      l.Socket(),
		Dataplane:  l.DataplaneSocket(),
	}
	before, err := leftovers.Steady(t.Context(), places, timeout)
	l.try(err)

	m := newMultus(l, p)
	l.add(p) // the cluster's network, also Weft's
	selections := []selection{
		{
			definition:  "tap",
			ifName:      "net1",
			awaitOutput: map[string]any{"network": "blue"},
			mac:         "02:00:00:00:00:07",
			ips:         []string{"10.5.0.77/24"},
		},
		{
			definition: "m-red",
			ifName:     "net2",
			awaitOutput: map[string]any{
				"network":       "red",
				"interfaceType": "memif",
				"options":       map[string]any{"ringSize": 64},
			},
			device: vnf.Devices[1],
		},
		{
			definition:  "m-blue",
			ifName:      "net3",
			awaitOutput: map[string]any{"network": "blue", "interfaceType": "memif"},
			device:      side.Devices[0],
		},
		{
			definition:  "m-blue",
			ifName:      "m4",
			awaitOutput: map[string]any{"network": "blue", "interfaceType": "memif"},
			device:      vnf.Devices[0],
			args:        map[string]any{"ips": []string{"10.5.0.78"}, "foo": "bar"},
		},
	}
	var links []node.Link
	for _, s := range selections {
		links = append(links, m.add(s))
	}
	m.check(selections)
	l.try(l.runtime.Check(t.Context(), p))
	if links[0].Mac != "02:00:00:00:00:07" ||
		fmt.Sprint(links[0].Addresses[0], links[3].Addresses[0]) != "10.5.0.77/24 10.5.0.78/24" {
		t.Errorf("the pod's requests resulted in %+v and %+v", links[0], links[3])
	}
	l.reachBy(asker, "b0", links[0].Bare()[0])
	inVNF := l.start(p, vnf, "icmpresponder")
	inSide := l.start(p, side, "icmpresponder")
	l.awaitOutput(inVNF, "net2: connected to")
	l.awaitOutput(inVNF, "m4: connected to")
	l.awaitOutput(inSide, "net3: connected to")
	l.reachBy(asker, "r0", links[1].Bare()[0])
	l.reachBy(asker, "b0", links[2].Bare()[0])
	l.reachBy(asker, "b0", links[3].Bare()[0])

	l.try(l.KillAgent())
	l.try(l.StartAgent(t.Context()))
	m.check(selections)
	for at := len(selections) - 1; at >= 0; at-- { // Multus' order
		s := selections[at]
		l.try(m.cni.DelNetwork(t.Context(), m.config(s), m.arguments(s)))
		m.check(selections[:at])
		if at == 3 { // m4, on the same socket
			l.reachBy(asker, "r0", links[1].Bare()[0])
		}
	}
	l.try(l.runtime.Del(t.Context(), p))
	inVNF.end()
	inSide.end()
	after, err := leftovers.Settle(t.Context(), places, before, timeout)
	l.try(err)
	if left := after.Since(before); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
