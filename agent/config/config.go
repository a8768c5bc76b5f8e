// Package config reads and validates the agent's configuration from a file, the environment and flags.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/statssocket"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
	"github.com/weftnet/weft/wire"
)

// Values of the key drift.
const (
	DriftRepair = "repair"
	DriftReport = "report"
)

// Config is the configuration. Each field is a key of the YAML file, a flag and an environment variable. Flags override
// the environment, which overrides the file, which overrides the defaults.
type Config struct {
	Socket   string
	StateDir string
	BootID   string // path of a file

	Dataplane  Dataplane
	Addresses  Addresses
	Pods       Pods
	Links      Links
	Masquerade Masquerade
	Devices    Devices
	Kubernetes Kubernetes
	HTTP       HTTP
	Tracing    Tracing
	UI         UI
	Log        Log

	HealthFile     string
	ReadinessGates []string // URLs
	External       string   // directory of external configuration
	Verify         bool
	GCGrace        time.Duration
	Audit          time.Duration
	Drift          string

	File   string                 // path of the configuration file; "": none
	Reload func() (Config, error) // reads the configuration again

	// Parse reads the configuration with another content of the file; nil in tests without a command line.
	Parse func(content []byte) (Config, error)
}

// Log is the level and the format of the log.
type Log struct {
	Level  string
	Format string
}

// Auto selects a type of link that the dataplane can create, or the sockets of known container runtimes.
const Auto = "auto"

// Flags defines a flag for every key. The flag's name is the key in kebab case.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Socket, "socket", "/run/weft/agent.sock",
		"socket of the agent, for weft-cni and weftctl; root only")
	fs.StringVar(&c.StateDir, "state-dir", "/var/lib/weft", "directory of state.db and delete-queue")
	fs.StringVar(&c.BootID, "boot-id", "/proc/sys/kernel/random/boot_id",
		"file whose content changes at each boot of the node")
	c.Dataplane.flags(fs)
	c.Addresses.flags(fs)
	c.Pods.flags(fs)
	c.Links.flags(fs)
	c.Masquerade.flags(fs)
	c.Devices.flags(fs)
	c.Kubernetes.flags(fs)
	c.HTTP.flags(fs)
	c.Tracing.flags(fs)
	c.UI.flags(fs)
	fs.StringVar(&c.External, "external-config", "",
		"directory of YAML files with external configuration (key: value), watched; owned by root and writable by root only")
	fs.StringVar(&c.Log.Level, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&c.Log.Format, "log-format", "text", "text or json")
	fs.StringVar(&c.HealthFile, "health-file", "", "file that exists while the agent is ready; empty: no file")
	fs.StringSliceVar(&c.ReadinessGates, "readiness-gates", nil,
		"URLs (http, https), comma separated: pods are served only while all answer with a status of 200 to 299")
	fs.BoolVar(&c.Verify, "verify", false, "rebuild and compare all objects after each event; slow, for tests")
	fs.DurationVar(&c.GCGrace, "gc-grace", 30*time.Second, "minimum age of attachments that CNI GC deletes, 0s to 1h")
	fs.DurationVar(&c.Audit, "audit", time.Minute,
		"interval of checks of all objects for drift, 1s to 24h; below 20s also of checks for deleted network namespaces")
	fs.StringVar(&c.Drift, "drift", DriftRepair, "reaction to drift: repair, or report without changes")
}

// Validate sets defaults that depend on other values, and checks every value. The error has all invalid keys.
func (c *Config) Validate() error {
	c.Dataplane.fill()
	c.UI.fill(c.Socket)
	c.Devices.Memif.Directory = cmp.Or(c.Devices.Memif.Directory, filepath.Join(filepath.Dir(c.Socket), "memif"))
	return errors.Join(
		absolute("socket", c.Socket), absolute("stateDir", c.StateDir), absolute("bootID", c.BootID),
		oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error"),
		oneOf("log.format", c.Log.Format, "text", "json"),
		between("gcGrace", c.GCGrace, 0, time.Hour),
		between("audit", c.Audit, time.Second, 24*time.Hour),
		oneOf("drift", c.Drift, DriftRepair, DriftReport),
		c.Dataplane.validate(), c.Addresses.validate(), c.Pods.validate(), c.validatePools(), c.validateMTU(),
		c.validateLinks(), c.validateClaims(),
		oneOf("hostLinkType", c.Links.HostType, Auto, pod.TypeTap, pod.TypeVeth),
		c.Devices.validate(), c.Kubernetes.validate(), c.HTTP.validate(), c.UI.validate(), c.Tracing.validate(),
		health.ValidateGates(c.ReadinessGates),
	)
}

