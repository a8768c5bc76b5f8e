package devicemanager

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/weftnet/weft/eventloop"
)

// Bounds and defaults of a [Config].
const (
	defaultCount = 100
	MostDevices  = 1024

	// LongestRoot leaves room for an allocation's id and the socket's name in a socket path of 107 bytes.
	LongestRoot = 107 - idLength - len("//memif.sock")
)

// doer is the part of the event loop that the manager uses.
type doer interface {
	Do(ctx context.Context, ev eventloop.Event) (*eventloop.Record, error)
}

// Config configures a [Manager]. Only Loop is required.
type Config struct {
	Loop        doer
	Kubelet     Kubelet
	Directories Directories
	Mounts      Mounts
	Devices     Devices
	Collect     Collect

	AllocateTimeout time.Duration // limit for one container; default 10 s

	Rand io.Reader        // default crypto/rand.Reader
	Now  func() time.Time // default time.Now
	Log  *slog.Logger     // default: none
}

// Kubelet says where kubelet of this node is reached.
type Kubelet struct {
	PluginDir    string        // sockets of kubelet and its plugins; default /var/lib/kubelet/device-plugins
	PodResources string        // PodResources socket; default /var/lib/kubelet/pod-resources/kubelet.sock
	Poll         time.Duration // interval of checking PluginDir, in addition to watching it; default 1 s
}

// Directories are the directories of the node that have files of allocations.
type Directories struct {
	Root       string // parent of the allocations' directories, at most 75 bytes; default /run/weft/memif
	DeviceInfo string // default /var/run/k8s.cni.cncf.io/devinfo/dp
	CDI        string // of the runtime's CDI files; default /var/run/cdi
}

// Mounts says how containers get the directory and the secret of an allocation.
type Mounts struct {
	// mount point of the allocation in the container; default /run/memif, which differs from the directory of a VPP in
	// the container
	Container string
	// parent of the mount points of claims in containers; default /run/memif-claims: a mount below the read-only one of
	// Container is impossible
	Claims      string
	Writable    bool // the container may write into its allocation's directory
	NoSecretEnv bool // do not put the secret into the container's environment
}

// Collect says when an allocation without a pod is released.
type Collect struct {
	After time.Duration // kubelet has not listed the allocation for this time; default 1 min
	// minimum age of a released allocation: kubelet lists it some time after Allocate; default 1 min
	MinAge time.Duration
}

func (c Config) withDefaults() Config {
	c.Kubelet.PluginDir = cmp.Or(c.Kubelet.PluginDir, "/var/lib/kubelet/device-plugins")
	c.Kubelet.PodResources = cmp.Or(c.Kubelet.PodResources, "/var/lib/kubelet/pod-resources/kubelet.sock")
	c.Directories.Root = cmp.Or(c.Directories.Root, "/run/weft/memif")
	c.Directories.DeviceInfo = cmp.Or(c.Directories.DeviceInfo, "/var/run/k8s.cni.cncf.io/devinfo/dp")
	c.Mounts.Container = cmp.Or(c.Mounts.Container, "/run/memif")
	c.Directories.CDI = cmp.Or(c.Directories.CDI, "/var/run/cdi")
	c.Mounts.Claims = cmp.Or(c.Mounts.Claims, "/run/memif-claims")
	c.Devices.Count = cmp.Or(c.Devices.Count, defaultCount)
	c.AllocateTimeout = cmp.Or(c.AllocateTimeout, 10*time.Second)
	c.Kubelet.Poll = cmp.Or(c.Kubelet.Poll, time.Second)
	c.Collect.After = cmp.Or(c.Collect.After, time.Minute)
	c.Collect.MinAge = cmp.Or(c.Collect.MinAge, time.Minute)
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if c.Loop == nil {
		return errors.New("an event loop is required")
	}
	if c.Devices.Count < 1 || c.Devices.Count > MostDevices {
		return fmt.Errorf("count %d is not within 1 to %d", c.Devices.Count, MostDevices)
	}
	if c.Devices.Claimable < 0 || c.Devices.Claimable > c.Devices.Count {
		return fmt.Errorf("%d devices for claims are not within 0 to %d", c.Devices.Claimable, c.Devices.Count)
	}
	for _, p := range []string{
		c.Kubelet.PluginDir, c.Kubelet.PodResources,
		c.Directories.Root, c.Directories.DeviceInfo, c.Mounts.Container, c.Directories.CDI, c.Mounts.Claims,
	} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return fmt.Errorf("%q is not a clean absolute path", p)
		}
	}
	if root := c.Directories.Root; len(root) > LongestRoot {
		return fmt.Errorf("root %s has %d bytes, at most %d fit into a socket path", root, len(root), LongestRoot)
	}
	for name, d := range map[string]time.Duration{
		"allocate timeout": c.AllocateTimeout, "poll": c.Kubelet.Poll, "collect after": c.Collect.After,
		"collect min age": c.Collect.MinAge,
	} {
		if d <= 0 {
			return fmt.Errorf("%s %s is not above 0", name, d)
		}
	}
	return nil
}
