// Package config holds the agent's configuration: keys, defaults, validation, and the file, environment and flags that give it.
package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// What is done about drift.
const (
	DriftRepair = "repair"
	DriftReport = "report"
)

// Config is all that an operator can set. Each field is a key of the YAML file, a flag and an environment variable;
// flags win over the environment, that over the file, the file over the defaults.
type Config struct {
	Socket    string
	StateDir  string
	BootID    string // a file
	Dataplane Dataplane
	Pools     []Pool
	Networks  []pod.Network

	NamespacePools map[string][]string // by namespace of Kubernetes, names of pools
	NodePools      []string
	PodInterface   string
	PodQueues      int
	MaxPodQueues   int

	Devices    Devices
	Kubernetes Kubernetes
	HTTP       HTTP

	CoolDown     time.Duration
	MTU          int
	HostLink     string
	HostLinkType string

	TunnelLink string

	AllowIPForwarding    bool
	IncludeDefaultRoutes bool

	IPMasq        bool
	IPMasqExclude Prefixes

	Log            Log
	HealthFile     string
	ReadinessGates []string // URLs
	External       string   // a directory
	Verify         bool
	GCGrace        time.Duration
	Audit          time.Duration
	Drift          string

	ExhaustedIsUnavailable bool // STATUS fails while no pool has an address for another pod

	File   string                 // where it was read from; "" = no file
	Reload func() (Config, error) // reads it again
}

// Dataplane says which dataplane the agent drives.
type Dataplane struct {
	Type        string // embedded or vpp
	Socket      string
	StatsSocket string
	External    bool   // of type embedded: another component runs it, as a DaemonSet does; the agent never starts one
	Program     string // of type embedded: the weft-vswitch to start
	Log         string // of type embedded: where its output goes

	Uplink string // the network card that the dataplane owns, with the node's addresses; "": the kernel keeps it

	ExpediteRCU    bool // expedite the kernel's RCU grace periods while VPP makes and deletes veths
	VethsPerThread int  // of type vpp: veths that one thread of VPP reads; 0: any number
	VethRxFrames   int  // of type vpp: frames of 2 KiB in each receive block of a veth
	VethTxFrames   int  // of type vpp: frames of 66 KiB in the transmit ring of a veth
}

// Log says what the agent writes about itself, and how.
type Log struct {
	Level  string
	Format string
}

// Pool is a range of addresses for pods.
type Pool struct {
	Name       string       `json:"name"`
	Prefix     netip.Prefix `json:"prefix"`
	Disabled   bool         `json:"disabled,omitempty"`   // gives no more addresses; those that it gave stay
	Namespaces []string     `json:"namespaces,omitempty"` // of Kubernetes, for whose pods it is; empty: all
}

// String is the pool as a flag shows it.
func (p Pool) String() string { return p.Name + "=" + p.Prefix.String() }

// Auto leaves the type of a link to what the dataplane can create.
const Auto = "auto"

// Dataplane types.
const (
	Embedded = "embedded"
	VPP      = "vpp"
)

