package mesh

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/ipnet/desired"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// uplinkMTU is the MTU of the link between the nodes.
const uplinkMTU = 1500

// machine is one node: the first in the test's namespace, the second in a new one.
type machine struct {
	*node.Node
	t         *testing.T
	name      string
	namespace string // path; "" = the test's
	addresses []netip.Prefix
	blocks    []string
	pod       *node.Pod
	link      node.Link // of the pod
}

// cluster is two nodes with a cable between their links up0.
type cluster struct {
	t      *testing.T
	server *k8stest.Server
	nodes  [2]*machine
}

// options are options of a cluster's nodes.
type options struct {
	tunnel string
	uplink string // the card that the dataplanes own; "" = the kernels own it
	port   uint16 // UDP port of the tunnels; 0 = the agents' default
	path   *path  // between the nodes; nil: a cable
	mtu    int    // of the cable; 0 = uplinkMTU
}

func newCluster(t *testing.T, o options) *cluster {
	t.Helper()
	netnstest.Require(t)
	c := &cluster{t: t, server: k8stest.New(t)}
	for i := range c.nodes {
		n := i + 1
		m := &machine{t: t, name: fmt.Sprint("n", n), addresses: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", n)),
			netip.MustParsePrefix(fmt.Sprintf("2001:db8:ff::%d/64", n)),
		}, blocks: []string{fmt.Sprintf("10.8.%d.0/24", n), fmt.Sprintf("fd00:8:%d::/64", n)}}
		if o.path != nil {
			m.addresses = o.path.addresses(n)
		}
		if i > 0 {
			m.namespace = netnstest.New(t)
		}
		c.nodes[i] = m
	}
	if o.path == nil {
		c.cable(cmp.Or(o.mtu, uplinkMTU))
	} else {
		o.path.connect(c)
	}
	for _, m := range c.nodes {
		m.begin(c.server, o)
	}
	return c
}

// cable connects the nodes.
func (c *cluster) cable(mtu int) {
	c.t.Helper()
	f, err := os.Open(c.nodes[1].namespace)
	must.Succeed(c.t, err)
	defer f.Close()
	link := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: "up0", MTU: mtu},
		PeerName:      "up0",
		PeerMTU:       uint32(mtu),
		PeerNamespace: netlink.NsFd(f.Fd()),
	}
	must.Succeed(c.t, netlink.LinkAdd(link))
	c.uncable(link)
	for _, m := range c.nodes {
		m.raise()
	}
}

// uncable deletes a card of the test's namespace at the end of the test, with what a dataplane that owned it leaves
// behind.
func (c *cluster) uncable(link netlink.Link) {
	c.t.Cleanup(func() {
		_ = netlink.LinkDel(link)
		// it has the node's addresses at the end, too
		if punting, err := netlink.LinkByName(desired.UplinkLink); err == nil {
			must.Succeed(c.t, netlink.LinkDel(punting))
		}
		// A taken card leaves a table behind, which newer kernels apply to the next card of that name.
		conn, err := nftables.New()
		must.Succeed(c.t, err)
		tables, err := conn.ListTablesOfFamily(nftables.TableFamilyNetdev)
		must.Succeed(c.t, err)
		for _, table := range tables {
			conn.DelTable(table)
		}
		must.Succeed(c.t, conn.Flush())
	})
}

// raise sets up the node's card and gives it the node's addresses.
func (m *machine) raise() {
	m.t.Helper()
	m.inside(func() {
		up, err := netlink.LinkByName("up0")
		must.Succeed(m.t, err)
		must.Succeed(m.t, netlink.LinkSetUp(up))
		for _, p := range m.addresses {
			must.Succeed(m.t, netlink.AddrAdd(up, &netlink.Addr{
				IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
				Flags: unix.IFA_F_NODAD,
			}))
		}
		// the default of most distributions
		must.Succeed(m.t, os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0))
	})
}

func (m *machine) inside(f func()) {
	m.t.Helper()
	if m.namespace == "" {
		f()
		return
	}
	netnstest.Do(m.t, m.namespace, f)
}

