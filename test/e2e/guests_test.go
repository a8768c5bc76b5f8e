package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/programs"
)

// Tests of programs that administrators run on nodes beside Weft.

// unpack unpacks a package of the distribution on a node, where it changes nothing of the computer.
func (s *space) unpack(node, guest string) {
	s.t.Helper()
	archives, err := programs.Archives(guest)
	if err != nil {
		s.t.Skip(err)
	}
	for _, archive := range archives {
		content, err := os.ReadFile(archive)
		s.must(err)
		to := filepath.Join("/var/tmp", filepath.Base(archive))
		n := s.c.Node(node)
		s.must(n.Write(to, content, 0o644))
		// dpkg-deb -x would replace links to directories, such as /lib, by directories.
		_, err = n.Run(s.t.Context(), "/bin/sh", "-ec",
			`dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C /`, "sh", to)
		s.must(err)
		s.must(n.Do(func() error { return os.Remove(to) }))
	}
}

// condition waits until a condition of a node's agent holds, or does not and has all the words in its message.
func (s *space) condition(node, name string, holds bool, words ...string) {
	s.t.Helper()
	what := fmt.Sprintf("condition %s of %s is %t, with %q", name, node, holds, words)
	s.must(cluster.Eventually(s.t.Context(), what, func(ctx context.Context) error {
		var output struct {
			Conditions []struct {
				Name    string `json:"name"`
				OK      bool   `json:"ok"`
				Message string `json:"message"`
			} `json:"conditions"`
		}
		if err := s.weftctl(ctx, node, &output, "status"); err != nil {
			return err
		}
		for _, c := range output.Conditions {
			if c.Name != name {
				continue
			}
			lacks := slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(c.Message, word) })
			if c.OK == holds && !lacks {
				return nil
			}
			return fmt.Errorf("it is %t: %s", c.OK, c.Message)
		}
		return fmt.Errorf("there is none among %+v", output.Conditions)
	}))
}

// keepalived returns the configuration of a router with one virtual address.
func keepalived(card string, address netip.Addr) string {
	return fmt.Sprintf(`global_defs {
  router_id weft
}
vrrp_instance weft {
  state MASTER
  interface %s
  virtual_router_id 51
  priority 100
  advert_int 1
  virtual_ipaddress {
    %s/32
  }
}
`, card, address)
}

// linkOf returns the link with an address.
func linkOf(address netip.Addr) (string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return "", err
	}
	for _, l := range links {
		has, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(has, func(a netlink.Addr) bool { return a.IP.Equal(address.AsSlice()) }) {
			return l.Attrs().Name, nil
		}
	}
	return "", fmt.Errorf("no link has address %s", address)
}

// keepalived moves virtual addresses between nodes. One that a pod has is named, and no pod gets one that the node has.
func TestVirtualAddressOfKeepalivedInTheRangeOfPods(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	client, victim := s.pair("n2", "n1")
	n := s.c.Node("n1")
	s.unpack("n1", "keepalived")
	address := s.addresses(victim)[0]
	var card string
	s.must(n.Do(func() (err error) { card, err = linkOf(n.Addresses[0]); return err }))
	s.must(n.Write("/etc/keepalived/keepalived.conf", []byte(keepalived(card, address)), 0o600))
	router := n.Service("keepalived", "/usr/sbin/keepalived", "--dont-fork", "--log-console", "--vrrp")
	s.must(router.Start())
	t.Cleanup(func() { _ = router.Stop(context.Background()) }) // it may have ended
	s.condition("n1", "node-addresses", false, victim.Namespace+"/"+victim.Name, address.String(), "link "+card)
	s.must(cluster.Eventually(t.Context(), "the pod has an event", func(ctx context.Context) error {
		list, err := s.c.Client.CoreV1().Events(victim.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + victim.Name,
		})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == "WeftAddressOfNode" && strings.Contains(e.Message, address.String()) {
				return nil
			}
		}
		return errors.New("there is none")
	}))

	s.must(s.c.Client.CoreV1().Pods(victim.Namespace).Delete(t.Context(), victim.Name, metav1.DeleteOptions{}))
	s.condition("n1", "node-addresses", true)
	s.must(cluster.Eventually(t.Context(), "the address is no pod's", func(ctx context.Context) error {
		var output struct{ Leases []lease }
		if err := s.weftctl(ctx, "n1", &output, "addresses"); err != nil {
			return err
		}
		at := slices.IndexFunc(output.Leases, func(l lease) bool { return l.Address == address.String() })
		if at < 0 || output.Leases[at].State != "occupied" ||
			!strings.Contains(output.Leases[at].Holder, "link "+card) {
			return fmt.Errorf("leases: %+v", output.Leases)
		}
		return nil
	}))
	next := s.run("next", "n1")
	s.reaches(client, next, s.addresses(next)[0])
	s.must(router.Stop(t.Context()))
	s.must(cluster.Eventually(t.Context(), "the address is the node's no more", func(ctx context.Context) error {
		return s.c.Node("n1").Do(func() error {
			if link, err := linkOf(address); err == nil {
				return fmt.Errorf("link %s has it", link)
			}
			return nil
		})
	}))
}

const systemBus = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_type="error"/>
    <allow send_type="method_return"/>
    <allow receive_type="method_call"/>
    <allow receive_type="signal"/>
    <allow receive_type="error"/>
    <allow receive_type="method_return"/>
  </policy>
</busconfig>
`

// startBus starts the system bus, by which programs of the distribution take commands.
func (s *space) startBus(node string) {
	s.t.Helper()
	n := s.c.Node(node)
	s.must(n.Write("/etc/weft-bus.conf", []byte(systemBus), 0o644))
	s.must(n.Do(func() error { return os.MkdirAll("/run/dbus", 0o755) }))
	bus := n.Service("dbus", "/usr/bin/dbus-daemon", "--nofork", "--nopidfile", "--config-file=/etc/weft-bus.conf")
	s.must(bus.Start())
	s.t.Cleanup(func() { _ = bus.Stop(context.Background()) }) // it may have ended
}

// needPrograms skips the test if a node has not all the programs.
func (s *space) needPrograms(node string, paths ...string) {
	s.t.Helper()
	for _, path := range paths {
		if err := s.c.Node(node).Do(func() error { _, err := os.Stat(path); return err }); err != nil {
			s.t.Skip("the node lacks ", err)
		}
	}
}

// reachEachOther tests both directions between two pods in both families.
func (s *space) reachEachOther(a, b *corev1.Pod) {
	s.t.Helper()
	for _, address := range s.addresses(b) {
		s.reaches(a, b, address)
	}
	for _, address := range s.addresses(a) {
		s.reaches(b, a, address)
	}
}

// documented returns the commands of docs/networking.md that begin with a word.
func documented(t *testing.T, program string) (lines []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/networking.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if command := strings.TrimSpace(line); strings.HasPrefix(command, program+" ") {
			lines = append(lines, command)
		}
	}
	if len(lines) == 0 {
		t.Fatalf("docs/networking.md has no commands of %s", program)
	}
	return lines
}

func errorUnless(ok bool, text string) error {
	if ok {
		return nil
	}
	return errors.New(text)
}