// validateClaims rejects claims without the API server that has them.
func (c *Config) validateClaims() error {
	if c.Devices.Memif.Claims > 0 && c.Kubernetes.Mode == NoCluster {
		return errors.New(
			"devices.memif.claims: ResourceClaims are the API server's, and kubernetes.mode is none; set it to cluster")
	}
	return nil
}

func (c *Config) validatePools() error {
	switch inPools := c.Kubernetes.Mode == InCluster && c.Kubernetes.Addresses == OfPools; {
	case inPools && len(c.Addresses.Pools) > 0:
		return errors.New("pools: must be empty, because kubernetes.addresses: pools uses the cluster's IPPools")
	case len(c.Addresses.Pools) == 0 && c.Kubernetes.Mode == InCluster:
		return nil // the node's own ranges, or the cluster's pools
	}
	if len(c.Addresses.Pools) == 0 {
		return errors.New("pools: at least one is required, for example pools: [{name: pods, prefix: 10.1.0.0/24}]")
	}
	return ValidatePools(c.Addresses.Pools)
}

func (c *Config) validateMTU() error {
	if c.Pods.MTU == 0 {
		return nil
	}
	ipv6 := slices.ContainsFunc(c.Addresses.Pools, func(p netaddr.Pool) bool { return p.Prefix.Addr().Is6() })
	return between("mtu", c.Pods.MTU, pod.MinMTU(ipv6), pod.MaxMTU)
}

func (c *Config) validateLinks() error {
	if c.Links.Host == c.Links.Tunnel {
		return fmt.Errorf("tunnelLink: %q is also hostLink", c.Links.Tunnel)
	}
	err := errors.Join(linkName("hostLink", c.Links.Host), linkName("tunnelLink", c.Links.Tunnel))
	if c.Links.Host == desired.UplinkLink || c.Links.Tunnel == desired.UplinkLink {
		err = errors.Join(err,
			fmt.Errorf("hostLink, tunnelLink: %q is reserved for the link to a dataplane that owns the network card",
				desired.UplinkLink))
	}
	switch c.Dataplane.Uplink {
	case "":
		return err
	case c.Links.Host, c.Links.Tunnel, desired.UplinkLink:
		return errors.Join(err,
			fmt.Errorf("dataplane.uplink: %q is a link between this node and the dataplane, not a network card",
				c.Dataplane.Uplink))
	}
	return errors.Join(err, linkName("dataplane.uplink", c.Dataplane.Uplink))
}

// HasRanges reports whether the pools are the node's ranges (podCIDRs).
func (c *Config) HasRanges() bool {
	return len(c.Addresses.Pools) == 0 && c.Kubernetes.Mode == InCluster && c.Kubernetes.Addresses == OfPodCIDR
}

func absolute(key, path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s: %q is not an absolute path", key, path)
	}
	return nil
}

func oneOf(key, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s: %q is not one of %v", key, value, allowed)
}

func between[T cmp.Ordered](key string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("%s: %v is not within %v to %v", key, value, least, most)
	}
	return nil
}

// Dataplane types.
const (
	Embedded = "embedded"
	VPP      = "vpp"
)

// Dataplane selects and configures the dataplane.
type Dataplane struct {
	Type        string // embedded or vpp
	Socket      string
	StatsSocket string
	External    bool   // of type embedded: another component, such as a DaemonSet, runs it instead of the agent
	Program     string // of type embedded: the weft-vswitch to start
	Log         string // of type embedded: file for its output

	Uplink string // network card that the dataplane owns, with the node's addresses; "": the kernel owns it

	ExpediteRCU    bool // expedite the kernel's RCU grace periods while VPP creates and deletes veths
	VethsPerThread int  // of type vpp: maximum number of veths of a VPP thread; 0: no limit
	VethRxFrames   int  // of type vpp: frames of 2 KiB in each receive block of a veth
	VethTxFrames   int  // of type vpp: frames of 66 KiB in the transmit ring of a veth
}