// Flags binds every key to a flag of the set; the flag's name is the key in kebab case, its default the key's.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Socket, "socket", "/run/weft/agent.sock", "socket of the agent, for weft-cni and weftctl; root only")
	fs.StringVar(&c.StateDir, "state-dir", "/var/lib/weft", "directory of state.db and delete-queue")
	fs.StringVar(&c.BootID, "boot-id", "/proc/sys/kernel/random/boot_id", "file that differs after each boot of the node")
	fs.StringVar(&c.Dataplane.Type, "dataplane-type", Embedded, "embedded (weft-vswitch, started by the agent) or vpp (runs already)")
	fs.StringVar(&c.Dataplane.Socket, "dataplane-socket", "", "binary API socket; default /run/weft/vswitch-api.sock (embedded), /run/vpp/api.sock (vpp)")
	fs.StringVar(&c.Dataplane.StatsSocket, "dataplane-stats-socket", "", "stats socket; default: beside the binary API socket, with stats.sock for api.sock")
	fs.BoolVar(&c.Dataplane.External, "dataplane-external", false, "another component runs weft-vswitch, such as a DaemonSet: wait for it, never start one")
	fs.StringVar(&c.Dataplane.Program, "dataplane-program", "", "weft-vswitch to start; default: beside the agent, else from PATH")
	fs.StringVar(&c.Dataplane.Log, "dataplane-log", "/var/log/weft-vswitch.log", "file for the output of weft-vswitch")
	fs.StringVar(&c.Dataplane.Uplink, "dataplane-uplink", "", "network card that the dataplane owns, with its addresses and routes; empty: the node's kernel keeps it")
	fs.BoolVar(&c.Dataplane.ExpediteRCU, "dataplane-expedite-rcu", true, "expedite the kernel's RCU grace periods (/sys/kernel/rcu_expedited) while VPP makes and deletes veths")
	fs.IntVar(&c.Dataplane.VethsPerThread, "dataplane-veths-per-thread", vpp.MaxVethsPerThread, "with VPP: veths that one of its threads reads, 1 to 15; 0: any number, with which VPP can hang for good")
	fs.IntVar(&c.Dataplane.VethRxFrames, "dataplane-veth-rx-frames", 6, "with VPP: frames of 2 KiB in each of the 160 receive blocks of a veth, an even number, 6 to 64")
	fs.IntVar(&c.Dataplane.VethTxFrames, "dataplane-veth-tx-frames", 88, "with VPP: frames of 66 KiB in the transmit ring of a veth, an even number, 16 to 1024")
	fs.Var((*poolsValue)(&c.Pools), "pools", "address pools, each NAME=PREFIX, comma separated; one of a family at least")
	fs.Var(&structured[[]pod.Network]{&c.Networks, "networks"}, "networks", "custom networks, a list as in the documentation of networks")
	fs.Var(&structured[map[string][]string]{&c.NamespacePools, "map"}, "namespace-pools", "names of the pools for pods of a namespace, {NAMESPACE: [POOL, ...]}")
	fs.StringSliceVar(&c.NodePools, "node-pools", nil, "names of the pools for pods whose namespace has none; default: all without namespaces")
	fs.StringVar(&c.PodInterface, "pod-interface", Auto, "type of pods' main interface: tap, veth, or auto: tap where the dataplane can create taps, else veth")
	fs.IntVar(&c.PodQueues, "pod-queues", 1, "pairs of queues of pods' taps and veths that do not say how many, 1 to max-pod-queues")
	fs.IntVar(&c.MaxPodQueues, "max-pod-queues", 4, "the most queues in each direction that a pod can ask for of a tap or veth, 1 to 16")
	c.Devices.flags(fs)
	c.Kubernetes.flags(fs)
	c.HTTP.flags(fs)
	fs.StringVar(&c.External, "external-config", "", "directory of YAML files with external configuration (key: value), watched; owned by root and writable by root only")
	fs.DurationVar(&c.CoolDown, "cool-down", 30*time.Second, "time before a released address is given out again, 0s to 1h")
	fs.IntVar(&c.MTU, "mtu", 0, "MTU of pods' interfaces, 1280 to 9000 bytes (576 without an IPv6 pool); 0: what tunnels leave of the uplink's, else 1500")
	fs.StringVar(&c.HostLink, "host-link", "weft0", "name of the link between this node and the dataplane")
	fs.StringVar(&c.HostLinkType, "host-link-type", Auto, "type of that link: tap, veth, or auto: tap where the dataplane can create taps, else veth")
	fs.StringVar(&c.TunnelLink, "tunnel-link", "weft-vtep0", "name of the link between this node and the dataplane for packets of tunnels")
	fs.BoolVar(&c.AllowIPForwarding, "allow-ip-forwarding", false, "pods' kernels forward packets, as pods that are routers need")
	fs.BoolVar(&c.IncludeDefaultRoutes, "include-default-routes", true, "pods reach everything by their main interface; off: only the pools that the node has")
	fs.BoolVar(&c.IPMasq, "ip-masq", true, "translate what pods send out of the cluster to the node's address; off where Weft is not the main CNI")
	fs.Var(&c.IPMasqExclude, "ip-masq-exclude", "prefixes outside the cluster that see pods' own addresses, comma separated")
	fs.StringVar(&c.Log.Level, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&c.Log.Format, "log-format", "text", "text or json")
	fs.StringVar(&c.HealthFile, "health-file", "", "file that exists while the agent is ready; empty: none")
	fs.StringSliceVar(&c.ReadinessGates, "readiness-gates", nil, "URLs (http, https), comma separated: pods are served only while each answers with a status of 200 to 299")
	fs.BoolVar(&c.Verify, "verify", false, "rebuild and compare everything after each event; for tests, costs a dump each")
	fs.DurationVar(&c.GCGrace, "gc-grace", 30*time.Second, "attachments younger than this are left alone by CNI GC, 0s to 1h")
	fs.BoolVar(&c.ExhaustedIsUnavailable, "exhausted-is-unavailable", false, "CNI STATUS fails, and the node is not ready, while no pool has an address for another pod")
	fs.DurationVar(&c.Audit, "audit", time.Minute, "period in which all objects are checked for drift, and if it is less than 20s vanished network namespaces, 1s to 24h")
	fs.StringVar(&c.Drift, "drift", DriftRepair, "what is done about drift: repair, or report, which changes nothing")
}

