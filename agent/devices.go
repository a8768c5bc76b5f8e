package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

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

// assembleDevices makes the manager of devices; the node may have none.
func (a *Agent) assembleDevices() (err error) {
	d := a.config.Devices
	if d.Memif.Count == 0 {
		return nil
	}
	if d.Memif.Writable && a.config.Dataplane.Type == VPP {
		a.log.Warn("pods may write into the directories of memifs in which VPP sets modes by path: they can change modes of other files",
			"option", "devices.memif.writable")
	}
	a.devices, err = devicemanager.New(devicemanager.Config{
		Loop:          a.loop,
		PluginDir:     d.PluginDir,
		PodResources:  d.PodResources,
		DeviceInfoDir: d.InfoDir,
		Root:          d.Memif.Directory,
		Count:         d.Memif.Count,
		Writable:      d.Memif.Writable,
		NoSecretEnv:   !d.Memif.SecretInEnv,
		CollectAfter:  d.Memif.CollectAfter,
		CollectMinAge: d.Memif.CollectAfter,
		Log:           a.log.With("room", "devicemanager"),
	})
	if err != nil {
		return err
	}
	a.vanished.isListed = a.devices.Lists
	a.devices.SetHealthy(false) // until the dataplane is connected
	a.health.Watch(health.Dataplane, a.devices.SetHealthy)
	return nil
}

// secret is how networks learn the secret of an allocation; nil where there are no memifs.
func (a *Agent) secret() func(string) secret.Text {
	if a.devices == nil {
		return nil
	}
	return a.devices.Secret
}

// grants is how pods' devices are learned; nil where there are none.
func (a *Agent) grants() func(context.Context, pod.ID) ([]pod.Grant, error) {
	if a.devices == nil {
		return nil
	}
	return func(ctx context.Context, id pod.ID) ([]pod.Grant, error) {
		grants, err := a.devices.Devices(ctx, id)
		for i := range grants {
			if a.cluster != nil && grants[i].GID == pod.UnknownGroup {
				grants[i].GID = a.cluster.Group(id, grants[i].Container)
			}
		}
		return grants, err
	}
}

// runDevices serves kubelet once pods can be served: it takes what it is told for what is there.
func (a *Agent) runDevices(ctx context.Context) error {
	if err := a.health.Await(ctx, health.Started); err != nil {
		return err
	}
	return a.devices.Run(ctx)
}