func (d *Dataplane) flags(fs *pflag.FlagSet) {
	fs.StringVar(&d.Type, "dataplane-type", Embedded,
		"embedded (weft-vswitch, started by the agent) or vpp (already running)")
	fs.StringVar(&d.Socket, "dataplane-socket", "",
		"binary API socket; default /run/weft/vswitch-api.sock (embedded), /run/vpp/api.sock (vpp)")
	fs.StringVar(&d.StatsSocket, "dataplane-stats-socket", "",
		"stats socket; default: path of the binary API socket with stats.sock instead of api.sock")
	fs.BoolVar(&d.External, "dataplane-external", false,
		"another component, such as a DaemonSet, runs weft-vswitch: wait for it")
	fs.StringVar(&d.Program, "dataplane-program", "",
		"weft-vswitch to start; default: in the agent's directory, else from PATH")
	fs.StringVar(&d.Log, "dataplane-log", "/var/log/weft-vswitch.log", "file for the output of weft-vswitch")
	fs.StringVar(&d.Uplink, "dataplane-uplink", "",
		"network card that the dataplane owns, with its addresses and routes; empty: the node's kernel owns it")
	fs.BoolVar(&d.ExpediteRCU, "dataplane-expedite-rcu", true,
		"expedite the kernel's RCU grace periods (/sys/kernel/rcu_expedited) while VPP creates and deletes veths")
	fs.IntVar(&d.VethsPerThread, "dataplane-veths-per-thread", vpp.MaxVethsPerThread,
		"with VPP: maximum number of veths of a VPP thread, 1 to 15; 0: no limit; VPP can hang then")
	fs.IntVar(&d.VethRxFrames, "dataplane-veth-rx-frames", 6,
		"with VPP: frames of 2 KiB in each of the 160 receive blocks of a veth, an even number, 6 to 64")
	fs.IntVar(&d.VethTxFrames, "dataplane-veth-tx-frames", 88,
		"with VPP: frames of 66 KiB in the transmit ring of a veth, an even number, 16 to 1024")
}

// fill sets the defaults that depend on the type.
func (d *Dataplane) fill() {
	socket := "/run/vpp/api.sock"
	if d.Type == Embedded {
		socket = "/run/weft/vswitch-api.sock"
	}
	d.Socket = cmp.Or(d.Socket, socket)
	d.StatsSocket = cmp.Or(d.StatsSocket, statssocket.Of(d.Socket))
}

func (d *Dataplane) validate() error {
	return errors.Join(
		oneOf("dataplane.type", d.Type, Embedded, VPP),
		absolute("dataplane.socket", d.Socket), absolute("dataplane.statsSocket", d.StatsSocket),
		between("dataplane.vethsPerThread", d.VethsPerThread, 0, vpp.MaxVethsPerThread),
		even("dataplane.vethRxFrames", d.VethRxFrames, 6, 64), even("dataplane.vethTxFrames", d.VethTxFrames, 16, 1024),
	)
}

// even checks the number of frames in a ring: the ring's size must be a multiple of the page size.
func even(key string, n, least, most int) error {
	if n%2 != 0 {
		return fmt.Errorf("%s: %d is not an even number", key, n)
	}
	return between(key, n, least, most)
}

// Rings returns the sizes of the rings of veths.
func (d *Dataplane) Rings() vpp.Rings {
	return vpp.Rings{RxFrames: d.VethRxFrames, TxFrames: d.VethTxFrames}
}

// Addresses configures pools and custom networks.
type Addresses struct {
	Pools          []netaddr.Pool
	Networks       []pod.Network
	NamespacePools map[string][]string // names of pools by namespace
	NodePools      []string            // names of pools for pods of other namespaces
	CoolDown       time.Duration
	DelegatedCIDRs Prefixes // of addresses outside of the pools that other IPAM plugins may give to pods

	ExhaustedIsUnavailable bool // STATUS fails while no pool has a free address
}