// Validate checks every value and reports all that is wrong, by key; it fills in defaults that depend on others.
func (c *Config) Validate() error {
	c.fill()
	return errors.Join(
		absolute("socket", c.Socket), absolute("stateDir", c.StateDir), absolute("bootID", c.BootID),
		absolute("dataplane.socket", c.Dataplane.Socket), absolute("dataplane.statsSocket", c.Dataplane.StatsSocket),
		oneOf("dataplane.type", c.Dataplane.Type, Embedded, VPP),
		oneOf("podInterface", c.PodInterface, Auto, pod.TypeTap, pod.TypeVeth),
		oneOf("hostLinkType", c.HostLinkType, Auto, pod.TypeTap, pod.TypeVeth),
		oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error"),
		oneOf("log.format", c.Log.Format, "text", "json"),
		between("maxPodQueues", c.MaxPodQueues, 1, wire.MaxQueues), between("podQueues", c.PodQueues, 1, c.MaxPodQueues),
		within("coolDown", c.CoolDown, 0, time.Hour),
		within("gcGrace", c.GCGrace, 0, time.Hour),
		within("audit", c.Audit, time.Second, 24*time.Hour),
		oneOf("drift", c.Drift, DriftRepair, DriftReport),
		between("dataplane.vethsPerThread", c.Dataplane.VethsPerThread, 0, vpp.MaxVethsPerThread),
		even("dataplane.vethRxFrames", c.Dataplane.VethRxFrames, 6, 64), even("dataplane.vethTxFrames", c.Dataplane.VethTxFrames, 16, 1024),
		c.Devices.validate(), c.Kubernetes.validate(), c.HTTP.validate(), c.validatePools(), c.validateNetworks(), c.validateMTU(), c.validateLinks(), health.ValidateGates(c.ReadinessGates),
	)
}

func (c *Config) fill() {
	c.Devices.fill(c.Socket)
	if c.Dataplane.Socket == "" {
		c.Dataplane.Socket = "/run/vpp/api.sock"
		if c.Dataplane.Type == Embedded {
			c.Dataplane.Socket = "/run/weft/vswitch-api.sock"
		}
	}
	if c.Dataplane.StatsSocket == "" {
		c.Dataplane.StatsSocket = vpp.StatsSocket(c.Dataplane.Socket)
	}
}

func (c *Config) validatePools() error {
	switch inPools := c.Kubernetes.Mode == InCluster && c.Kubernetes.Addresses == OfPools; {
	case inPools && len(c.Pools) > 0:
		return errors.New("pools: with kubernetes.addresses: pools they are the cluster's IPPools, and none can be given here")
	case len(c.Pools) == 0 && c.Kubernetes.Mode == InCluster:
		return nil // the node's own ranges, or the cluster's pools
	}
	if len(c.Pools) == 0 {
		return errors.New("pools: none given; for example pools: [{name: pods, prefix: 10.1.0.0/24}]")
	}
	return ValidatePools(c.Pools)
}

