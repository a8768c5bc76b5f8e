package cluster

import (
	"bytes"
	"embed"
	"fmt"
	"net/netip"
	"strings"
	"text/template"

	"github.com/weftnet/weft/test/e2e/machine"
	"github.com/weftnet/weft/test/e2e/pki"
	"github.com/weftnet/weft/test/e2e/service"
)

//go:embed files
var files embed.FS

var templates = template.Must(template.ParseFS(files, "files/*"))

// Node is a machine of the cluster.
type Node struct {
	*machine.Machine
	// Containerd, Kubelet and Proxy can be stopped, killed and started again while the machine is on.
	Containerd, Kubelet, Proxy *service.Service

	cluster *Cluster
	files   map[string][]byte // below /etc/kubernetes
}

// newNode makes a node's files, and starts nothing.
func (c *Cluster) newNode(name string) (*Node, error) {
	n := &Node{Machine: c.lab.Add(name), cluster: c, files: map[string][]byte{}}
	if err := n.issue(); err != nil {
		return nil, err
	}
	for _, file := range []string{"containerd.toml", "kubelet.yaml", "kube-proxy.yaml"} {
		var content bytes.Buffer
		err := templates.ExecuteTemplate(&content, file, map[string]string{
			"Name": name, "Cgroup": n.Cgroup(), "PodCIDRs": podCIDRs, "Pause": pauseImage,
			"Runc": c.config.Programs.Path("runc"),
		})
		if err != nil {
			return nil, fmt.Errorf("configure %s: %w", name, err)
		}
		n.files[file] = content.Bytes()
	}
	path := c.config.Programs.Path
	n.Containerd = n.Service("containerd", path("containerd"), "--config=/etc/kubernetes/containerd.toml")
	n.Kubelet = n.Service("kubelet", path("kubelet"), "--config=/etc/kubernetes/kubelet.yaml",
		"--kubeconfig=/etc/kubernetes/kubelet.kubeconfig",
		"--hostname-override="+name, "--node-ip="+join(n.Addresses))
	n.Proxy = n.Service("kube-proxy", path("kube-proxy"), "--config=/etc/kubernetes/kube-proxy.yaml")
	return n, nil
}

// issue makes the node's certificates and kubeconfigs.
func (n *Node) issue() error {
	control := n.cluster.Control
	who := pki.Subject{
		Name:      "system:node:" + n.Name,
		Groups:    []string{"system:nodes"},
		DNS:       []string{n.Name},
		Addresses: n.Addresses,
	}
	pair, err := control.authority.Issue(who)
	if err != nil {
		return err
	}
	n.files["ca.crt"] = control.authority.Cert
	n.files["kubelet.crt"] = pair.Cert
	n.files["kubelet.key"] = pair.Key
	if n.files["kubelet.kubeconfig"], err = control.authority.Kubeconfig(control.URL, pair); err != nil {
		return err
	}
	n.files["kube-proxy.kubeconfig"], err = control.kubeconfig(pki.Subject{Name: "system:kube-proxy"})
	return err
}

func join(addresses []netip.Addr) string {
	var words []string
	for _, a := range addresses {
		words = append(words, a.String())
	}
	return strings.Join(words, ",")
}