// begin starts the agent of the node, which starts a dataplane.
func (m *machine) begin(server *k8stest.Server, o options) {
	m.t.Helper()
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.name, UID: types.UID("uid-" + m.name)},
		Spec:       corev1.NodeSpec{PodCIDR: m.blocks[0], PodCIDRs: m.blocks},
	}
	for _, p := range m.addresses {
		object.Status.Addresses = append(object.Status.Addresses, corev1.NodeAddress{
			Type:    corev1.NodeInternalIP,
			Address: p.Addr().String(),
		})
	}
	server.Put("nodes", object)
	options := node.Options{
		Kubeconfig: m.kubeconfig(server),
		Tunnel:     o.tunnel,
		VXLANPort:  o.port,
		Uplink:     o.uplink,
		Verify:     true,
		Netns:      m.namespace,
	}
	n, err := node.New(programs.Build(m.t), options)
	must.Succeed(m.t, err)
	m.Node = n
	m.t.Cleanup(func() {
		if log, err := os.ReadFile(n.AgentLog()); m.t.Failed() && err == nil {
			m.t.Logf("log of %s:\n%s", m.name, log)
		}
		must.Succeed(m.t, n.Close())
	})
	m.inside(func() { must.Succeed(m.t, n.BeginAgent("--kubernetes-node", m.name)) })
	must.Succeed(m.t, n.AwaitReady(m.t.Context()))
}

// kubeconfig has the address of the API server, which listens in the test's namespace.
func (m *machine) kubeconfig(server *k8stest.Server) string {
	m.t.Helper()
	host := server.Connection().Host
	if m.namespace != "" {
		host = m.proxy(host)
	}
	config := api.NewConfig()
	config.Clusters["it"] = &api.Cluster{Server: host}
	config.Contexts["it"] = &api.Context{Cluster: "it"}
	config.CurrentContext = "it"
	file := filepath.Join(m.t.TempDir(), "kubeconfig")
	must.Succeed(m.t, clientcmd.WriteToFile(*config, file))
	return file
}

// proxy forwards connections from the node's namespace to the API server.
func (m *machine) proxy(host string) string {
	m.t.Helper()
	to, err := url.Parse(host)
	must.Succeed(m.t, err)
	var l net.Listener
	m.inside(func() {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		must.Succeed(m.t, err)
	})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // closed
			}
			out, err := net.Dial("tcp", to.Host)
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				group.Go(func() {
					_, _ = io.Copy(pair[0], pair[1]) // either end may close
					_ = pair[0].Close()
					_ = pair[1].Close()
				})
			}
		}
	})
	m.t.Cleanup(func() { _ = l.Close(); group.Wait() })
	return "http://" + l.Addr().String()
}

// meet waits until each node has announced itself and has routes to the blocks of the other.
func (c *cluster) meet() {
	c.t.Helper()
	for i, m := range c.nodes {
		other := c.nodes[1-i]
		k8stest.Eventually(c.t, m.name+" announces itself", func() bool {
			var own v1.NodeNetwork
			return c.server.Object("nodenetworks.contivpp.io", "", m.name, &own) && own.Spec.NodeIDConfirmed
		})
		k8stest.Eventually(c.t, m.name+" has routes to "+other.name, func() bool {
			var found int
			m.inside(func() {
				routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
				must.Succeed(c.t, err)
				for _, r := range routes {
					if r.Dst != nil && slices.Contains(other.blocks, r.Dst.String()) {
						found++
					}
				}
			})
			return found == len(other.blocks)
		})
	}
}

// addPod adds the node's pod.
func (m *machine) addPod() {
	m.t.Helper()
	runtime, err := m.Runtime(m.t.Output())
	must.Succeed(m.t, err)
	m.pod, err = m.NewPod("pod-" + m.name)
	must.Succeed(m.t, err)
	result, err := runtime.Add(m.t.Context(), m.pod)
	must.Succeed(m.t, err)
	m.t.Cleanup(func() { must.Succeed(m.t, runtime.Del(context.Background(), m.pod)) })
	links, err := node.Links(result)
	must.Succeed(m.t, err)
	m.link = links[0]
}

// address returns the pod's address of a family.
func (m *machine) address(six bool) netip.Addr {
	m.t.Helper()
	at := slices.IndexFunc(m.link.Bare(), func(a netip.Addr) bool { return a.Is6() == six })
	if at < 0 {
		m.t.Fatalf("the pod of %s has the addresses %v", m.name, m.link.Addresses)
	}
	return m.link.Bare()[at]
}

// weftctl runs weftctl on the node.
func (m *machine) weftctl(args ...string) string {
	m.t.Helper()
	text, err := m.Weftctl(m.t.Context(), args...)
	if err != nil {
		m.t.Errorf("weftctl %s: %v", strings.Join(args, " "), err)
	}
	return text
}