func (a *Addresses) flags(fs *pflag.FlagSet) {
	fs.Var((*poolsValue)(&a.Pools), "pools", "address pools, each NAME=PREFIX, comma separated; at least one")
	fs.Var((*networksValue)(&a.Networks), "networks", "custom networks, a YAML list (docs/networking.md)")
	fs.Var(&structured[map[string][]string]{&a.NamespacePools, "map"}, "namespace-pools",
		"names of pools by namespace, {NAMESPACE: [POOL, ...]}")
	fs.StringSliceVar(&a.NodePools, "node-pools", nil,
		"names of pools for pods of other namespaces; default: all pools without namespaces")
	fs.DurationVar(&a.CoolDown, "cool-down", 30*time.Second,
		"time before a released address can be allocated again, 0s to 1h")
	fs.Var(&a.DelegatedCIDRs, "delegated-cidrs",
		"prefixes of addresses that other IPAM plugins may give to pods on the network default, besides free ones of the node's pools; default: none")
	fs.BoolVar(&a.ExhaustedIsUnavailable, "exhausted-is-unavailable", false,
		"CNI STATUS fails, and the node is not ready, while no pool has a free address")
}

func (a *Addresses) validate() error {
	errs := []error{between("coolDown", a.CoolDown, 0, time.Hour)}
	names := map[string]bool{}
	for i, n := range a.Networks {
		if names[n.Name] {
			errs = append(errs, fmt.Errorf("networks[%d]: duplicate name %q", i, n.Name))
		}
		names[n.Name] = true
		if err := n.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("networks[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// ValidatePools rejects duplicate names, overlapping pools and pools that are too small.
func ValidatePools(pools []netaddr.Pool) error {
	var errs []error
	names := map[string]bool{}
	for i, p := range pools {
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("pools[%d]: duplicate name %q", i, p.Name))
		}
		names[p.Name] = true
		for _, other := range pools[:i] {
			if other.Prefix.Overlaps(p.Prefix) {
				errs = append(errs, fmt.Errorf("pools[%d]: %s and %s overlap", i, PoolText(other), PoolText(p)))
			}
		}
		if p.Prefix.Bits() > p.Prefix.Addr().BitLen()-2 {
			errs = append(errs, fmt.Errorf("pools[%d]: %s is too small: a pool has at least 4 addresses", i, PoolText(p)))
		}
	}
	return errors.Join(errs...)
}

// Pods configures the interfaces of pods.
type Pods struct {
	Interface string // type of the main interface: tap, veth or auto
	Queues    int
	MaxQueues int
	MTU       int // 0: derived from the uplink

	AllowIPForwarding    bool
	IncludeDefaultRoutes bool
}

func (p *Pods) flags(fs *pflag.FlagSet) {
	fs.StringVar(&p.Interface, "pod-interface", Auto,
		"type of pods' main interface: tap, veth, or auto (tap if the dataplane can create taps, else veth)")
	fs.IntVar(&p.Queues, "pod-queues", 1, "default number of queue pairs of pods' taps and veths, 1 to max-pod-queues")
	fs.IntVar(&p.MaxQueues, "max-pod-queues", 4,
		"maximum number of queues in each direction of a pod's tap or veth, 1 to 16")
	fs.IntVar(&p.MTU, "mtu", 0,
		"MTU of pods' interfaces, 1280 to 9600 bytes (576 without an IPv6 pool); 0: the uplink's less the overhead of tunnels, at most 9600, else 1500")
	fs.BoolVar(&p.AllowIPForwarding, "allow-ip-forwarding", false,
		"enable IP forwarding in pods' network namespaces, for pods that are routers")
	fs.BoolVar(&p.IncludeDefaultRoutes, "include-default-routes", true,
		"pods have a default route on their main interface; off: only routes to the node's pools")
}

func (p *Pods) validate() error {
	return errors.Join(
		oneOf("podInterface", p.Interface, Auto, pod.TypeTap, pod.TypeVeth),
		between("maxPodQueues", p.MaxQueues, 1, wire.MaxQueues), between("podQueues", p.Queues, 1, p.MaxQueues),
	)
}

// Links configures the links between this node and the dataplane.
type Links struct {
	Host     string // name
	HostType string // tap, veth or auto
	Tunnel   string // name
}

func (l *Links) flags(fs *pflag.FlagSet) {
	fs.StringVar(&l.Host, "host-link", "weft0", "name of the link between this node and the dataplane")
	fs.StringVar(&l.HostType, "host-link-type", Auto,
		"type of that link: tap, veth, or auto (tap if the dataplane can create taps, else veth)")
	fs.StringVar(&l.Tunnel, "tunnel-link", "weft-vtep0",
		"name of the link between this node and the dataplane for tunnelled packets")
}

func linkName(key, name string) error {
	if !pod.IsLinkName(name) {
		return fmt.Errorf(
			"%s: invalid interface name %q (1 to 15 bytes, no slash, colon or blank, not lo, all or default)", key,
			name)
	}
	return nil
}

// Masquerade configures the masquerading of packets that leave the cluster.
type Masquerade struct {
	Enabled bool
	Exclude Prefixes
}

func (m *Masquerade) flags(fs *pflag.FlagSet) {
	fs.BoolVar(&m.Enabled, "ip-masq", true,
		"masquerade packets of pods to destinations outside of the cluster; disable it if Weft is not the main CNI")
	fs.Var(&m.Exclude, "ip-masq-exclude",
		"destinations outside of the cluster without masquerading, prefixes, comma separated")
}

// Devices configures the device plugin and the DRA driver.
type Devices struct {
	PluginDir    string // directory of the sockets of kubelet and device plugins
	PodResources string // kubelet's pod resources socket
	InfoDir      string // directory of device information files (DPINFO)
	CDIDir       string // directory of the runtime's CDI files
	Memif        Memifs
}

// Memifs configures memif devices and limits their parameters.
type Memifs struct {
	Count         int    // number of devices; 0: none
	Claims        int    // how many of them, the last ones, the DRA driver offers instead of the device plugin
	Directory     string // parent of the sockets' directories
	MountPath     string // of a container's directory in the container
	Writable      bool   // pods can write to their sockets' directories
	SecretInEnv   bool   // containers also have their secret in the environment
	MaxRingSize   int    // slots
	MaxBufferSize int    // bytes
	MaxQueues     int    // in each direction
	NUMANode      int    // of the dataplane's workers; -1: the only node of the machine

	CollectAfter time.Duration // time since kubelet last listed an allocation before it is released
}

func (d *Devices) flags(fs *pflag.FlagSet) {
	fs.IntVar(&d.Memif.Count, "devices-memif-count", 100, "number of memif devices for this node's pods, 0 to 1024")
	fs.IntVar(&d.Memif.Claims, "devices-memif-claims", 0,
		"how many of the devices, the last ones, are for ResourceClaims (DRA) instead of the device plugin, 0 to devices-memif-count")
	fs.StringVar(&d.Memif.Directory, "devices-memif-directory", "",
		"parent of the sockets' directories, owned by root; default: memif in the directory of the agent's socket")
	fs.StringVar(&d.Memif.MountPath, "devices-memif-mount-path", "/run/memif",
		"where containers have the directory of their socket; /run/vpp, as in Contiv-VPP, hides the directory of a VPP in the container")
	fs.BoolVar(&d.Memif.Writable, "devices-memif-writable", false,
		"mount the socket's directory writable into containers")
	fs.BoolVar(&d.Memif.SecretInEnv, "devices-memif-secret-in-env", true,
		"containers have their secret also in the environment variable MEMIF_SECRET")
	fs.IntVar(&d.Memif.MaxRingSize, "devices-memif-max-ring-size", 4096,
		"maximum number of slots of a ring, 2 to 16384")
	fs.IntVar(&d.Memif.MaxBufferSize, "devices-memif-max-buffer-size", 16384, "maximum bytes of a slot, 64 to 65536")
	fs.IntVar(&d.Memif.MaxQueues, "devices-memif-max-queues", 4, "maximum number of queues in each direction, 1 to 255")
	fs.IntVar(&d.Memif.NUMANode, "devices-memif-numa-node", -1,
		"NUMA node of the dataplane's workers and so of the memifs, for the scheduler and kubelet; -1: that of a machine with one NUMA node, else none")
	fs.DurationVar(&d.Memif.CollectAfter, "devices-memif-collect-after", time.Minute,
		"time since kubelet last listed an allocation, and minimum age, before it is released, 1s to 1h")
	fs.StringVar(&d.PluginDir, "devices-plugin-dir", "/var/lib/kubelet/device-plugins",
		"directory of the sockets of kubelet and device plugins")
	fs.StringVar(&d.PodResources, "devices-pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock",
		"kubelet's pod resources socket")
	fs.StringVar(&d.InfoDir, "devices-info-dir", "/var/run/k8s.cni.cncf.io/devinfo/dp",
		"directory of device information files for CNI plugins")
	fs.StringVar(&d.CDIDir, "devices-cdi-dir", "/var/run/cdi",
		"directory of the container runtime's CDI files, for ResourceClaims")
}

func (d *Devices) validate() error {
	m := d.Memif
	return errors.Join(
		between("devices.memif.count", m.Count, 0, devicemanager.MostDevices),
		between("devices.memif.claims", m.Claims, 0, m.Count),
		absolute("devices.memif.directory", m.Directory), mountPath("devices.memif.mountPath", m.MountPath),
		d.validateDirectory(),
		between("devices.memif.maxRingSize", m.MaxRingSize, 2, pod.MaxRingSize),
		between("devices.memif.maxBufferSize", m.MaxBufferSize, 64, pod.MaxBufferSize),
		between("devices.memif.maxQueues", m.MaxQueues, 1, pod.MaxQueues),
		between("devices.memif.numaNode", m.NUMANode, -1, mostNUMANode),
		between("devices.memif.collectAfter", m.CollectAfter, time.Second, time.Hour),
		absolute("devices.pluginDir", d.PluginDir), absolute("devices.podResources", d.PodResources),
		absolute("devices.infoDir", d.InfoDir), absolute("devices.cdiDir", d.CDIDir),
	)
}

// mostNUMANode is the highest NUMA node that Linux can have (NODES_SHIFT is at most 10).
const mostNUMANode = 1023

// mountPath checks that containers can have a mount there.
func mountPath(key, path string) error {
	if path == "/" || !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return fmt.Errorf("%s: %q is not an absolute path of a directory, such as /run/memif", key, path)
	}
	return nil
}

