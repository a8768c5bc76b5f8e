// Package chain preserves what later plugins of a CNI chain, such as tuning and sbr, change of an attachment's
// interfaces.
package chain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

const (
	// openTime is how long after an ADD later plugins of the chain may change its interfaces. Runtimes do not report
	// the end of the last plugin; most plugins need some milliseconds.
	openTime = 10 * time.Second
	// pollPeriod is the interval of the polls for chains to end.
	pollPeriod = time.Second
)

// Tracker tracks the chains of attachments. The state of the interfaces at the first CHECK, or openTime after the ADD,
// is the result of the chain, and is durable:
//
//	ADD --> open: MTU and moved routes may change --> ended: they stay as they are, any other state is drift
type Tracker struct {
	Later *linux.ChainChanges // the changes that the kernel's kinds accept

	config  Config
	results *statefile.Buffer[Result]

	mu    sync.Mutex
	open  map[pod.Key]time.Time // when they end
	ended map[pod.Key]map[string]linux.LinkChanges
}

// Config has the dependencies of a Tracker.
type Config struct {
	State   *statefile.File
	View    func() kvscheduler.View
	Objects func(*pod.Attachment) []string // keys of all objects that an attachment needs
	Log     *slog.Logger
}

// Result is the result of a chain, by the name of the interface in the dataplane.
type Result struct {
	Key       pod.Key                      `json:"key"`
	Changes   map[string]linux.LinkChanges `json:"changes,omitempty"`
	isRemoved bool                         // the attachment is
}

// New returns a tracker without chains.
func New(c Config) *Tracker {
	return &Tracker{
		Later: new(linux.ChainChanges), config: c, results: statefile.NewBuffer(c.State, entries),
		open: make(map[pod.Key]time.Time), ended: make(map[pod.Key]map[string]linux.LinkChanges),
	}
}

func entries(r Result) []eventloop.Saved {
	entry := eventloop.Saved{Bucket: statefile.BucketChains, Key: r.Key.String()}
	if !r.isRemoved {
		entry.Value = r
	}
	return []eventloop.Saved{entry}
}

// Restore takes over the results that earlier runs recorded for these attachments. A chain without a result may have
// ended while no agent ran, so it is open again.
func (t *Tracker) Restore(results []Result, attachments []*pod.Attachment) {
	saved := make(map[pod.Key]Result, len(results))
	for _, r := range results {
		saved[r.Key] = r
	}
	for _, at := range attachments {
		r, hasEnded := saved[at.Key]
		delete(saved, at.Key)
		if !hasEnded {
			t.begin(at, time.Time{})
			continue
		}
		t.ended[at.Key] = r.Changes
		for object, changes := range r.Changes {
			t.Later.Set(object, changes)
		}
	}
	for key := range saved {
		t.results.Add(Result{Key: key, isRemoved: true})
	}
}

// begin permits the changes of later plugins.
func (t *Tracker) begin(at *pod.Attachment, until time.Time) {
	t.open[at.Key] = until
	for _, i := range at.Interfaces {
		if isLinuxEnd(i) {
			t.Later.Set(i.Object, linux.LinkChanges{Open: true})
		}
	}
}

func isLinuxEnd(i pod.Interface) bool { return i.Type == pod.TypeTap || i.Type == pod.TypeVeth }

// Observe follows the attachments.
func (t *Tracker) Observe(o podmanager.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, isOpen := t.open[o.Key]
	_, hasEnded := t.ended[o.Key]
	switch {
	case o.Happening == podmanager.Added && !isOpen && !hasEnded: // repeated for an older sandbox that lost a memif
		t.begin(o.Attachment, time.Now().Add(openTime))
	case o.Happening == podmanager.Changed:
		t.forgetChanged(o)
	case o.Happening == podmanager.Removed:
		delete(t.open, o.Key)
		delete(t.ended, o.Key)
		for _, i := range o.Attachment.Interfaces {
			t.Later.Set(i.Object, linux.LinkChanges{})
		}
		if hasEnded {
			t.results.Add(Result{Key: o.Key, isRemoved: true})
		}
	}
}

// forgetChanged forgets what later plugins changed on interfaces that were removed or replaced.
func (t *Tracker) forgetChanged(o podmanager.Outcome) {
	left := maps.Clone(t.ended[o.Key])
	for _, i := range o.Before.Interfaces {
		isSame := func(now pod.Interface) bool { return reflect.DeepEqual(now, i) }
		if slices.ContainsFunc(o.Attachment.Interfaces, isSame) {
			continue
		}
		t.Later.Set(i.Object, linux.LinkChanges{})
		delete(left, i.Object)
	}
	if len(left) < len(t.ended[o.Key]) {
		t.ended[o.Key] = left
		t.results.Add(Result{Key: o.Key, Changes: left})
	}
}

