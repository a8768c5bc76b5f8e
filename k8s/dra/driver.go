// Package dra is the DRA driver of memifs: it offers this node's memifs to the scheduler, and prepares the memifs of
// ResourceClaims for kubelet.
package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/weftnet/weft/internal/privatedir"
	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/internal/unixsocket"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/pod"
)

// devices are the memifs of the node.
type devices interface {
	Claimable() []string
	Claim(ctx context.Context, claim pod.ClaimID, devices []pod.ClaimedDevice) ([]pod.Allocation, error)
	Unclaim(ctx context.Context, claim pod.ClaimID, reason string) error
	Claims() []pod.ClaimID
	Allocations() []pod.Allocation
}

// Config configures a [Driver].
type Config struct {
	Node    string // its name in Kubernetes
	Client  kubernetes.Interface
	Devices devices
	Limits  Limits

	NUMANode *int // of all devices; nil: none

	KubeletDir string                         // default /var/lib/kubelet
	CDIDir     string                         // of the runtime's CDI files; default /var/run/cdi
	CDIDevice  func(a *pod.Allocation) string // the name by which the runtime finds an allocation
	Mount      func(a *pod.Allocation) string // the directory of an allocation in its containers
	Collect    time.Duration                  // interval of looking for claims that vanished; default 1 min
	Log        *slog.Logger
}

// directory is where the library has the driver's files and socket.
func (c *Config) directory() string {
	return filepath.Join(c.KubeletDir, "plugins", pod.ClaimDriver)
}

// Limits are the most that a claim can request of a memif.
type Limits struct {
	RingSize, BufferSize, Queues int
}

// Driver serves kubelet.
type Driver struct {
	*health

	config       Config
	offer        offer
	statuses     *statuses
	preparations preparations
	metadata     metadata
	collector    collector
}

// New returns a driver that is idle before Run.
func New(c Config) *Driver {
	c.KubeletDir = cmp.Or(c.KubeletDir, "/var/lib/kubelet")
	c.CDIDir = cmp.Or(c.CDIDir, kubeletplugin.DefaultCDIDir)
	c.Collect = cmp.Or(c.Collect, time.Minute)
	d := &Driver{config: c, statuses: newStatuses(c.Client, c.Node, c.Log), health: newHealth()}
	d.offer.config = &d.config
	d.metadata = metadata{
		config:     &d.config,
		offer:      &d.offer,
		interfaces: make(map[string]pod.Interface),
		unwritten:  make(map[requestOf]bool),
	}
	d.collector = collector{
		config: &d.config, preparations: &d.preparations, metadata: &d.metadata, early: make(chan struct{}, 1),
	}
	return d
}

// Limits of the requests of the driver, a second and in a burst.
const (
	requestRate  = 20
	requestBurst = 40
)

// Connect returns a driver with a client of client-go's own, for the library of drivers takes no other. Only programs
// with a driver have that client, which has the kinds of all groups.
func Connect(c Config, to *client.Client) (*Driver, error) {
	connection := *to.Connection()
	connection.UserAgent = "weft-agent/" + version.String()
	connection.QPS = requestRate
	connection.Burst = requestBurst
	var err error
	if c.Client, err = kubernetes.NewForConfig(&connection); err != nil {
		return nil, fmt.Errorf("make a client of all kinds: %w", err)
	}
	return New(c), nil
}

// retryStart is the time between attempts to serve kubelet: kubelet's directories may be missing.
const retryStart = 10 * time.Second

// Run offers the devices and serves kubelet until ctx ends. Kubelet connects to the sockets by itself, also after its
// restart.
func (d *Driver) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(klog.NewContext(ctx, logr.FromSlogHandler(d.config.Log.Handler())))
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.statuses.run(ctx)
	}()
	defer func() { stop(); <-ended }()
	for {
		helper, err := d.start(ctx)
		if err == nil {
			defer helper.Stop()
			d.metadata.serve(helper)
			break
		}
		if ctx.Err() != nil {
			return nil // it ends
		}
		d.config.Log.Warn("claims of memifs are not served, retrying", "err", err)
		if retry.Pause(ctx, retryStart) != nil {
			return nil
		}
	}
	d.collector.run(ctx)
	return nil
}

