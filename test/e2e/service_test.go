package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// expose makes a dual-stack Service for the pods with a label app: HTTP on port 80, and UDP and TCP echo on 7.
func (s *space) expose(app string, kind corev1.ServiceType) *corev1.Service {
	s.t.Helper()
	both := corev1.IPFamilyPolicyRequireDualStack
	service, err := s.c.Client.CoreV1().Services(s.name).Create(s.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: corev1.ServiceSpec{
			Type: kind, IPFamilyPolicy: &both, Selector: map[string]string{"app": app},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)},
				{Name: "echo", Port: 7, Protocol: corev1.ProtocolUDP},
				{Name: "echo-tcp", Port: 7},
			},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	return service
}

func TestServiceReachesItsPodFromItselfItsNodeAndOthers(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create("near", "n1")
	s.create("far", "n2")
	server := s.run("server", "n1")
	near := s.ready("near")
	far := s.ready("far")
	service := s.expose("server", corev1.ServiceTypeClusterIP)
	for _, address := range clusterIPs(service) {
		url := "http://" + netip.AddrPortFrom(address, 80).String()
		for _, client := range []*corev1.Pod{server, near, far} {
			page := s.answers(client, service, address)
			s.must(isFrom(server, page, nil))
			if want := s.seenByService(client, address); client != server && !strings.Contains(page, want) {
				t.Errorf("%s: page %q by %s, want %s", client.Name, page, address, want)
			}
			if got := s.exec(client, "udp", netip.AddrPortFrom(address, 7).String(),
				"some text"); got != "some text\n" {
				t.Errorf("%s receives %q over UDP from %s", client.Name, got, address)
			}
		}
		for _, n := range s.c.Nodes {
			s.must(cluster.Eventually(t.Context(), n.Name+" reaches "+url, func(ctx context.Context) error {
				page, err := fetchFrom(ctx, n, url)
				return isFrom(server, page, err)
			}))
		}
	}
}

// answers waits until a Service answers a pod, and returns its page.
func (s *space) answers(client *corev1.Pod, service *corev1.Service, ip netip.Addr) (page string) {
	s.t.Helper()
	url := "http://" + netip.AddrPortFrom(ip, 80).String()
	s.must(s.reached(service,
		cluster.Eventually(s.t.Context(), client.Name+" reaches "+url, func(ctx context.Context) (err error) {
			page, err = s.c.Exec(ctx, client, "http", url)
			return err
		})))
	return page
}

func clusterIPs(service *corev1.Service) (all []netip.Addr) {
	for _, ip := range service.Spec.ClusterIPs {
		all = append(all, netip.MustParseAddr(ip))
	}
	return all
}

// seenByService returns the part of the page that names a pod as the client of a Service: its last bits behind
// 100.64.0.0/10 or fc00::/8 (docs/policy.md). Other CNIs do not translate pods.
func (s *space) seenByService(client *corev1.Pod, as netip.Addr) string {
	s.t.Helper()
	address := s.sameFamily(client, as)
	if s.c.CNI().Name() == "weft" {
		raw := address.AsSlice()
		if address.Is6() {
			raw[0] = 0xfc
		} else {
			raw[0], raw[1] = 100, 64|raw[1]&0x3f
		}
		address, _ = netip.AddrFromSlice(raw)
	}
	return " client=" + address.String() + " "
}

// Endpoints on both nodes tell the pods apart that contact them by a Service, in each of many concurrent connections.
func TestManyConnectionsByAServiceShowTheirPod(t *testing.T) {
	t.Parallel()
	const connections = 200
	s := newSpace(t)
	clients := s.everywhere("client")
	servers := s.everywhere("server")
	service := s.expose("server", corev1.ServiceTypeClusterIP)
	for _, client := range clients {
		for _, ip := range clusterIPs(service) {
			s.answers(&client, service, ip)
			echo := slices.Repeat([]string{"udp/" + netip.AddrPortFrom(ip, 7).String()}, connections)
			pages := s.exec(&client, "http", "http://"+netip.AddrPortFrom(ip, 80).String(), fmt.Sprint(connections))
			if got := strings.Count(pages, s.seenByService(&client, ip)); got != connections {
				first, _, _ := strings.Cut(pages, "\n")
				t.Errorf("%d of %d connections of %s by %s show its client address; the first: %s", got, connections,
					client.Name, ip, first)
			}
			for _, server := range servers {
				if !strings.Contains(pages, "pod="+server.Name+" ") {
					t.Errorf("no connection of %s by %s has reached %s", client.Name, ip, server.Name)
				}
			}
			if got := s.exec(&client, append([]string{"knock", "-patient"}, echo...)...); strings.Count(got,
				" open\n") != connections {
				t.Errorf("echoes to %s by %s: %s", client.Name, ip, got)
			}
		}
	}
}