// End records the current state of an attachment's interfaces as the result of the chain, unless there is a record, and
// returns the MTUs that later plugins set, by interface. A chain stays open if its interfaces cannot be read.
func (t *Tracker) End(at *pod.Attachment) (mtus map[string]int) {
	if t.isOpen(at.Key) {
		changes, err := t.read(at)
		if err == nil {
			t.end(at, changes)
		} else if !errors.Is(err, linux.ErrGone) {
			t.config.Log.Warn("changes of later plugins not read", "pod", at.Pod.String(),
				"container", at.Key.ContainerID, "err", err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	mtus = make(map[string]int)
	for _, i := range at.Interfaces {
		if mtu := t.ended[at.Key][i.Object].MTU; mtu != 0 {
			mtus[i.Name] = mtu
		}
	}
	return mtus
}

func (t *Tracker) isOpen(key pod.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, isOpen := t.open[key]
	return isOpen
}

// read compares the interfaces of an attachment with their desired values.
func (t *Tracker) read(at *pod.Attachment) (map[string]linux.LinkChanges, error) {
	routes := t.routes(at)
	all := make(map[string]linux.LinkChanges)
	for _, i := range at.Interfaces {
		if !isLinuxEnd(i) {
			continue
		}
		changes, err := linux.ReadLinkChanges(wire.Namespace(at.Netns), t.link(i), routes[i.Object])
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", i.Name, err)
		}
		if !changes.IsZero() {
			all[i.Object] = changes
		}
	}
	return all, nil
}

// link returns the link of an interface in the pod.
func (t *Tracker) link(i pod.Interface) linux.PodLink {
	link := linux.PodLink{Name: i.Name, MTU: i.MTU}
	view := t.config.View()
	switch v, _ := view.Desired(kvscheduler.Ref{Kind: wire.KindVeth, Name: i.Object}); v := v.(type) {
	case wire.Veth:
		link.Alias = v.Alias
		link.Veth = true
	default:
		peer, _ := view.Desired(kvscheduler.Ref{Kind: wire.KindTapPeer, Name: i.Object})
		tap, _ := peer.(wire.TapPeer)
		link.Alias = tap.Alias
	}
	return link
}

// routes lists the desired routes in the pod, by interface in the dataplane.
func (t *Tracker) routes(at *pod.Attachment) map[string][]wire.LinuxRoute {
	view := t.config.View()
	routes := make(map[string][]wire.LinuxRoute)
	for _, key := range t.config.Objects(at) {
		ref, err := kvscheduler.ParseRef(key)
		if err != nil || ref.Kind != wire.KindLinuxRoute {
			continue
		}
		v, _ := view.Desired(ref)
		route, isRoute := v.(wire.LinuxRoute)
		on, err := kvscheduler.ParseRef(route.On)
		if isRoute && err == nil && route.Namespace == at.Netns.Path {
			routes[on.Name] = append(routes[on.Name], route)
		}
	}
	return routes
}

func (t *Tracker) end(at *pod.Attachment, changes map[string]linux.LinkChanges) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, isOpen := t.open[at.Key]; !isOpen {
		return // another call was first, or the attachment was removed
	}
	delete(t.open, at.Key)
	t.ended[at.Key] = changes
	t.results.Add(Result{Key: at.Key, Changes: changes})
	for _, i := range at.Interfaces {
		change := changes[i.Object]
		t.Later.Set(i.Object, change)
		if !change.IsZero() {
			t.config.Log.Info("later plugins changed an interface", "pod", at.Pod.String(),
				"container", at.Key.ContainerID,
				"interface", i.Name, "mtu", change.MTU, "tables", fmt.Sprint(change.Tables))
		}
	}
}

// Run ends chains after openTime. Before the first resync the scheduler has no desired values to compare with.
func (t *Tracker) Run(
	ctx context.Context, isStarted func() bool, attachment func(pod.Key) (pod.Attachment, bool),
) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if isStarted() {
			t.endDue(attachment, time.Now())
		}
	}, pollPeriod)
	return ctx.Err()
}

// endDue ends the chains that are due. A chain that cannot be read gets another openTime.
func (t *Tracker) endDue(attachment func(pod.Key) (pod.Attachment, bool), now time.Time) {
	for _, key := range t.due(now) {
		if at, known := attachment(key); known {
			t.End(&at)
		}
	}
}

func (t *Tracker) due(now time.Time) (keys []pod.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, until := range t.open {
		if until.Before(now) {
			keys = append(keys, key)
			t.open[key] = now.Add(openTime)
		}
	}
	return keys
}