// validateDirectory checks that the paths of sockets are not longer than the kernel's limit.
func (d *Devices) validateDirectory() error {
	if n := len(d.Memif.Directory); d.Memif.Count > 0 && n > devicemanager.LongestRoot {
		return fmt.Errorf("devices.memif.directory: %q has %d bytes, at most %d are possible",
			d.Memif.Directory, n, devicemanager.LongestRoot)
	}
	return nil
}

// Kubernetes configures the agent of a node in a Kubernetes cluster.
type Kubernetes struct {
	Mode       string // none or cluster
	Node       string // name of the node; "": NODE_NAME, else the host name
	Kubeconfig string // path of a file; "": the pod's service account
	Addresses  string // source of the addresses of pods' main interfaces: podCIDR or pools
	Tunnel     string // encapsulation of packets to other nodes: vxlan4, vxlan6 or none
	VXLANPort  uint16 // UDP port of the tunnels

	RequireUplink bool          // serve no pods until the uplink exists; pod interfaces inherit its MTU
	BlockWait     time.Duration // how long an ADD waits for a block of addresses

	Multus         bool // Multus handles selections of networks and the annotation network-status
	NetworkStatus  bool // write the annotation network-status of pods
	ReportPolicies bool // report NetworkPolicies as not enforced

	EnforcePolicies bool // NetworkPolicies, MultiNetworkPolicies and AdminNetworkPolicies
	ProtectNodes    bool // deny pods the metadata services of clouds, and the ports of agents

	TrustServiceExternalIP bool // with EnforcePolicies: spec.externalIPs of Services count as addresses of the Services

	// with EnforcePolicies: at most one of each family, of the addresses by which endpoints of Services see pods
	ServiceClientRanges Prefixes

	RuntimeSocket string // CRI socket of the container runtime: a path, auto or none
}

