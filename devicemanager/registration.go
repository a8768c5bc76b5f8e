package devicemanager

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weftnet/weft/pod"
)

const (
	endpoint      = "weft-memif.sock" // of this plugin, in kubelet's directory of plugins
	kubeletSocket = "kubelet.sock"
)

// registrar keeps the plugin registered across restarts of kubelet and changes of its directory:
//
//	          directory there          served, kubelet.sock there
//	absent -------------------> served ---------------------------> registered
//	   ^                        ^    ^                                  |
//	   +---- directory gone ----+    +-- another kubelet.sock, or no ---+
//	                            |        stream any more                |
//	                            +------------ our socket gone ----------+
//
// It reconciles on each change of the directory and periodically, so a missed notification is only a delay.
type registrar struct {
	kubelet Kubelet
	devices int // number of devices of the plugin
	plugin  *plugin
	log     *slog.Logger
	status  *registrationStatus

	unwatched bool // test without inotify

	// The fields below belong to the goroutine of run.
	server     *server
	session    session
	attempts   attempts
	lastLogged string // last logged state, see isNew
}

func newRegistrar(config Config, p *plugin) *registrar {
	p.streams = newStreams()
	return &registrar{
		kubelet:  config.Kubelet,
		devices:  config.Devices.pluginCount(),
		plugin:   p,
		log:      config.Log,
		status:   newRegistrationStatus(),
		attempts: newAttempts(),
	}
}

// run keeps the plugin registered until ctx ends.
func (p *registrar) run(ctx context.Context) error {
	w := newWatcher(p.kubelet.PluginDir, p.log)
	if p.unwatched {
		w.close()
		w.notify = nil
	}
	defer w.close()
	defer p.withdraw()
	for {
		w.follow()
		p.reconcile(ctx)
		wait := time.NewTimer(p.nextCheck())
		select {
		case <-w.events():
		case err := <-w.errors():
			p.log.Debug("watch of kubelet's directory failed", "err", err)
		case <-p.plugin.streams.ended:
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil
		}
		wait.Stop()
	}
}

// reconcile does the missing steps of the registration.
func (p *registrar) reconcile(ctx context.Context) {
	if directoryID(p.kubelet.PluginDir).isZero() {
		p.withdraw()
		p.status.setReason("no kubelet found: its plugin directory " + p.kubelet.PluginDir + " does not exist")
		if p.isNew("no directory") {
			p.log.Info("no kubelet found: its plugin directory does not exist",
				"directory", p.kubelet.PluginDir)
		}
		return
	}
	if p.server == nil || !p.server.isReachable() {
		p.withdraw()
		server, err := serve(filepath.Join(p.kubelet.PluginDir, endpoint), p.plugin)
		if err != nil {
			p.status.setReason("device plugin not served: " + err.Error())
			if p.isNew("not served") {
				p.log.Warn("device plugin not served", "err", err)
			}
			return
		}
		p.server = server
	}
	p.registerIfNeeded(ctx)
}

// registerIfNeeded registers with the running kubelet unless it uses the plugin already.
func (p *registrar) registerIfNeeded(ctx context.Context) {
	kubelet := fileIDOf(filepath.Join(p.kubelet.PluginDir, kubeletSocket))
	if kubelet.isZero() {
		p.forget()
		p.status.setReason("kubelet is not running: it has no registration socket in " + p.kubelet.PluginDir)
		if p.isNew("no socket") {
			p.log.Info("kubelet has no registration socket", "directory", p.kubelet.PluginDir)
		}
		return
	}
	if kubelet == p.session.kubelet && p.isFollowed() {
		return
	}
	if !p.attempts.begin(kubelet) {
		return
	}
	p.forget()
	_, p.session.opened = p.plugin.streams.state()
	err := register(ctx, filepath.Join(p.kubelet.PluginDir, kubeletSocket))
	p.status.count(err)
	if err != nil {
		p.attempts.failed()
		// A starting kubelet has a socket before it answers.
		if ctx.Err() == nil && p.attempts.failures > 1 && p.isNew("not registered") {
			p.log.Warn("registration with kubelet failed, retrying", "err", err)
		}
		return
	}
	p.session.begin(kubelet)
	p.attempts.succeeded()
	p.lastLogged = ""
	p.log.Info("registered with kubelet", "devices", p.devices)
}

// isFollowed reports whether kubelet watches the devices, or may still open its stream.
func (p *registrar) isFollowed() bool {
	open, opened := p.plugin.streams.state()
	if open > 0 {
		p.attempts.pause.Reset()
	}
	return p.session.isFollowed(open, opened)
}

// nextCheck returns the time until the next periodic reconcile.
func (p *registrar) nextCheck() time.Duration {
	wait := p.kubelet.Poll
	if p.session.kubelet.isZero() && p.server != nil && !p.attempts.notBefore.IsZero() {
		wait = min(wait, max(time.Until(p.attempts.notBefore), time.Millisecond))
	}
	if !p.session.noStreamSince.IsZero() {
		wait = min(wait, streamPause)
	}
	return wait
}

// withdraw stops the server.
func (p *registrar) withdraw() {
	if p.server != nil {
		p.server.stop()
		p.server = nil
	}
	p.forget()
	p.attempts.kubelet = fileID{}
}

// forget ends the session with kubelet.
func (p *registrar) forget() {
	p.session.kubelet = fileID{}
	p.status.lost()
}

// isNew reports whether state differs from the last logged one, and remembers it.
func (p *registrar) isNew(state string) bool {
	differs := p.lastLogged != state
	p.lastLogged = state
	return differs
}

// registerTimeout bounds one registration: kubelet connects to the plugin, for up to 10 s, before it answers.
const registerTimeout = 15 * time.Second

// register registers the plugin at kubelet's socket. The plugin must be served already: kubelet calls it immediately.
func register(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: pod.Resource, Options: options(),
	})
	if err != nil {
		return fmt.Errorf("register %s at %s: %w", pod.Resource, socket, err)
	}
	return nil
}

// maxAnswer bounds kubelet's answers in bytes. Kubelet has the same limit for PodResources.
const maxAnswer = 16 << 20

// dial prepares a short-lived connection to a kubelet socket. A lasting connection would back off long after kubelet
// was away.
func dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("connect to kubelet at %s: %w", socket, err)
	}
	return conn, nil
}
