package agent

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weftnet/weft/agent/cluster"
	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/k8s/dra"
	"github.com/weftnet/weft/podmanager"
)

// devices are the memifs of this node that kubelet and claims give to containers.
type devices struct {
	config  *config.Config
	manager *devicemanager.Manager // nil: the node has no devices
	driver  *dra.Driver            // nil: claims get no devices
	health  *health.Conditions
	log     *slog.Logger
}

// assemble creates the device manager, if the node has devices, and the DRA driver.
func (n *devices) assemble(loop *eventloop.Loop, member *cluster.Member) (err error) {
	d := n.config.Devices
	if d.Memif.Count == 0 {
		return nil
	}
	if d.Memif.Writable && n.config.Dataplane.Type == config.VPP {
		n.log.Warn(
			"pods may write into the directories of memifs in which VPP sets modes by path: they can change modes of other files",
			"option", "devices.memif.writable")
	}
	n.manager, err = devicemanager.New(devicemanager.Config{
		Loop:        loop,
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
		Log:     n.log.With("component", "devicemanager"),
	})
	if err != nil {
		return err
	}
	n.manager.SetHealthy(false) // until the dataplane is connected
	n.health.Watch(health.Dataplane, n.manager.SetHealthy)
	return n.assembleDriver(member)
}

// assembleDriver creates the DRA driver, if claims may have memifs of this node.
func (n *devices) assembleDriver(member *cluster.Member) error {
	m := n.config.Devices.Memif
	if m.Claims == 0 {
		return nil
	}
	var err error
	n.driver, err = member.NewDriver(dra.Config{
		Devices:    n.manager,
		Limits:     dra.Limits{RingSize: m.MaxRingSize, BufferSize: m.MaxBufferSize, Queues: m.MaxQueues},
		NUMANode:   numaNode(os.DirFS("/"), m.NUMANode),
		KubeletDir: filepath.Dir(n.config.Devices.PluginDir),
		CDIDir:     n.config.Devices.CDIDir,
		CDIDevice:  devicemanager.CDIDevice,
		Mount:      n.manager.ClaimDirectory,
		Collect:    m.CollectAfter,
		Log:        n.log.With("component", "dra"),
	})
	if err != nil {
		return err
	}
	n.health.Watch(health.Dataplane, n.driver.SetHealthy)
	return nil
}

// observe gives the driver the attachments that were added.
func (n *devices) observe(o podmanager.Outcome) {
	if n.driver != nil && o.Happening == podmanager.Added {
		n.driver.Observe(o.Attachment)
	}
}

// numaNode returns the NUMA node of the memifs: the configured one, or the only one of the machine. It is nil if the
// node is unknown: a memif has the node of the worker that polls it, and the agent does not know the worker.
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

// run serves kubelet once pods can be served, because kubelet takes the first list of devices as complete.
func (n *devices) run(ctx context.Context) error {
	if err := n.health.Await(ctx, health.Started); err != nil {
		return err
	}
	return n.manager.Run(ctx)
}

// runDriver serves claims once pods can be served. Attachments from before may lack their claims' status.
func (n *devices) runDriver(ctx context.Context, pods *podmanager.Manager) error {
	if err := n.health.Await(ctx, health.Started); err != nil {
		return err
	}
	for _, at := range pods.Attachments() {
		n.driver.Observe(&at)
	}
	return n.driver.Run(ctx)
}
