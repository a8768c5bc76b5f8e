package agent

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/traffic"
)

// contact is an attempt to reach a port of another pod, by its address or by its Service.
type contact struct {
	from, to, protocol string
	port               uint16
	ipv6, service      bool
}

// tableCase is a case of the truth table: policies by name, and the contacts that they permit.
type tableCase struct {
	name     string
	policies map[string]string
	permits  func(contact) bool
}

// tableCases are a part of the cases of TestPolicies in test/e2e, for pods of one node.
func tableCases() []tableCase {
	one := func(spec string) map[string]string { return map[string]string{"one": spec} }
	toA := func(permitted func(contact) bool) func(contact) bool {
		return func(c contact) bool { return c.to != "a" || permitted(c) }
	}
	return []tableCase{
		{"no policy", nil, func(contact) bool { return true }},
		{"ingress is denied", one(`{podSelector: {}, policyTypes: [Ingress]}`), func(contact) bool { return false }},
		{
			"egress of a pod is denied", one(`{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress]}`),
			func(c contact) bool { return c.from != "a" },
		},
		{
			"ingress from a pod",
			one(`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}`),
			toA(func(c contact) bool { return c.from == "b" }),
		},
		{
			"a port of TCP", one(`{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: 80}]}]}`),
			toA(func(c contact) bool { return c.protocol == "tcp" && c.port == 80 }),
		},
		{
			"a range of ports of UDP",
			one(`{podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{protocol: UDP, port: 81, endPort: 90}]}]}`),
			toA(func(c contact) bool { return c.protocol == "udp" && c.port == 81 }),
		},
		{
			"egress to a pod by UDP",
			one(`{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {pod: c}}}], ports: [{protocol: UDP}]}]}`),
			func(c contact) bool { return c.from != "a" || c.to == "c" && c.protocol == "udp" },
		},
		{
			"a block of addresses with an exception",
			one(`{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{ipBlock: {cidr: 10.8.0.0/24, except: [IPV4(b)/32]}}]}]}`),
			toA(func(c contact) bool { return c.from == "c" && !c.ipv6 }),
		},
		{
			"the policies of both ends must permit",
			map[string]string{
				"one": `{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {pod: b}}}]}]}`,
				"two": `{podSelector: {matchLabels: {pod: b}}, ingress: [{from: [{podSelector: {matchLabels: {pod: c}}}]}]}`,
			},
			func(c contact) bool { return c.from != "a" && (c.to != "b" || c.from == "c") },
		},
	}
}

// truthTable has pods that serve all ports, by name.
type truthTable struct {
	*lab
	server    *k8stest.Server
	pods      map[string]*node.Pod
	addresses map[string][]netip.Addr // one of each family
	services  map[string][]netip.Addr // the cluster IPs of the pod's Service
}

// Each contact between three pods is as the policies say, by the address of the pod and by a Service.
func TestPolicyTable(t *testing.T) {
	server := k8stest.New(t)
	tt := &truthTable{
		lab:       clusterLabWith(t, server, node.Options{EnforcePolicies: true}),
		server:    server,
		pods:      map[string]*node.Pod{},
		addresses: map[string][]netip.Addr{}, services: map[string][]netip.Addr{},
	}
	for _, name := range []string{"a", "b", "c"} {
		tt.add(name)
	}
	for _, c := range tableCases() {
		for name, spec := range c.policies {
			tt.apply(name, spec)
		}
		var wrong []string
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			if wrong = tt.compare(c.permits); len(wrong) == 0 {
				break
			}
		}
		if len(wrong) > 0 {
			t.Errorf("%s:\n%s", c.name, strings.Join(wrong, "\n"))
		}
		for name := range c.policies {
			server.Remove("networkpolicies.networking.k8s.io", "lab", name)
		}
	}
	for _, p := range tt.pods {
		tt.cni("DEL", p, nil)
	}
}

