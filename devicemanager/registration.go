package devicemanager

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weftnet/weft/pod"
)

const (
	endpoint      = "weft-memif.sock" // of this plugin, in kubelet's directory of plugins
	kubeletSocket = "kubelet.sock"

	// streamGrace is the time that kubelet may take after a registration to open ListAndWatch.
	streamGrace = 2 * time.Second

	// streamPause is the time without a stream, after the first one, before the next registration. Kubelet replaces the
	// stream on a second registration, and a third one at that moment would fail its requests.
	streamPause = 300 * time.Millisecond

	// Limits of the backoff between failed registrations. A new kubelet is tried immediately.
	minPause, maxPause = 100 * time.Millisecond, 10 * time.Second
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
	config Config
	plugin *plugin

	unwatched bool // test without inotify

	// The fields below belong to the goroutine of run.
	server         *server
	registeredWith fileID // kubelet.sock of the last successful registration
	triedWith      fileID // kubelet.sock of the last attempt
	registeredAt   time.Time
	opened         uint64    // number of streams before that registration
	noStreamSince  time.Time // zero while there is a stream
	notBefore      time.Time // time of the next attempt
	pause          *backoff.ExponentialBackOff
	failures       int    // in a row
	lastLogged     string // last logged state, see isNew

	mu            sync.Mutex
	registered    bool
	reason        string // why it is not registered
	registrations map[string]uint64
}

func newRegistrar(config Config, p *plugin) *registrar {
	p.streams = newStreams()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = minPause, maxPause
	return &registrar{config: config, plugin: p, pause: pause, registrations: map[string]uint64{"ok": 0, "error": 0}}
}

// run keeps the plugin registered until ctx ends.
func (p *registrar) run(ctx context.Context) error {
	w := newWatcher(p.config.PluginDir, p.config.Log)
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
			p.config.Log.Debug("watch of kubelet's directory failed", "err", err)
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
	if directoryID(p.config.PluginDir).isZero() {
		p.withdraw()
		p.setReason("no kubelet found: its plugin directory " + p.config.PluginDir + " does not exist")
		if p.isNew("no directory") {
			p.config.Log.Info("no kubelet found: its plugin directory does not exist", "directory", p.config.PluginDir)
		}
		return
	}
	if p.server == nil || !p.server.isReachable() {
		p.withdraw()
		server, err := serve(filepath.Join(p.config.PluginDir, endpoint), p.plugin)
		if err != nil {
			p.setReason("device plugin not served: " + err.Error())
			if p.isNew("not served") {
				p.config.Log.Warn("device plugin not served", "err", err)
			}
			return
		}
		p.server = server
	}
	p.registerIfNeeded(ctx)
}

// registerIfNeeded registers with the running kubelet unless it uses the plugin already.
func (p *registrar) registerIfNeeded(ctx context.Context) {
	kubelet := fileIDOf(filepath.Join(p.config.PluginDir, kubeletSocket))
	if kubelet.isZero() {
		p.forget()
		p.setReason("kubelet is not running: it has no registration socket in " + p.config.PluginDir)
		if p.isNew("no socket") {
			p.config.Log.Info("kubelet has no registration socket", "directory", p.config.PluginDir)
		}
		return
	}
	if kubelet == p.registeredWith && p.isFollowed() {
		return
	}
	if kubelet != p.triedWith {
		p.pause.Reset()
		p.notBefore, p.failures = time.Time{}, 0
	}
	if time.Now().Before(p.notBefore) {
		return
	}
	p.triedWith = kubelet
	p.forget()
	_, p.opened = p.plugin.streams.state()
	err := register(ctx, filepath.Join(p.config.PluginDir, kubeletSocket))
	p.count(err)
	if err != nil {
		p.notBefore = time.Now().Add(p.pause.NextBackOff())
		p.failures++
		// A starting kubelet has a socket before it answers.
		if ctx.Err() == nil && p.failures > 1 && p.isNew("not registered") {
			p.config.Log.Warn("registration with kubelet failed, retrying", "err", err)
		}
		return
	}
	p.registeredWith, p.registeredAt, p.noStreamSince, p.lastLogged, p.failures = kubelet, time.Now(), time.Time{}, "", 0
	p.notBefore = p.registeredAt.Add(p.pause.NextBackOff()) // for a kubelet that accepts and never opens a stream
	p.config.Log.Info("registered with kubelet", "devices", p.config.pluginCount())
}

// isFollowed reports whether kubelet watches the devices, or may still open its stream.
func (p *registrar) isFollowed() bool {
	open, opened := p.plugin.streams.state()
	if open > 0 {
		p.pause.Reset()
		p.noStreamSince = time.Time{}
		return true
	}
	if p.noStreamSince.IsZero() {
		p.noStreamSince = time.Now()
	}
	if opened == p.opened {
		return time.Since(p.registeredAt) < streamGrace
	}
	return time.Since(p.noStreamSince) < streamPause
}

// nextCheck returns the time until the next periodic reconcile.
func (p *registrar) nextCheck() time.Duration {
	wait := p.config.Poll
	if p.registeredWith.isZero() && p.server != nil && !p.notBefore.IsZero() {
		wait = min(wait, max(time.Until(p.notBefore), time.Millisecond))
	}
	if !p.noStreamSince.IsZero() {
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
	p.triedWith = fileID{}
}

func (p *registrar) forget() {
	p.registeredWith = fileID{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.registered = false
}

func (p *registrar) count(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = ""
	if err != nil {
		p.reason = "memif devices are not registered, retrying: " + err.Error()
		p.registrations["error"]++
		return
	}
	p.registrations["ok"]++
	p.registered = true
}

// setReason records why the plugin is not registered.
func (p *registrar) setReason(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = reason
}

func (p *registrar) stats() (registered bool, reason string, registrations map[string]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.registered, p.reason, maps.Clone(p.registrations)
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

// dial prepares a short-lived connection to a kubelet socket. A lasting connection would back off long after kubelet was
// away.
func dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("connect to kubelet at %s: %w", socket, err)
	}
	return conn, nil
}

// watcher reports changes in a directory that may be removed and recreated. It may miss changes: the registrar also polls.
type watcher struct {
	notify  *fsnotify.Watcher // nil where inotify is not available
	dir     string
	watched fileID
	log     *slog.Logger
}

func newWatcher(dir string, log *slog.Logger) *watcher {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("kubelet's directory is not watched, only polled", "err", err)
		notify = nil
	}
	return &watcher{notify: notify, dir: dir, log: log}
}

// follow watches the current directory.
func (w *watcher) follow() {
	now := directoryID(w.dir)
	if w.notify == nil || now == w.watched {
		return
	}
	w.watched = fileID{}
	if now.isZero() {
		return
	}
	_ = w.notify.Remove(w.dir) // the previous directory
	if err := w.notify.Add(w.dir); err != nil {
		w.log.Debug("kubelet's directory is not watched", "err", err)
		return
	}
	w.watched = now
}

// directoryID is the id of a directory, independent of its content.
func directoryID(dir string) fileID {
	s := fileIDOf(dir)
	s.modified = 0
	return s
}

// events returns the directory's events, nil without inotify.
func (w *watcher) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

// errors returns the reports of lost events.
func (w *watcher) errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}
