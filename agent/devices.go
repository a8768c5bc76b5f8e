package agent

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/k8s/dra"
	"github.com/weftnet/weft/podmanager"
)

// assembleDevices creates the device manager, if the node has devices.
func (a *Agent) assembleDevices() (err error) {
	d := a.config.Devices
	if d.Memif.Count == 0 {
		return nil
	}
	if d.Memif.Writable && a.config.Dataplane.Type == config.VPP {
		a.log.Warn(
			"pods may write into the directories of memifs in which VPP sets modes by path: they can change modes of other files",
			"option", "devices.memif.writable")
	}
	a.devices, err = devicemanager.New(devicemanager.Config{
		Loop:        a.loop,
		Kubelet:     devicemanager.Kubelet{PluginDir: d.PluginDir, PodResources: d.PodResources},
		Directories: devicemanager.Directories{Root: d.Memif.Directory, DeviceInfo: d.InfoDir, CDI: d.CDIDir},
		Mounts: devicemanager.Mounts{
			Container:   d.Memif.MountPath,
			Writable:    d.Memif.Writable,
			NoSecretEnv: !d.Memif.SecretInEnv,
		},
		Devices: devicemanager.Devices{
			Count:     d.Memif.Count,
			Claimable: d.Memif.Claims,
			NUMANode:  numaNode(os.DirFS("/"), d.Memif.NUMANode),
		},
		Collect: devicemanager.Collect{After: d.Memif.CollectAfter, MinAge: d.Memif.CollectAfter},
		Log:     a.log.With("component", "devicemanager"),
	})
	if err != nil {
		return err
	}
	a.deletions.vanished.IsListed = a.devices.Lists
	a.devices.SetHealthy(false) // until the dataplane is connected
	a.health.Watch(health.Dataplane, a.devices.SetHealthy)
	return a.assembleDriver()
}

// assembleDriver creates the DRA driver, if claims may have memifs of this node.
func (a *Agent) assembleDriver() error {
	m := a.config.Devices.Memif
	if m.Claims == 0 {
		return nil
	}
	var err error
	a.driver, err = a.member.NewDriver(dra.Config{
		Devices:    a.devices,
		Limits:     dra.Limits{RingSize: m.MaxRingSize, BufferSize: m.MaxBufferSize, Queues: m.MaxQueues},
		NUMANode:   numaNode(os.DirFS("/"), m.NUMANode),
		KubeletDir: filepath.Dir(a.config.Devices.PluginDir),
		CDIDir:     a.config.Devices.CDIDir,
		CDIDevice:  devicemanager.CDIDevice,
		Mount:      a.devices.ClaimDirectory, Collect: m.CollectAfter,
		Log: a.log.With("component", "dra"),
	})
	if err != nil {
		return err
	}
	a.health.Watch(health.Dataplane, a.driver.SetHealthy)
	a.observers = append(a.observers, func(o podmanager.Outcome) {
		if o.Happening == podmanager.Added {
			a.driver.Observe(o.Attachment)
		}
	})
	return nil
}

// numaNode returns the NUMA node of the memifs: the configured one, or that of a machine with one. It is nil if the
// memifs have none: a memif has the node of the worker that polls it, and which one that is, is unknown to the agent.
func numaNode(root fs.FS, configured int) *int {
	if configured >= 0 {
		return &configured
	}
	online, err := fs.ReadFile(root, "sys/devices/system/node/online")
	if err != nil {
		return nil // a kernel without NUMA
	}
	only, err := strconv.Atoi(strings.TrimSpace(string(online)))
	if err != nil {
		return nil // a list of several
	}
	return &only
}

// runDevices serves kubelet once pods can be served, because kubelet takes the first list of devices as complete.
func (a *Agent) runDevices(ctx context.Context) error {
	if err := a.health.Await(ctx, health.Started); err != nil {
		return err
	}
	return a.devices.Run(ctx)
}

// runDriver serves claims once pods can be served. Attachments from before may lack their claims' status.
func (a *Agent) runDriver(ctx context.Context) error {
	if err := a.health.Await(ctx, health.Started); err != nil {
		return err
	}
	for _, at := range a.pods.Attachments() {
		a.driver.Observe(&at)
	}
	return a.driver.Run(ctx)
}
