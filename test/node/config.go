package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"
)

// agentConfig is the agent's configuration with the keys that a node sets.
type agentConfig struct {
	Socket        string          `json:"socket"`
	StateDir      string          `json:"stateDir"`
	Dataplane     dataplaneConfig `json:"dataplane"`
	Pools         []Pool          `json:"pools,omitempty"`
	Networks      []Network       `json:"networks,omitempty"`
	PodInterface  string          `json:"podInterface,omitempty"`
	PodQueues     int             `json:"podQueues,omitempty"`
	IPForwarding  bool            `json:"allowIPForwarding"`
	DefaultRoutes bool            `json:"includeDefaultRoutes"`
	CoolDown      string          `json:"coolDown"`
	MTU           int             `json:"mtu"`
	HostLink      string          `json:"hostLink"`
	Log           logConfig       `json:"log"`
	Gates         []string        `json:"readinessGates,omitempty"`
	HealthFile    string          `json:"healthFile"`
	Devices       devicesConfig   `json:"devices"`

	Kubernetes kubernetesConfig `json:"kubernetes,omitzero"`
	HTTP       httpConfig       `json:"http"`
	Tracing    tracingConfig    `json:"tracing,omitzero"`
	Verify     bool             `json:"verify"`
}

type dataplaneConfig struct {
	Type     string `json:"type"`
	Socket   string `json:"socket"`
	Program  string `json:"program,omitempty"`
	Log      string `json:"log,omitempty"`
	Uplink   string `json:"uplink,omitempty"`
	External bool   `json:"external,omitempty"`
}

type kubernetesConfig struct {
	Mode       string `json:"mode"`
	Node       string `json:"node"`
	Kubeconfig string `json:"kubeconfig"`
	Addresses  string `json:"addresses"`
	Tunnel     string `json:"tunnel"`
	Uplink     bool   `json:"requireUplink"`
	VXLANPort  uint16 `json:"vxlanPort,omitempty"`

	RuntimeSocket string `json:"runtimeSocket,omitempty"`

	EnforcePolicies bool `json:"enforcePolicies,omitempty"`
	ProtectNodes    bool `json:"protectNodes,omitempty"`
}

type devicesConfig struct {
	PluginDir    string      `json:"pluginDir"`
	PodResources string      `json:"podResources"`
	InfoDir      string      `json:"infoDir"`
	Memif        memifConfig `json:"memif"`
}

type memifConfig struct {
	Count        int    `json:"count"`
	CollectAfter string `json:"collectAfter"`
	MountPath    string `json:"mountPath,omitempty"`
}

type httpConfig struct {
	Listen string `json:"listen"`
}

type tracingConfig struct {
	Endpoint string  `json:"endpoint"`
	Sampling float64 `json:"sampling"`
}

type logConfig struct {
	Level  string `json:"level"`
	Format string `json:"format"`
}

// Options are the settings of a node.
type Options struct {
	Verify       bool          // the agent compares everything after each event
	CoolDown     time.Duration // of released addresses
	Pools        []Pool        // default: one of each family
	Networks     []Network     // beside default and stub
	PodInterface string        // type of the main interface; default: the agent's
	PodQueues    int           // queue pairs of links; default: the agent's
	Memifs       int           // number of devices; with devices the node has a kubelet
	MemifMount   string        // where containers have their sockets; default: the agent's

	AllowIPForwarding bool // pods' kernels may forward packets
	NoDefaultRoutes   bool // main interfaces have no default routes

	ReadinessGates []string // URLs

	HTTP string // address of metrics and health; default: none

	Tracing string // URL of an OTLP receiver; default: none

	Kubeconfig      string // of a cluster with this node; its pools are the node's ranges
	ClusterPools    bool   // use blocks of the cluster's pools instead of the node's ranges
	RuntimeSocket   string // of a container runtime; default: the agent's
	EnforcePolicies bool   // of the cluster
	ProtectNodes    bool   // with EnforcePolicies

	Tunnel    string // tunnel to other nodes; default: vxlan4
	VXLANPort uint16 // UDP port of the tunnels; default: the agent's

	External bool   // the agent starts no weft-vswitch; StartVswitch does
	Embedded bool   // the dataplane is weft-vswitch even if tests run on VPP
	Netns    string // path of VPP's namespace if tests run on VPP; default: the caller's

	RequireUplink bool // pods are served only when the link to other nodes exists

	Uplink string // network card that the dataplane owns; default: none
}

// Pool is a range of addresses for pods.
type Pool struct {
	Name       string       `json:"name"`
	Prefix     netip.Prefix `json:"prefix"`
	Namespaces []string     `json:"namespaces,omitempty"` // for whose pods it is; empty: all
}

// Network is a custom network.
type Network struct {
	Name      string         `json:"name"`
	Type      string         `json:"type"` // L2 or L3
	CIDRs     []netip.Prefix `json:"cidrs,omitempty"`
	AntiSpoof bool           `json:"antiSpoof"`
	Direct    bool           `json:"direct,omitempty"`
	Gateway   string         `json:"gateway,omitempty"` // none, or an address of each family
	Reserved  []string       `json:"reserved,omitempty"`
	Excluded  []string       `json:"excluded,omitempty"`
	Routes    []Route        `json:"routes,omitempty"`

	AllowedAddresses []string `json:"allowedAddresses,omitempty"` // that move between pods
	VirtualRouters   []int    `json:"virtualRouters,omitempty"`   // whose MACs pods may use

	RoutedPrefixes []netip.Prefix `json:"routedPrefixes,omitempty"` // behind pods

	DNS *DNS `json:"dns,omitempty"`
}