// ValidatePools refuses pools that cannot be beside each other, or have no address for a pod.
func ValidatePools(pools []Pool) error {
	var errs []error
	names := map[string]bool{}
	for i, p := range pools {
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("pools: two are named %q", p.Name))
		}
		names[p.Name] = true
		for _, other := range pools[:i] {
			if other.Prefix.Overlaps(p.Prefix) {
				errs = append(errs, fmt.Errorf("pools: %s and %s overlap", other, p))
			}
		}
		if p.Prefix.Bits() > p.Prefix.Addr().BitLen()-2 {
			errs = append(errs, fmt.Errorf("pools: %s is too small: a pool has at least 4 addresses", p))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) validateNetworks() error {
	var errs []error
	names := map[string]bool{}
	for _, n := range c.Networks {
		if names[n.Name] {
			errs = append(errs, fmt.Errorf("networks: two are named %q", n.Name))
		}
		names[n.Name] = true
		if err := n.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("networks: %w", err))
		}
		if n.Closed {
			errs = append(errs, fmt.Errorf("networks: %q: unknown field \"closed\"", n.Name))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) validateMTU() error {
	least := 576 // RFC 791: what every IPv4 host must take
	for _, p := range c.Pools {
		if p.Prefix.Addr().Is6() {
			least = 1280 // RFC 8200, section 5
		}
	}
	if c.MTU != 0 && (c.MTU < least || c.MTU > 9000) {
		return fmt.Errorf("mtu: %d is not within %d to 9000", c.MTU, least)
	}
	return nil
}

func (c *Config) validateLinks() error {
	if c.HostLink == c.TunnelLink {
		return fmt.Errorf("tunnelLink: %q is the name of the host link", c.TunnelLink)
	}
	err := errors.Join(linkName("hostLink", c.HostLink), linkName("tunnelLink", c.TunnelLink))
	if c.HostLink == desired.UplinkLink || c.TunnelLink == desired.UplinkLink {
		err = errors.Join(err, fmt.Errorf("hostLink, tunnelLink: %q is the link to a dataplane that owns the network card", desired.UplinkLink))
	}
	switch c.Dataplane.Uplink {
	case "":
		return err
	case c.HostLink, c.TunnelLink, desired.UplinkLink:
		return errors.Join(err, fmt.Errorf("dataplane.uplink: %q is a link between this node and the dataplane", c.Dataplane.Uplink))
	}
	return errors.Join(err, linkName("dataplane.uplink", c.Dataplane.Uplink))
}

func linkName(key, name string) error {
	if !pod.IsLinkName(name) {
		return fmt.Errorf("%s: %q is not a name for a Linux interface (1 to 15 bytes, no slash, colon or blank, not lo, all or default)", key, name)
	}
	return nil
}

func absolute(key, path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s: %q is not an absolute path", key, path)
	}
	return nil
}

func oneOf(key, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return fmt.Errorf("%s: %q is not one of %v", key, value, allowed)
}

func within(key string, d, least, most time.Duration) error {
	if d < least || d > most {
		return fmt.Errorf("%s: %v is not within %v to %v", key, d, least, most)
	}
	return nil
}

// even checks the number of frames in a ring, whose size must be a multiple of the page's.
func even(key string, n, least, most int) error {
	if n%2 != 0 {
		return fmt.Errorf("%s: %d is not an even number", key, n)
	}
	return between(key, n, least, most)
}

// Devices says which devices kubelet can give to pods, and where kubelet is.
type Devices struct {
	PluginDir    string // where kubelet and its plugins have their sockets
	PodResources string // kubelet's socket for questions
	InfoDir      string // of files about devices, for CNI plugins
	Memif        Memifs
}

// Memifs says what pods can have of memifs.
type Memifs struct {
	Count         int    // of devices; 0: the node has none
	Directory     string // of the sockets' directories
	Writable      bool   // pods may write into their sockets' directories
	SecretInEnv   bool   // containers find their secret in their environment too
	MaxRingSize   int    // slots
	MaxBufferSize int    // bytes
	MaxQueues     int    // in each direction

	CollectAfter time.Duration // kubelet must not list an allocation for so long before it is released
}

