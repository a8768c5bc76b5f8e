// Package occupied keeps the addresses of the node's links from pods, and reports pods that have one of them.
package occupied

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

const (
	// readPause is the shortest time between two reads: a program such as kube-proxy may add thousands of addresses at
	// once.
	readPause = 100 * time.Millisecond
	// readEvery is the period of reads without a notification of the kernel: a link may have moved into a VRF.
	readEvery = 15 * time.Second
	// The pauses between two subscriptions to the kernel's notifications.
	shortestPause = 500 * time.Millisecond
	longestPause  = 10 * time.Second
	// mostNamed limits the pods that the condition names.
	mostNamed = 8
)

// Config has the dependencies of a [Watcher].
type Config struct {
	Occupy      func(by map[netip.Addr]string) // excludes addresses from the pools of pods
	Attachments func() []pod.Attachment
	HostLink    string                                // Weft's own link, with addresses of Weft's pools
	Tell        func(at *pod.Attachment, text string) // is called when a conflict begins; may be nil
	Health      *health.Conditions
	Log         *slog.Logger
}

// Watcher follows the addresses of the node's links. Read is for the start of the agent, before Run.
type Watcher struct {
	Config

	changed chan struct{} // holds a token if addresses of the node changed
	pods    chan struct{} // holds a token if attachments changed

	links  map[netip.Addr]string // the links with the addresses, as read last
	failed string                // why the last read failed, as logged
	known  map[conflict]bool     // as reported last
}

// conflict is an address that an interface of a pod and a link of the node have.
type conflict struct {
	key     pod.Key
	name    string // of the pod
	iface   string
	address netip.Addr
	link    string
}

// New returns a watcher that has not read yet.
func New(c Config) *Watcher {
	c.Health.Advise(health.NodeAddresses)
	return &Watcher{
		Config:  c,
		changed: make(chan struct{}, 1),
		pods:    make(chan struct{}, 1),
		known:   make(map[conflict]bool),
	}
}

// Observe takes what happened to an attachment. It does not block.
func (w *Watcher) Observe(o podmanager.Outcome) {
	if o.Happening != podmanager.Failed {
		poke(w.pods)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has a token
	}
}

// Run reads the addresses again at each notification of the kernel, and from time to time, until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.subscribe(ctx) })
	group.Go(func() error { return w.follow(ctx) })
	return group.Wait()
}

// subscribe receives notifications, and subscribes again after an error.
func (w *Watcher) subscribe(ctx context.Context) error {
	watch := func(ctx context.Context) error {
		return linux.WatchNodeAddresses(ctx, func() { poke(w.changed) })
	}
	pauses := retry.Pauses(shortestPause, longestPause)
	return retry.Keep(ctx, pauses, watch, func(err error, after time.Duration) {
		w.Log.Warn("changes of the node's addresses are not notified, subscribing again", "after", after, "err", err)
	})
}

func (w *Watcher) follow(ctx context.Context) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.changed:
			w.Read()
		case <-tick.C:
			w.Read()
		case <-w.pods:
		}
		w.report()
		if err := retry.Pause(ctx, readPause); err != nil {
			return err
		}
	}
}

// Read reads the addresses of the node once, and excludes them from the pools of pods. After an error the addresses of
// the last read count too.
func (w *Watcher) Read() {
	links, err := linux.NodeAddresses()
	maps.DeleteFunc(links, func(_ netip.Addr, link string) bool { return link == w.HostLink })
	if err != nil {
		if errors.Is(err, linux.ErrChanging) {
			poke(w.changed) // soon again
		}
		both := make(map[netip.Addr]string)
		maps.Copy(both, w.links)
		maps.Copy(both, links)
		links = both
	}
	w.noteFailure(err)
	if maps.Equal(links, w.links) {
		return
	}
	w.links = links
	by := make(map[netip.Addr]string, len(links))
	for a, link := range links {
		by[a] = "link " + link + " of this node"
	}
	w.Occupy(by)
}

// noteFailure logs why addresses are not read, once.
func (w *Watcher) noteFailure(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.failed {
		w.Log.Warn("addresses of the node not read completely, retrying", "err", err)
	}
	w.failed = text
}

// report sets the condition by the pods of now, and tells of conflicts that are new.
func (w *Watcher) report() {
	found := make(map[conflict]bool)
	for _, at := range w.Attachments() {
		for _, c := range w.conflictsOf(&at) {
			found[c] = true
			if w.known[c] {
				continue
			}
			w.Log.Warn("the node has the address of a pod", "pod", at.Pod.String(), "container", at.Key.ContainerID,
				"interface", c.iface,
				"address", c.address.String(), "link", c.link)
			if w.Tell != nil {
				w.Tell(&at, c.String())
			}
		}
	}
	for c := range w.known {
		if !found[c] {
			w.Log.Info("the node does not have the address of a pod any more", "pod", c.name, "interface", c.iface,
				"address", c.address.String(), "link", c.link)
		}
	}
	w.known = found
	w.Health.Set(health.NodeAddresses, len(found) == 0, summary(found))
}

// conflictsOf lists the addresses of an attachment that the node has. Only the network default has routes to the node.
func (w *Watcher) conflictsOf(at *pod.Attachment) (list []conflict) {
	for _, i := range at.Interfaces {
		if i.Network != "" {
			continue
		}
		for _, p := range i.Addresses {
			if link, has := w.links[p.Addr()]; has {
				list = append(list, conflict{
					key:     at.Key,
					name:    at.Name(),
					iface:   i.Name,
					address: p.Addr(),
					link:    link,
				})
			}
		}
	}
	return list
}

// String describes the conflict.
func (c conflict) String() string {
	return fmt.Sprintf("%s: address %s of interface %s is also on link %s of the node", c.name, c.address, c.iface,
		c.link)
}

// summary is the message of the condition.
func summary(found map[conflict]bool) string {
	if len(found) == 0 {
		return ""
	}
	var texts []string
	for c := range found {
		texts = append(texts, c.String())
	}
	slices.Sort(texts)
	if more := len(texts) - mostNamed; more > 0 {
		texts = append(texts[:mostNamed:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ") +
		": packets of the node to the pod do not reach it; remove the address from the link, or delete the pod"
}