// DNS is what the CNI result of a pod has that asks for the DNS of its network.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// Route is a route of the pods of a network.
type Route struct {
	To  netip.Prefix `json:"to"`
	Via netip.Addr   `json:"via,omitzero"`
}

// bothFamilies are pools of both families for a small node.
func bothFamilies() []Pool {
	return []Pool{
		{Name: "pods4", Prefix: netip.MustParsePrefix("10.1.0.0/24")},
		{Name: "pods6", Prefix: netip.MustParsePrefix("fd00:10:1::/64")},
	}
}

// SetNetworks changes the custom networks of the configuration; a running agent reloads it.
func (n *Node) SetNetworks(networks []Network) error {
	n.options.Networks = networks
	return n.writeConfig()
}

// ClusterPools sets whether addresses come from the cluster's pools, from the agent's next start on.
func (n *Node) ClusterPools(is bool) error {
	n.options.ClusterPools = is
	return n.writeConfig()
}

// Tunnel sets the tunnel to other nodes, from the agent's next start on.
func (n *Node) Tunnel(by string) error {
	n.options.Tunnel = by
	return n.writeConfig()
}

// VXLANPort sets the UDP port of the tunnels, from the agent's next start on.
func (n *Node) VXLANPort(port uint16) error {
	n.options.VXLANPort = port
	return n.writeConfig()
}

// Uplink sets the network card that the dataplane owns, from the agent's next start on; "" = none.
func (n *Node) Uplink(card string) error {
	n.options.Uplink = card
	return n.writeConfig()
}

func (n *Node) writeConfig() error {
	o := n.options
	var cluster kubernetesConfig
	mtu := 1500
	switch {
	case o.Kubeconfig != "":
		mtu = 0 // what tunnels leave
		cluster = kubernetesConfig{
			Mode:            "cluster",
			Node:            Name,
			Kubeconfig:      o.Kubeconfig,
			Addresses:       "podCIDR",
			Tunnel:          cmp.Or(o.Tunnel, "vxlan4"),
			Uplink:          o.RequireUplink,
			VXLANPort:       o.VXLANPort,
			RuntimeSocket:   o.RuntimeSocket,
			EnforcePolicies: o.EnforcePolicies,
			ProtectNodes:    o.ProtectNodes,
		}
		if o.ClusterPools {
			cluster.Addresses = "pools"
		}
	case len(o.Pools) == 0:
		o.Pools = bothFamilies()
	}
	text, err := yaml.Marshal(agentConfig{
		Socket: n.Socket(), StateDir: n.State(),
		Dataplane: n.dataplaneConfig(),
		Pools:     o.Pools, Networks: o.Networks, PodInterface: o.PodInterface, PodQueues: o.PodQueues,
		IPForwarding: o.AllowIPForwarding, DefaultRoutes: !o.NoDefaultRoutes, Gates: o.ReadinessGates,
		CoolDown: o.CoolDown.String(), MTU: mtu, HostLink: HostLink, Log: logConfig{"info", "text"},
		Devices: devicesConfig{
			PluginDir:    filepath.Join(n.kubelet(), "device-plugins"),
			PodResources: filepath.Join(n.kubelet(), "pod-resources", "kubelet.sock"),
			InfoDir:      n.DeviceInfo(), Memif: memifConfig{o.Memifs, "1s", o.MemifMount},
		},
		Kubernetes: cluster, HTTP: httpConfig{o.HTTP}, Tracing: o.tracing(),
		HealthFile: filepath.Join(n.run(), "healthy"), Verify: o.Verify,
	})
	if err != nil {
		return fmt.Errorf("write the agent's configuration: %w", err)
	}
	next := n.Config() + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return fmt.Errorf("write the agent's configuration: %w", err)
	}
	return os.Rename(next, n.Config())
}

func (o Options) tracing() (c tracingConfig) {
	if o.Tracing != "" {
		c = tracingConfig{o.Tracing, 1}
	}
	return c
}

func (n *Node) dataplaneConfig() dataplaneConfig {
	if n.vpp != nil {
		return dataplaneConfig{Type: "vpp", Socket: n.DataplaneSocket(), Uplink: n.options.Uplink}
	}
	return dataplaneConfig{
		Type:     "embedded",
		Socket:   n.DataplaneSocket(),
		Program:  n.Program("weft-vswitch"),
		Log:      n.DataplaneLog(),
		Uplink:   n.options.Uplink,
		External: n.options.External,
	}
}

// Conflist returns the CNI configuration for weft-cni on this node.
func (n *Node) Conflist() ([]byte, error) {
	return json.Marshal(map[string]any{
		"cniVersion":  "1.0.0",
		"cniVersions": []string{"0.4.0", "1.0.0", "1.1.0"},
		"name":        "weft",
		"plugins": []any{map[string]any{
			"type":         "weft-cni",
			"socket":       n.Socket(),
			"deleteQueue":  filepath.Join(n.State(), "delete-queue"),
			"logFile":      "",
			"capabilities": map[string]bool{"ips": true, "mac": true, "io.kubernetes.cri.pod-annotations": true},
		}},
	})
}