// Modes of Kubernetes.
const (
	NoCluster = "none"
	InCluster = "cluster"
)

// Sources of the addresses of pods' main interfaces.
const (
	OfPodCIDR = "podCIDR" // the node's ranges
	OfPools   = "pools"   // blocks of the cluster's IPPools
)

func (k *Kubernetes) flags(fs *pflag.FlagSet) {
	fs.StringVar(&k.Mode, "kubernetes-mode", NoCluster,
		"none (pods' annotations come from the runtime, networks from the configuration) or cluster (also from the API server)")
	fs.StringVar(&k.Node, "kubernetes-node", "",
		"name of this node in Kubernetes; default: environment variable NODE_NAME, else the host name")
	fs.StringVar(&k.Kubeconfig, "kubernetes-kubeconfig", "", "kubeconfig file; default: the pod's service account")
	fs.StringVar(&k.Addresses, "kubernetes-addresses", OfPodCIDR,
		"source of the addresses of pods' main interfaces: podCIDR (the node's ranges) or pools (blocks of IPPools)")
	fs.StringVar(&k.Tunnel, "kubernetes-tunnel", networks.TunnelVXLAN4,
		"encapsulation of packets to other nodes: vxlan4, vxlan6, or none (nodes share a subnet; custom networks are local to the node)")
	fs.Uint16Var(&k.VXLANPort, "kubernetes-vxlan-port", wire.VXLANPort,
		"UDP port of the tunnels, the same on all nodes")
	fs.BoolVar(&k.RequireUplink, "kubernetes-require-uplink", false,
		"serve no pods until the uplink exists; pod interfaces inherit its MTU; off: continue without it after 15s")
	fs.DurationVar(&k.BlockWait, "kubernetes-block-wait", 15*time.Second,
		"how long an ADD waits for blocks of addresses of all its networks before it fails, 1s to 1m; at most 3s while the API server does not answer")
	fs.BoolVar(&k.Multus, "kubernetes-multus", false,
		"Multus handles pods' selections of networks and the annotation network-status")
	fs.StringVar(&k.RuntimeSocket, "kubernetes-runtime-socket", Auto,
		"CRI socket of the container runtime, for queries whether sandboxes still exist: a path, auto (the sockets of containerd and CRI-O) or none")
	fs.BoolVar(&k.ReportPolicies, "kubernetes-report-network-policies", true,
		"report NetworkPolicies as not enforced if Weft is the main CNI; disable it if another component enforces them")
	fs.BoolVar(&k.EnforcePolicies, "kubernetes-enforce-policies", false,
		"enforce NetworkPolicies, MultiNetworkPolicies and AdminNetworkPolicies in the dataplane")
	fs.BoolVar(&k.ProtectNodes, "kubernetes-protect-nodes", false,
		"deny pods the metadata services of clouds and the ports of agents, whatever policies say; needs kubernetes.enforcePolicies")
	fs.BoolVar(&k.TrustServiceExternalIP, "kubernetes-trust-service-external-ip", false,
		"with kubernetes.enforcePolicies: the externalIPs of a Service are its addresses for egress policies; off: the rules about the plain address decide")
	k.ServiceClientRanges = Prefixes{netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/8")}
	fs.Var(&k.ServiceClientRanges, "kubernetes-service-client-ranges",
		"with kubernetes.enforcePolicies: ranges of the addresses by which endpoints of Services see pods, at most one of each family; empty: they see the node's address")
	fs.BoolVar(&k.NetworkStatus, "kubernetes-network-status", true,
		"write pods' annotation k8s.v1.cni.cncf.io/network-status")
}

func (k *Kubernetes) validatePolicies() error {
	if k.ProtectNodes && !k.EnforcePolicies {
		return errors.New("kubernetes.protectNodes needs kubernetes.enforcePolicies")
	}
	if _, err := policy.NewClientRanges(k.ServiceClientRanges); err != nil {
		return fmt.Errorf("kubernetes.serviceClientRanges: %w", err)
	}
	return nil
}

func (k *Kubernetes) validate() error {
	return errors.Join(
		oneOf("kubernetes.mode", k.Mode, NoCluster, InCluster), validateRuntime(k.RuntimeSocket),
		absolute("kubernetes.kubeconfig", cmp.Or(k.Kubeconfig, "/")), // it may be empty
		oneOf("kubernetes.addresses", k.Addresses, OfPodCIDR, OfPools),
		k.validatePolicies(), between("kubernetes.blockWait", k.BlockWait, time.Second, time.Minute),
		oneOf("kubernetes.tunnel", k.Tunnel, networks.TunnelVXLAN4, networks.TunnelVXLAN6, networks.TunnelNone),
		between("kubernetes.vxlanPort", k.VXLANPort, 1, math.MaxUint16),
	)
}

// TunnelPort is the UDP port of the node's tunnels; 0: the node has no tunnels.
func (k *Kubernetes) TunnelPort() uint16 {
	if k.Mode != InCluster || k.Tunnel == networks.TunnelNone {
		return 0
	}
	return k.VXLANPort
}

// Name returns the name of the node.
func (k *Kubernetes) Name() (string, error) {
	if name := cmp.Or(k.Node, os.Getenv("NODE_NAME")); name != "" {
		return name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("kubernetes.node is not set, and reading the host name failed: %w", err)
	}
	return name, nil
}

// NoRuntime is the value of kubernetes.runtimeSocket that disables queries of the container runtime.
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