// start serves kubelet's sockets and publishes the devices.
func (d *Driver) start(ctx context.Context) (*kubeletplugin.Helper, error) {
	own := d.config.directory()
	if err := privatedir.Make(own); err != nil {
		return nil, fmt.Errorf("directory of the driver: %w", err)
	}
	var opened sockets
	helper, err := kubeletplugin.Start(ctx, &plugin{Driver: d},
		kubeletplugin.DriverName(pod.ClaimDriver), kubeletplugin.NodeName(d.config.Node),
		kubeletplugin.KubeClient(d.config.Client),
		kubeletplugin.PluginDataDirectoryPath(own), kubeletplugin.PluginListener(opened.listen),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(d.config.KubeletDir, "plugins_registry")),
		kubeletplugin.RegistrarListener(opened.listen),
		kubeletplugin.EnableDeviceMetadata(true), kubeletplugin.MetadataVersions(v1alpha1.SchemeGroupVersion),
		kubeletplugin.CDIDirectory(d.config.CDIDir),
		kubeletplugin.NodeV1beta1(false), kubeletplugin.GRPCVerbosity(-1))
	if err != nil {
		opened.close()
		return nil, fmt.Errorf("serve kubelet: %w", err)
	}
	if err := helper.PublishResources(ctx, d.offer.resources()); err != nil {
		helper.Stop()
		return nil, fmt.Errorf("publish devices: %w", err)
	}
	d.config.Log.Info("claims of memifs are served", "devices", len(d.config.Devices.Claimable()))
	return helper, nil
}

// Observe takes an attachment that is complete and durable. It does not wait for the API server.
func (d *Driver) Observe(a *pod.Attachment) {
	claims := make(map[string]*pod.ClaimedDevice) // by allocation
	for _, allocation := range d.config.Devices.Allocations() {
		claims[allocation.ID] = allocation.Claim
	}
	interfaces := make(map[string]pod.Interface) // by allocation
	found := make(map[pod.ClaimID][]*resourceapply.AllocatedDeviceStatusApplyConfiguration)
	for _, i := range a.Interfaces {
		if i.Memif == nil || claims[i.Memif.Allocation] == nil {
			continue
		}
		claim := claims[i.Memif.Allocation]
		interfaces[i.Memif.Allocation] = i
		found[claim.ClaimID] = append(found[claim.ClaimID], d.statuses.of(claim, i, a))
	}
	d.metadata.connected(interfaces)
	d.statuses.mu.Lock()
	defer d.statuses.mu.Unlock()
	for id, devices := range found {
		d.statuses.wanted[id] = devices
		d.statuses.keys.Add(id)
	}
}

// plugin is the service that kubelet calls, by way of the helper, which reads the claims from the API server.
type plugin struct {
	*Driver
	drahealth.UnimplementedDRAResourceHealthServer
}

// PrepareResourceClaims prepares each claim for itself. Kubelet repeats it until all are prepared.
func (p *plugin) PrepareResourceClaims(
	ctx context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult)
	for _, claim := range claims {
		if p.metadata.isNeedless(ctx, idOf(claim)) {
			results[claim.UID] = kubeletplugin.PrepareResult{Err: errNotLost}
			continue
		}
		prepared, err := p.prepare(ctx, claim)
		if err != nil {
			p.config.Log.Warn("claim not prepared", "claim", claim.Namespace+"/"+claim.Name, "err", err)
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: prepared, Err: err}
	}
	return results, nil
}

// prepare prepares the devices of one claim.
func (p *plugin) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	requested, err := requestedDevices(claim, p.config.Node)
	if err != nil {
		return nil, err
	}
	p.preparations.note(string(claim.UID))
	allocations, err := p.config.Devices.Claim(ctx, idOf(claim), requested)
	if err != nil {
		return nil, err
	}
	var prepared []kubeletplugin.Device
	for i := range allocations {
		prepared = append(prepared, p.metadata.prepared(&allocations[i]))
	}
	return prepared, nil
}

// UnprepareResourceClaims releases each claim for itself.
func (p *plugin) UnprepareResourceClaims(
	ctx context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	results := make(map[types.UID]error)
	for _, claim := range claims {
		id := pod.ClaimID{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
		results[claim.UID] = p.config.Devices.Unclaim(ctx, id, "kubelet no longer needs it")
		if err := results[claim.UID]; err != nil {
			p.config.Log.Warn("claim not released", "claim", id.String(), "err", err)
			continue
		}
		p.preparations.forget(id.UID)
		p.metadata.released()
		p.collector.restoreSuccessor(id)
	}
	return results, nil
}

// HandleError logs errors of the background. All of them are retried, but for an end of a socket's server, which the
// next start of the agent mends.
func (p *plugin) HandleError(_ context.Context, err error, msg string) {
	if errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) { // the driver ends, or its start failed
		return
	}
	p.config.Log.Warn("the DRA driver reports an error", "step", msg, "err", err)
}

// sockets are the listening sockets of one start. The library closes the sockets of a driver that started, and no
// sockets if the start fails: without close, the next start would find a process that listens.
type sockets struct{ listeners []net.Listener }

// listen creates a socket that only root can connect to.
func (s *sockets) listen(ctx context.Context, path string) (net.Listener, error) {
	l, err := unixsocket.Listen(ctx, "unix", path)
	if err == nil {
		s.listeners = append(s.listeners, l)
	}
	return l, err
}

func (s *sockets) close() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
}

func idOf(claim *resourceapi.ResourceClaim) pod.ClaimID {
	return pod.ClaimID{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
}