// With externalTrafficPolicy: Local the pod sees the client's address, through the pod's node.
func TestLocalServiceKeepsTheClientAddress(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	server := s.run("server", "n1")
	service := s.expose("server", corev1.ServiceTypeNodePort)
	service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	service, err := s.c.Client.CoreV1().Services(s.name).Update(t.Context(), service, metav1.UpdateOptions{})
	s.must(err)
	for i, address := range s.c.Node("n1").Addresses {
		url := "http://" + netip.AddrPortFrom(address, uint16(service.Spec.Ports[0].NodePort)).String()
		want := "client=" + s.c.Outside()[i].String() + " "
		s.must(cluster.Eventually(t.Context(), url+" keeps the client's address", func(ctx context.Context) error {
			page, err := fetch(ctx, url)
			if err := isFrom(server, page, err); err != nil || strings.Contains(page, want) {
				return err
			}
			return fmt.Errorf("page %q", page)
		}))
	}
}

func TestHostPortReachesItsPod(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	const hostPort = 18080
	spec := podSpec("n1")
	spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: hostPort}}
	_, err := s.c.Client.CoreV1().Pods(s.name).Create(t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "server"}, Spec: spec}, metav1.CreateOptions{})
	s.must(err)
	s.create("far", "n2")
	server := s.ready("server")
	far := s.ready("far")
	s.serves(server)
	for _, address := range s.c.Node("n1").Addresses {
		url := "http://" + netip.AddrPortFrom(address, hostPort).String()
		page, err := fetch(t.Context(), url)
		s.must(isFrom(server, page, err))
		for _, client := range []*corev1.Pod{server, far} {
			s.must(isFrom(server, s.exec(client, "http", url), nil))
		}
	}
}

// Kubelet connects from the node.
func TestKubeletProbesReachTheirPod(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	spec := podSpec("n2")
	web := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}
	echo := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(7)}}
	c := &spec.Containers[0]
	c.StartupProbe = &corev1.Probe{ProbeHandler: echo, PeriodSeconds: 1, FailureThreshold: 60}
	c.LivenessProbe = &corev1.Probe{ProbeHandler: web, PeriodSeconds: 1, TimeoutSeconds: 10}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: web, PeriodSeconds: 1, TimeoutSeconds: 10}
	_, err := s.c.Client.CoreV1().Pods(s.name).Create(t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probed"}, Spec: spec}, metav1.CreateOptions{})
	s.must(err)
	s.unharmed(t, s.ready("probed"))
}

func TestOutsideServersSeeTheNodesAddress(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	if s.c.CNI().Name() != "weft" {
		t.Skip("the peer does not masquerade")
	}
	for _, n := range s.c.Nodes {
		client := s.run("client-"+n.Name, n.Name)
		for i, address := range s.c.Outside() {
			url := "http://" + s.world(address)
			if seen := s.exec(client, "http", url); seen != n.Addresses[i].String() {
				t.Errorf("a pod on %s is seen by %s as %s, want %s", n.Name, url, seen, n.Addresses[i])
			}
		}
	}
}

// A pod's own node sees the pod's address. Another node sees its node's address, because its reply could not return by
// the same link.
func TestPodsReachServersOnNodes(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	if s.c.CNI().Name() != "weft" {
		t.Skip("the peer does not masquerade")
	}
	client := s.run("client", "n1")
	for node, seen := range map[string][]netip.Addr{"n1": s.addresses(client), "n2": s.c.Node("n1").Addresses} {
		spec := podSpec(node)
		spec.HostNetwork = true
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "on-" + node}, Spec: spec}
		_, err := s.c.Client.CoreV1().Pods(s.name).Create(t.Context(), pod, metav1.CreateOptions{})
		s.must(err)
		s.serves(s.ready(pod.Name))
		for i, address := range s.c.Node(node).Addresses {
			page := s.exec(client, "http", "http://"+netip.AddrPortFrom(address, 8080).String())
			if !strings.Contains(page, "client="+seen[i].String()+" ") {
				t.Errorf("on %s: page %q, want client %s", node, page, seen[i])
			}
		}
	}
}

// world serves outside of the cluster a page with the client's address.
func (s *space) world(address netip.Addr) string {
	s.t.Helper()
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, 0)))
	s.must(err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := netip.MustParseAddrPort(r.RemoteAddr)
		_, _ = w.Write([]byte(from.Addr().String())) // the client may be gone
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	s.t.Cleanup(func() { _ = server.Close(); <-done })
	return listener.Addr().String()
}

func TestNoPacketIsLostAfterAPodIsReady(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	client := s.run("client", "n1")
	for _, node := range []string{"n1", "n2"} {
		server := s.run("server-on-"+node, node)
		for _, address := range s.addresses(server) {
			s.exec(client, "ping", address.String(), "100")
			s.exec(server, "ping", s.sameFamily(client, address).String(), "100")
		}
	}
}
