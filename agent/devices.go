package agent

import (
	"context"
	"path/filepath"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/k8s/dra"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// assembleDevices creates the device manager, if the node has devices.
func (a *Agent) assembleDevices() (err error) {
	d := a.config.Devices
	if d.Memif.Count == 0 {
		return nil
	}
	if d.Memif.Writable && a.config.Dataplane.Type == config.VPP {
		a.log.Warn("pods may write into the directories of memifs in which VPP sets modes by path: they can change modes of other files",
			"option", "devices.memif.writable")
	}
	a.devices, err = devicemanager.New(devicemanager.Config{
		Loop:          a.loop,
		PluginDir:     d.PluginDir,
		PodResources:  d.PodResources,
		DeviceInfoDir: d.InfoDir,
		Root:          d.Memif.Directory,
		CDIDir:        d.CDIDir,
		Count:         d.Memif.Count,
		ContainerPath: d.Memif.MountPath,
		Claimable:     d.Memif.Claims,
		Writable:      d.Memif.Writable,
		NoSecretEnv:   !d.Memif.SecretInEnv,
		CollectAfter:  d.Memif.CollectAfter,
		CollectMinAge: d.Memif.CollectAfter,
		Log:           a.log.With("component", "devicemanager"),
	})
	if err != nil {
		return err
	}
	a.vanished.IsListed = a.devices.Lists
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
		KubeletDir: filepath.Dir(a.config.Devices.PluginDir), CDIDevice: devicemanager.CDIDevice, Collect: m.CollectAfter,
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

// secret returns the function that looks up the secret of an allocation; nil without memifs.
func (a *Agent) secret() func(string) secret.Text {
	if a.devices == nil {
		return nil
	}
	return a.devices.Secret
}

// grants returns the function that lists the devices granted to a pod; nil without devices.
func (a *Agent) grants() func(context.Context, pod.ID) ([]pod.Grant, error) {
	if a.devices == nil {
		return nil
	}
	return func(ctx context.Context, id pod.ID) ([]pod.Grant, error) {
		grants, err := a.devices.Devices(ctx, id)
		return a.withGroups(id, grants), err
	}
}

// claimed returns the function that lists the devices of a pod's claims; nil without devices.
func (a *Agent) claimed() func(context.Context, pod.ID) ([]pod.Grant, error) {
	if a.devices == nil {
		return nil
	}
	return func(ctx context.Context, id pod.ID) ([]pod.Grant, error) {
		grants, err := a.devices.Claimed(ctx, id)
		return a.withGroups(id, grants), err
	}
}

// withGroups completes grants by the groups of the pod's containers, if the API server has them.
func (a *Agent) withGroups(id pod.ID, grants []pod.Grant) []pod.Grant {
	for i := range grants {
		if a.member != nil && grants[i].GID == pod.UnknownGroup {
			grants[i].GID = a.member.View.Group(id, grants[i].Container)
		}
	}
	return grants
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
