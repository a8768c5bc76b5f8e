package devicemanager

import (
	"context"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	endpoint      = "weft-memif.sock" // ours, in kubelet's directory of plugins
	kubeletSocket = "kubelet.sock"

	// streamGrace is how long a kubelet that we registered with may take to ask for our devices before we register again.
	streamGrace = 2 * time.Second

	// streamPause is how long kubelet may be without a stream once it had one: it opens a new one beside the old one
	// when we register twice, and what it asks meanwhile fails when we do so once more.
	streamPause = 300 * time.Millisecond

	// Pauses between registrations that fail. A new kubelet is tried at once.
	leastPause, mostPause = 100 * time.Millisecond, 10 * time.Second
)

// presence keeps the plugin known to kubelet, however often that starts again, and whatever becomes of its directory:
//
//	          directory there          served, kubelet.sock there
//	absent -------------------> served ---------------------------> registered
//	   ^                        ^    ^                                  |
//	   +---- directory gone ----+    +-- another kubelet.sock, or no ---+
//	                            |        stream any more                |
//	                            +------------ our socket gone ----------+
//
// It compares what is with what should be, whenever the directory changes and from time to time; so no single sign is
// ever missed for good.
type presence struct {
	config Config
	plugin *plugin

	unwatched bool // the kernel gives no watches: a test's

	// What follows belongs to the goroutine of run.
	server    *server
	with      stamp // kubelet.sock of the kubelet that we are registered with
	tried     stamp // ... that we tried to register with
	since     time.Time
	opened    uint64    // streams before that registration
	alone     time.Time // since when there is no stream; zero while there is one
	next      time.Time // before which no registration is tried
	pause     *backoff.ExponentialBackOff
	failures  int    // in a row
	announced string // what was logged last of what lasts

	mu            sync.Mutex
	registered    bool
	registrations map[string]uint64
}

func newPresence(config Config, p *plugin) *presence {
	p.streams = newStreams()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = leastPause, mostPause
	return &presence{config: config, plugin: p, pause: pause, registrations: map[string]uint64{"ok": 0, "error": 0}}
}

// run keeps the plugin known until ctx ends.
func (p *presence) run(ctx context.Context) error {
	w := newWatcher(p.config.PluginDir, p.config.Log)
	if p.unwatched {
		w.close()
		w.notify = nil
	}
	defer w.close()
	defer p.withdraw()
	for {
		w.follow()
		p.look(ctx)
		wait := time.NewTimer(p.untilNextLook())
		select {
		case <-w.events():
		case err := <-w.errors():
			p.config.Log.Debug("watch of kubelet's directory", "err", err)
		case <-p.plugin.streams.ended:
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil
		}
		wait.Stop()
	}
}

// look does what is missing for kubelet to know the plugin.
func (p *presence) look(ctx context.Context) {
	if directoryStamp(p.config.PluginDir).isZero() {
		p.withdraw()
		if p.isNews("no directory") {
			p.config.Log.Info("no kubelet here: its directory of plugins is not there", "directory", p.config.PluginDir)
		}
		return
	}
	if p.server == nil || !p.server.stands() {
		p.withdraw()
		server, err := serve(filepath.Join(p.config.PluginDir, endpoint), p.plugin)
		if err != nil {
			if p.isNews("not served") {
				p.config.Log.Warn("kubelet not served", "err", err)
			}
			return
		}
		p.server = server
	}
	p.introduce(ctx)
}

// introduce registers with the kubelet that is there, unless it knows us.
func (p *presence) introduce(ctx context.Context) {
	kubelet := stampOf(filepath.Join(p.config.PluginDir, kubeletSocket))
	if kubelet.isZero() {
		p.forget()
		if p.isNews("no socket") {
			p.config.Log.Info("kubelet has no socket to register at", "directory", p.config.PluginDir)
		}
		return
	}
	if kubelet == p.with && p.isFollowed() {
		return
	}
	if kubelet != p.tried {
		p.pause.Reset()
		p.next, p.failures = time.Time{}, 0
	}
	if time.Now().Before(p.next) {
		return
	}
	p.tried = kubelet
	p.forget()
	_, p.opened = p.plugin.streams.state()
	err := register(ctx, filepath.Join(p.config.PluginDir, kubeletSocket))
	p.count(err)
	if err != nil {
		p.next = time.Now().Add(p.pause.NextBackOff())
		p.failures++
		// A kubelet that starts has a socket before it answers.
		if ctx.Err() == nil && p.failures > 1 && p.isNews("not registered") {
			p.config.Log.Warn("not registered with kubelet, trying again", "err", err)
		}
		return
	}
	p.with, p.since, p.alone, p.announced, p.failures = kubelet, time.Now(), time.Time{}, "", 0
	p.next = p.since.Add(p.pause.NextBackOff()) // of a kubelet that agrees and then never asks
	p.config.Log.Info("registered with kubelet", "devices", p.config.Count)
}

// isFollowed reports whether kubelet follows our devices, or may yet come to ask for them.
func (p *presence) isFollowed() bool {
	open, opened := p.plugin.streams.state()
	if open > 0 {
		p.pause.Reset()
		p.alone = time.Time{}
		return true
	}
	if p.alone.IsZero() {
		p.alone = time.Now()
	}
	if opened == p.opened {
		return time.Since(p.since) < streamGrace
	}
	return time.Since(p.alone) < streamPause
}

// untilNextLook is how long nothing needs to be looked at, unless something changes.
func (p *presence) untilNextLook() time.Duration {
	wait := p.config.Poll
	if p.with.isZero() && p.server != nil && !p.next.IsZero() {
		wait = min(wait, max(time.Until(p.next), time.Millisecond))
	}
	if !p.alone.IsZero() {
		wait = min(wait, streamPause)
	}
	return wait
}

// withdraw ends the server.
func (p *presence) withdraw() {
	if p.server != nil {
		p.server.stop()
		p.server = nil
	}
	p.forget()
	p.tried = stamp{}
}

func (p *presence) forget() {
	p.with = stamp{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.registered = false
}

func (p *presence) count(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.registrations["error"]++
		return
	}
	p.registrations["ok"]++
	p.registered = true
}

func (p *presence) stats() (registered bool, registrations map[string]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.registered, maps.Clone(p.registrations)
}

// isNews reports whether what lasts was not logged yet.
func (p *presence) isNews(what string) bool {
	news := p.announced != what
	p.announced = what
	return news
}