// flags binds the keys of devices.
func (d *Devices) flags(fs *pflag.FlagSet) {
	fs.IntVar(&d.Memif.Count, "devices-memif-count", 100, "memifs that kubelet can give to this node's pods, 0 (none) to 1024")
	fs.StringVar(&d.Memif.Directory, "devices-memif-directory", "", "directory of the sockets' directories; root's; default: memif, beside the agent's socket")
	fs.BoolVar(&d.Memif.Writable, "devices-memif-writable", false, "mount it writable into containers, for pods that run a VPP of their own")
	fs.BoolVar(&d.Memif.SecretInEnv, "devices-memif-secret-in-env", true, "containers find their secret in MEMIF_SECRET too, not only in the file")
	fs.IntVar(&d.Memif.MaxRingSize, "devices-memif-max-ring-size", 4096, "slots that a pod can ask for, 2 to 16384")
	fs.IntVar(&d.Memif.MaxBufferSize, "devices-memif-max-buffer-size", 16384, "bytes of a slot that a pod can ask for, 64 to 65536")
	fs.IntVar(&d.Memif.MaxQueues, "devices-memif-max-queues", 4, "queues in each direction that a pod can ask for, 1 to 255")
	fs.DurationVar(&d.Memif.CollectAfter, "devices-memif-collect-after", time.Minute, "how long kubelet must not list an allocation, and how old it must be, before it is released, 1s to 1h")
	fs.StringVar(&d.PluginDir, "devices-plugin-dir", "/var/lib/kubelet/device-plugins", "where kubelet and its plugins have their sockets")
	fs.StringVar(&d.PodResources, "devices-pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock", "socket where kubelet says which pod has which device")
	fs.StringVar(&d.InfoDir, "devices-info-dir", "/var/run/k8s.cni.cncf.io/devinfo/dp", "where CNI plugins look for files about devices")
}

func (d *Devices) validate() error {
	m := d.Memif
	return errors.Join(
		between("devices.memif.count", m.Count, 0, devicemanager.MostDevices),
		absolute("devices.memif.directory", m.Directory),
		d.validateDirectory(),
		between("devices.memif.maxRingSize", m.MaxRingSize, 2, pod.MostRingSize),
		between("devices.memif.maxBufferSize", m.MaxBufferSize, 64, pod.MostBufferSize),
		between("devices.memif.maxQueues", m.MaxQueues, 1, pod.MostQueues),
		within("devices.memif.collectAfter", m.CollectAfter, time.Second, time.Hour),
		absolute("devices.pluginDir", d.PluginDir), absolute("devices.podResources", d.PodResources), absolute("devices.infoDir", d.InfoDir),
	)
}

// validateDirectory sees to it that the path of a socket is one that the kernel takes.
func (d *Devices) validateDirectory() error {
	if n := len(d.Memif.Directory); d.Memif.Count > 0 && n > devicemanager.LongestRoot {
		return fmt.Errorf("devices.memif.directory: %q has %d bytes, and the path of a socket in it has room for %d",
			d.Memif.Directory, n, devicemanager.LongestRoot)
	}
	return nil
}

// fill fills in what depends on where the agent has its socket.
func (d *Devices) fill(socket string) {
	if d.Memif.Directory == "" {
		d.Memif.Directory = filepath.Join(filepath.Dir(socket), "memif")
	}
}

func between(key string, n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%s: %d is not within %d to %d", key, n, least, most)
	}
	return nil
}

// Kubernetes says whether the node is one of Kubernetes, and how its API server is reached.
type Kubernetes struct {
	Mode       string // none or cluster
	Node       string // its name; "": the host's
	Kubeconfig string // a file; "": as a pod does
	Addresses  string // where those of pods' main interfaces come from: podCIDR or pools
	Tunnel     string // how packets get to other nodes: vxlan4, vxlan6 or none

	RequireUplink bool // the agent waits for the link to other nodes, whose MTU pods' interfaces follow

	Multus         bool // is on the node: selections of networks, and the annotation network-status, are its business
	NetworkStatus  bool // pods are told in that annotation what they got
	ReportPolicies bool // the operator is told that NetworkPolicies are not enforced

	RuntimeSocket string // CRI socket of the container runtime: a path, auto or none
}

// Modes of Kubernetes.
const (
	NoCluster = "none"
	InCluster = "cluster"
)

// Where the addresses of pods' main interfaces come from.
const (
	OfPodCIDR = "podCIDR" // the ranges that Kubernetes gave the node
	OfPools   = "pools"   // blocks of the cluster's IPPools
)

