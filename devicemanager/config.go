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
	Loop doer

	PluginDir     string // sockets of kubelet and its plugins; default /var/lib/kubelet/device-plugins
	PodResources  string // kubelet's PodResources socket; default /var/lib/kubelet/pod-resources/kubelet.sock
	Root          string // parent of the allocations' directories, at most 75 bytes; default /run/weft/memif
	DeviceInfoDir string // default /var/run/k8s.cni.cncf.io/devinfo/dp
	ContainerPath string // mount point of the allocation in the container; default /run/memif, not that of a VPP in the container

	CDIDir    string // of the runtime's CDI files; default /var/run/cdi
	ClaimPath string // parent of the mount points of claims in containers; default /run/memif-claims: a mount below the read-only one of ContainerPath is impossible

	Count       int  // number of devices, 1 to 1024; default 100
	Claimable   int  // the last devices, which claims get instead of the device plugin; 0 to Count
	Writable    bool // the container may write into its allocation's directory
	NoSecretEnv bool // do not put the secret into the container's environment

	AllocateTimeout time.Duration // limit for one container; default 10 s
	Poll            time.Duration // interval of checking kubelet's directory, in addition to watching it; default 1 s
	CollectAfter    time.Duration // release an allocation that kubelet has not listed for this time; default 1 min
	CollectMinAge   time.Duration // minimum age of a released allocation: kubelet lists it some time after Allocate; default 1 min

	Rand io.Reader        // default crypto/rand.Reader
	Now  func() time.Time // default time.Now
	Log  *slog.Logger     // default: none
}

func (c Config) withDefaults() Config {
	c.PluginDir = cmp.Or(c.PluginDir, "/var/lib/kubelet/device-plugins")
	c.PodResources = cmp.Or(c.PodResources, "/var/lib/kubelet/pod-resources/kubelet.sock")
	c.Root = cmp.Or(c.Root, "/run/weft/memif")
	c.DeviceInfoDir = cmp.Or(c.DeviceInfoDir, "/var/run/k8s.cni.cncf.io/devinfo/dp")
	c.ContainerPath = cmp.Or(c.ContainerPath, "/run/memif")
	c.CDIDir = cmp.Or(c.CDIDir, "/var/run/cdi")
	c.ClaimPath = cmp.Or(c.ClaimPath, "/run/memif-claims")
	c.Count = cmp.Or(c.Count, defaultCount)
	c.AllocateTimeout = cmp.Or(c.AllocateTimeout, 10*time.Second)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.CollectAfter = cmp.Or(c.CollectAfter, time.Minute)
	c.CollectMinAge = cmp.Or(c.CollectMinAge, time.Minute)
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
	if c.Count < 1 || c.Count > MostDevices {
		return fmt.Errorf("count %d is not within 1 to %d", c.Count, MostDevices)
	}
	if c.Claimable < 0 || c.Claimable > c.Count {
		return fmt.Errorf("%d devices for claims are not within 0 to %d", c.Claimable, c.Count)
	}
	for _, p := range []string{c.PluginDir, c.PodResources, c.Root, c.DeviceInfoDir, c.ContainerPath, c.CDIDir, c.ClaimPath} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return fmt.Errorf("%q is not a clean absolute path", p)
		}
	}
	if len(c.Root) > LongestRoot {
		return fmt.Errorf("root %s has %d bytes, at most %d fit into a socket path", c.Root, len(c.Root), LongestRoot)
	}
	for name, d := range map[string]time.Duration{
		"allocate timeout": c.AllocateTimeout, "poll": c.Poll, "collect after": c.CollectAfter, "collect min age": c.CollectMinAge,
	} {
		if d <= 0 {
			return fmt.Errorf("%s %s is not above 0", name, d)
		}
	}
	return nil
}

// pluginCount is the number of devices of the device plugin: the first ones.
func (c Config) pluginCount() int { return c.Count - c.Claimable }
