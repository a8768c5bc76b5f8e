package e2e_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// firewalld is the firewall of several distributions. docs/networking.md says how nodes with it are configured.
func TestPodsReachEachOtherBesideFirewalld(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	client, server := s.pair("n2", "n1")
	n := s.c.Node("n1")
	s.unpack("n1", "firewalld")
	s.needPrograms("n1", "/usr/bin/dbus-daemon", "/usr/sbin/firewalld")
	s.startBus("n1")
	firewall := n.Service("firewalld", "/usr/sbin/firewalld", "--nofork", "--nopid")
	s.must(firewall.Start())
	t.Cleanup(func() { _ = firewall.Stop(context.Background()) }) // likewise
	s.must(cluster.Eventually(t.Context(), "firewalld runs", func(ctx context.Context) error {
		out, err := n.Run(ctx, "/usr/bin/firewall-cmd", "--state")
		return errors.Join(err, errorUnless(strings.Contains(string(out), "running"), string(out)))
	}))
	const kubelet = "firewall-cmd --permanent --add-port=10250/tcp" // the API server's way to pods, of any CNI plugin
	for _, line := range append([]string{kubelet}, documented(t, "firewall-cmd")...) {
		arguments := strings.Fields(line)
		_, err := n.Run(t.Context(), "/usr/bin/"+arguments[0], arguments[1:]...)
		s.must(err)
	}
	for _, change := range [][]string{nil, {"--add-masquerade"}, {"--reload"}} {
		if change != nil {
			_, err := n.Run(t.Context(), "/usr/bin/firewall-cmd", change...)
			s.must(err)
		}
		s.reachEachOther(client, server)
	}
}

// Docker and administrators replace the rules of the node and let it drop what they do not know. docs/networking.md has
// the exceptions.
func TestPodsReachEachOtherBesideRestoredRulesOfIptables(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	client, server := s.pair("n2", "n1")
	n := s.c.Node("n1")
	s.unpack("n1", "iptables")
	families := map[string]string{"iptables": "/usr/sbin/iptables-nft", "ip6tables": "/usr/sbin/ip6tables-nft"}
	s.needPrograms("n1", families["iptables"], families["ip6tables"])
	restore := func(ctx context.Context, program, rules string) error {
		if err := n.Write("/var/tmp/rules", []byte(rules), 0o600); err != nil {
			return err
		}
		_, err := n.Run(ctx, program+"-restore", "/var/tmp/rules")
		return err
	}
	const nothing = "*raw\nCOMMIT\n*mangle\nCOMMIT\n*nat\nCOMMIT\n*filter\nCOMMIT\n"
	for name, program := range families {
		t.Cleanup(func() {
			s.must(restore(context.Background(), program,
				strings.Replace(nothing, "*filter\n", "*filter\n:FORWARD ACCEPT [0:0]\n", 1)))
		})
		// The same rules again are as a service that restarts: everything before them is flushed.
		for range 2 {
			s.must(restore(t.Context(), program,
				nothing+"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"))
			for _, line := range documented(t, name) {
				_, err := n.Run(t.Context(), program, strings.Fields(line)[1:]...)
				s.must(err)
			}
		}
	}
	s.reachEachOther(client, server)
}
