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

	// LongestRoot leaves room for an allocation's id and the socket's name in the 107 bytes of a socket's path.
	LongestRoot = 107 - idLength - len("//memif.sock")
)

// doer is the event loop, seen from here.
type doer interface {
	Do(ctx context.Context, ev eventloop.Event) (*eventloop.Record, error)
}

// Config is what a [Manager] is made of. Only Loop is needed.
type Config struct {
	Loop doer

	PluginDir     string // where kubelet and its plugins have their sockets; default /var/lib/kubelet/device-plugins
	PodResources  string // kubelet's socket for questions; default /var/lib/kubelet/pod-resources/kubelet.sock
	Root          string // of the allocations' directories, at most 75 bytes; default /run/weft/memif
	DeviceInfoDir string // default /var/run/k8s.cni.cncf.io/devinfo/dp
	ContainerPath string // where a container finds its allocation; default /run/vpp

	Count       int  // of devices, 1 to 1024; default 100
	Writable    bool // the container may write into its allocation's directory
	NoSecretEnv bool // the secret is in the allocation's file only, not in the container's environment

	AllocateTimeout time.Duration // for one container; default 10 s
	Poll            time.Duration // of kubelet's directory, beside watching it; default 1 s
	CollectAfter    time.Duration // kubelet must not list an allocation for so long before it is released; default 1 min
	CollectMinAge   time.Duration // of an allocation that is released; default 1 min: kubelet lists one some time after Allocate

	Rand io.Reader        // default crypto/rand.Reader
	Now  func() time.Time // default time.Now
	Log  *slog.Logger     // default: none
}

func (c Config) withDefaults() Config {
	c.PluginDir = cmp.Or(c.PluginDir, "/var/lib/kubelet/device-plugins")
	c.PodResources = cmp.Or(c.PodResources, "/var/lib/kubelet/pod-resources/kubelet.sock")
	c.Root = cmp.Or(c.Root, "/run/weft/memif")
	c.DeviceInfoDir = cmp.Or(c.DeviceInfoDir, "/var/run/k8s.cni.cncf.io/devinfo/dp")
	c.ContainerPath = cmp.Or(c.ContainerPath, "/run/vpp")
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
		return errors.New("an event loop is needed")
	}
	if c.Count < 1 || c.Count > MostDevices {
		return fmt.Errorf("count %d is not within 1 to %d", c.Count, MostDevices)
	}
	for _, p := range []string{c.PluginDir, c.PodResources, c.Root, c.DeviceInfoDir, c.ContainerPath} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return fmt.Errorf("%q is not an absolute path without detours", p)
		}
	}
	if len(c.Root) > LongestRoot {
		return fmt.Errorf("root %s has %d bytes: sockets in it need one of at most %d", c.Root, len(c.Root), LongestRoot)
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
