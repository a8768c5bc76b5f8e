package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

func TestPodsReachEachOtherOnOneNodeAndAcrossNodes(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	client, servers := s.nearAndFar()
	for _, server := range servers {
		for _, address := range s.addresses(server) {
			s.reaches(client, server, address)
		}
	}
}

// Many bytes between pods, in full-size segments in both directions, arrive unchanged, by the address of a pod and by a
// Service.
func TestBulkDataArrivesUnchangedAcrossNodes(t *testing.T) {
	const bytes = 100 << 20
	s := newSpace(t)
	client, servers := s.nearAndFar()
	for _, server := range servers {
		s.serves(server)
		service := s.expose(server.Name, corev1.ServiceTypeClusterIP)
		for _, ip := range clusterIPs(service) {
			s.answers(client, service, ip)
		}
		for _, address := range append(s.addresses(server), clusterIPs(service)...) {
			rate := s.exec(client, "bulk", netip.AddrPortFrom(address, 7).String(), fmt.Sprint(bytes))
			t.Logf("%s: %s to %s: %s", s.c.CNI().Name(), address, server.Name, strings.TrimSpace(rate))
		}
	}
}

// nearAndFar makes a client and two servers: one on its node, and one on the other.
func (s *space) nearAndFar() (client *corev1.Pod, servers []*corev1.Pod) {
	s.t.Helper()
	for _, name := range []string{"client", "near"} {
		s.create(name, "n1")
	}
	s.create("far", "n2")
	return s.ready("client"), []*corev1.Pod{s.ready("near"), s.ready("far")}
}

// reaches tests each protocol to a pod's address.
func (s *space) reaches(client, server *corev1.Pod, address netip.Addr) {
	s.t.Helper()
	s.serves(server)
	echo := netip.AddrPortFrom(address, 7).String()
	web := netip.AddrPortFrom(address, 8080).String()
	output := s.exec(client, "ping", address.String(), "3", "then", "tcp", echo, "over tcp", "then", "udp", echo,
		"over udp", "then", "http", "http://"+web)
	for _, want := range []string{" answers 3 in ", "\nover tcp\n", "\nover udp\n"} {
		if !strings.Contains(output, want) {
			s.t.Errorf("%s: output %q lacks %q", address, output, want)
		}
	}
	if want := "\npod=" + server.Name + " client=" + s.sameFamily(client, address).String() + " "; !strings.Contains(
		output, want) {
		s.t.Errorf("%s: page %q, want %q: the client's address was translated, or another server answers", web, output,
			want)
	}
}

// serves waits until a pod's program serves: a pod is ready when the program has started.
func (s *space) serves(pod *corev1.Pod) {
	s.t.Helper()
	s.must(cluster.Eventually(s.t.Context(), pod.Name+" serves", func(ctx context.Context) error {
		output, err := s.c.Client.CoreV1().Pods(s.name).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && string(output) != "serving\n" {
			return fmt.Errorf("output %q", output)
		}
		return err
	}))
}

func (s *space) sameFamily(pod *corev1.Pod, as netip.Addr) netip.Addr {
	all := s.addresses(pod)
	if as.Is6() {
		return all[1]
	}
	return all[0]
}

func TestServiceReachesItsPodsFromPodsAndFromOutside(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	client, server := s.pair("n1", "n2")
	both := corev1.IPFamilyPolicyRequireDualStack
	service, err := s.c.Client.CoreV1().Services(s.name).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "server"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, IPFamilyPolicy: &both, Selector: map[string]string{"app": server.Name},
			Ports: []corev1.ServicePort{{Port: 8080}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	for _, ip := range service.Spec.ClusterIPs {
		url := "http://" + netip.AddrPortFrom(netip.MustParseAddr(ip), 8080).String()
		s.must(s.reached(service,
			cluster.Eventually(t.Context(), client.Name+" reaches "+url, func(ctx context.Context) error {
				page, err := s.c.Exec(ctx, client, "http", url)
				return isFrom(server, page, err)
			})))
	}
	port := uint16(service.Spec.Ports[0].NodePort)
	for _, n := range s.c.Nodes {
		for _, address := range n.Addresses {
			url := "http://" + netip.AddrPortFrom(address, port).String()
			s.must(cluster.Eventually(t.Context(), "a client outside reaches "+url, func(ctx context.Context) error {
				page, err := fetch(ctx, url)
				return isFrom(server, page, err)
			}))
		}
	}
}

func isFrom(server *corev1.Pod, page string, err error) error {
	if err == nil && !strings.HasPrefix(page, "pod="+server.Name+" ") {
		return fmt.Errorf("another server answers: %s", page)
	}
	return err
}

// responseTimeout is how long a busy machine may take for a page.
const responseTimeout = 10 * time.Second

// fetch fetches a URL from this process, which is outside of the cluster and on the nodes' network.
func fetch(ctx context.Context, url string) (string, error) {
	return fetchBy(ctx, &http.Transport{DisableKeepAlives: true}, url)
}

func fetchBy(ctx context.Context, transport *http.Transport, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: transport, Timeout: responseTimeout}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	return string(page), err
}

// fetchFrom fetches a URL from a node.
func fetchFrom(ctx context.Context, n *cluster.Node, url string) (string, error) {
	return fetchBy(ctx, &http.Transport{DisableKeepAlives: true, DialContext: n.Dial}, url)
}