func (k *Kubernetes) flags(fs *pflag.FlagSet) {
	fs.StringVar(&k.Mode, "kubernetes-mode", NoCluster, "none (pods' annotations come from the runtime, networks from the configuration) or cluster (also from the API server)")
	fs.StringVar(&k.Node, "kubernetes-node", "", "name of this node in Kubernetes; default: NODE_NAME of the environment, else the host's name")
	fs.StringVar(&k.Kubeconfig, "kubernetes-kubeconfig", "", "how to reach the API server; default: as a pod does, by its service account")
	fs.StringVar(&k.Addresses, "kubernetes-addresses", OfPodCIDR, "where addresses of pods' main interfaces come from: podCIDR (the node's ranges of Kubernetes) or pools (blocks of IPPools)")
	fs.StringVar(&k.Tunnel, "kubernetes-tunnel", networks.TunnelVXLAN4, "how packets get to other nodes: vxlan4, vxlan6, or none (nodes share a subnet; custom networks end at the node then)")
	fs.BoolVar(&k.RequireUplink, "kubernetes-require-uplink", false, "serve no pod before the link with the node's address is there, whose MTU pods' interfaces follow; off: go on without after 15s")
	fs.BoolVar(&k.Multus, "kubernetes-multus", false, "Multus is on the node: pods' selections of networks and the annotation network-status are left to it")
	fs.StringVar(&k.RuntimeSocket, "kubernetes-runtime-socket", Auto, "CRI socket of the container runtime, asked whether sandboxes of deleted pods are gone: a path, auto (the sockets of containerd and CRI-O) or none")
	fs.BoolVar(&k.ReportPolicies, "kubernetes-report-network-policies", true, "report NetworkPolicies as not enforced where pods' main interfaces are Weft's; off where another component enforces them")
	fs.BoolVar(&k.NetworkStatus, "kubernetes-network-status", true, "write what pods got into their annotation k8s.v1.cni.cncf.io/network-status")
}

func (k *Kubernetes) validate() error {
	return errors.Join(
		oneOf("kubernetes.mode", k.Mode, NoCluster, InCluster), validateRuntime(k.RuntimeSocket), absoluteOrNone("kubernetes.kubeconfig", k.Kubeconfig),
		oneOf("kubernetes.addresses", k.Addresses, OfPodCIDR, OfPools),
		oneOf("kubernetes.tunnel", k.Tunnel, networks.TunnelVXLAN4, networks.TunnelVXLAN6, networks.TunnelNone),
	)
}

func absoluteOrNone(key, path string) error {
	if path == "" {
		return nil
	}
	return absolute(key, path)
}

// Name is the node's.
func (k *Kubernetes) Name() (string, error) {
	if k.Node != "" {
		return k.Node, nil
	}
	if name := os.Getenv("NODE_NAME"); name != "" {
		return name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("kubernetes.node is not set, and the host has no name: %w", err)
	}
	return name, nil
}

// HTTP says where metrics and health are served.
type HTTP struct {
	Listen string // host:port; "": nowhere
}

func (h *HTTP) flags(fs *pflag.FlagSet) {
	fs.StringVar(&h.Listen, "http-listen", "127.0.0.1:9465", "address of /metrics, /healthz and /readyz; empty: none")
}

func (h *HTTP) validate() error {
	if h.Listen == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(h.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("http.listen: %q is not ADDRESS:PORT, such as 127.0.0.1:9465: %w", h.Listen, err)
	}
	return nil
}

// NoRuntime is the value of kubernetes.runtimeSocket that turns questions to the container runtime off.
const NoRuntime = "none"

// validateRuntime validates kubernetes.runtimeSocket.
func validateRuntime(socket string) error {
	if socket == Auto || socket == NoRuntime {
		return nil
	}
	if err := absolute("kubernetes.runtimeSocket", socket); err != nil {
		return errors.Join(err, fmt.Errorf("kubernetes.runtimeSocket: use a path, %s or %s", Auto, NoRuntime))
	}
	return nil
}

// Rings are the rings of veths.
func (d Dataplane) Rings() vpp.Rings {
	return vpp.Rings{RxFrames: d.VethRxFrames, TxFrames: d.VethTxFrames}
}

// HasRanges reports whether the pools are the node's ranges (podCIDRs).
func (c *Config) HasRanges() bool {
	return len(c.Pools) == 0 && c.Kubernetes.Mode == InCluster && c.Kubernetes.Addresses == OfPodCIDR
}