// add makes a pod and its servers.
func (tt *truthTable) add(name string) {
	tt.Helper()
	p := tt.pod(name)
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "lab",
			Name:      name,
			UID:       types.UID("uid-" + name),
			Labels:    map[string]string{"pod": name},
		},
		Spec: corev1.PodSpec{NodeName: node.Name},
	}
	tt.server.Put("pods", object)
	tt.pods[name], tt.addresses[name] = p, tt.lab.addresses(tt.cni("ADD", p, nil))
	object = object.DeepCopy()
	for _, a := range tt.addresses[name] {
		object.Status.PodIPs = append(object.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	object.Status.Phase = corev1.PodRunning
	object.Status.PodIP = object.Status.PodIPs[0].IP
	tt.server.Put("pods", object)
	tt.serviceOf(name)
	for _, port := range []uint16{80, 81} {
		must.Succeed(tt.T, traffic.Inside(p.Netns, func() error { return tt.serve(port) }))
	}
}

// serviceOf makes a Service of a pod, which the node translates as kube-proxy does.
func (tt *truthTable) serviceOf(name string) {
	tt.Helper()
	number := byte(len(tt.pods))
	ips := []netip.Addr{
		netip.AddrFrom4([4]byte{10, 96, 0, number}), netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x96, 15: number}),
	}
	tt.services[name] = ips
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name}}
	var ports []discoveryv1.EndpointPort
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		for _, port := range []int32{80, 81} {
			id := fmt.Sprint(protocol, port)
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
				Name:     id,
				Protocol: protocol,
				Port:     port,
			})
			ports = append(ports, discoveryv1.EndpointPort{Name: &id, Port: &port})
		}
	}
	for i, ip := range ips {
		service.Spec.ClusterIPs = append(service.Spec.ClusterIPs, ip.String())
		tt.redirectTo(ip, netip.AddrPortFrom(tt.addresses[name][i], 0))
		tt.server.Put("endpointslices.discovery.k8s.io", &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "lab",
				Name:      fmt.Sprintf("%s-%d", name, i),
				Labels:    map[string]string{discoveryv1.LabelServiceName: name},
			},
			Ports: ports, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{tt.addresses[name][i].String()}}},
		})
	}
	tt.server.Put("services", service)
}

// serve echoes TCP and UDP on a port, until the test ends.
func (tt *truthTable) serve(port uint16) error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close() // a connection is enough
		}
	})
	serving.Go(func() {
		b := make([]byte, 16)
		for {
			n, from, err := packets.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(b[:n], from)
		}
	})
	tt.Cleanup(func() {
		_ = listener.Close()
		_ = packets.Close()
		serving.Wait()
	})
	return nil
}

// apply puts a policy.
func (tt *truthTable) apply(name, spec string) {
	tt.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name}}
	must.Succeed(tt.T,
		yaml.Unmarshal([]byte(strings.ReplaceAll(spec, "IPV4(b)", tt.addresses["b"][0].String())), &p.Spec))
	if len(p.Spec.PolicyTypes) == 0 { // the API server's default
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	}
	tt.server.Put("networkpolicies.networking.k8s.io", p)
}

// compare tries all contacts at the same time, and returns a line for each that is not as expected.
func (tt *truthTable) compare(permits func(contact) bool) (wrong []string) {
	var mu sync.Mutex
	var trying sync.WaitGroup
	for c := range tt.contacts() {
		trying.Go(func() {
			if err := tt.try(c); (err == nil) != permits(c) {
				mu.Lock()
				wrong = append(wrong, fmt.Sprintf("%+v: %v, permitted: %t", c, err, permits(c)))
				mu.Unlock()
			}
		})
	}
	trying.Wait()
	slices.Sort(wrong)
	return wrong
}

func (tt *truthTable) contacts() map[contact]bool {
	all := map[contact]bool{}
	for from := range tt.pods {
		for to := range tt.pods {
			for _, protocol := range []string{"tcp", "udp"} {
				for _, port := range []uint16{80, 81} {
					if from == to {
						continue
					}
					for _, ipv6 := range []bool{false, true} {
						all[contact{from, to, protocol, port, ipv6, false}] = true
						all[contact{from, to, protocol, port, ipv6, true}] = true
					}
				}
			}
		}
	}
	return all
}

// try returns an error if the contact has no answer. TCP sends its second SYN after a second.
func (tt *truthTable) try(c contact) error {
	addresses := tt.addresses[c.to]
	if c.service {
		addresses = tt.services[c.to]
	}
	address := addresses[0]
	if c.ipv6 {
		address = addresses[1]
	}
	return traffic.Inside(tt.pods[c.from].Netns, func() error {
		deadline := time.Now().Add(900 * time.Millisecond)
		conn, err := (&net.Dialer{Deadline: deadline}).DialContext(tt.Context(), c.protocol,
			netip.AddrPortFrom(address, c.port).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if c.protocol == "tcp" {
			return nil
		}
		if _, err := conn.Write([]byte("knock")); err != nil {
			return err
		}
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
		_, err = io.ReadFull(conn, make([]byte, len("knock")))
		return err
	})
}
