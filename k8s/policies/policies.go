// Package policies watches what network policies depend on, for all nodes, and has the rules that follow for this
// node's pods.
package policies

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// Config configures [Policies]. Node and Client are required.
type Config struct {
	Node      string // name of this node
	Client    *client.Client
	Protected Protected // what pods may not contact
	// TrustExternalIPs makes the external IPs of Services addresses of the Services. Without it the rules about the
	// plain addresses decide: any user who may create Services chooses external IPs.
	TrustExternalIPs bool
	Question         time.Duration // bounds a request that a pod waits for; default 3 s
	Log              *slog.Logger
}

// Policies has the rules of this node's pods. Its methods may be called from any goroutine.
type Policies struct {
	shared

	dirty   chan struct{} // the compiler has work
	clients chan struct{} // closed when SetClients was called

	// mu guards these, with all that they have: also the engine.
	mu             sync.Mutex
	synced         bool     // the API server has shown all objects once
	withoutClients []string // why endpoints of Services do not see the clients of a family
	attached       attachments
	publisher      *publisher
	rules          rules
	feeds
}

// New knows no object. It sends no request before Run.
func New(c Config) *Policies {
	c.Question = cmp.Or(c.Question, 3*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Policies{
		shared: shared{
			config:  c,
			watches: informer.NewGroup(c.Log),
			engine:  policy.NewEngine(policy.Config{}),
		},
		dirty:    make(chan struct{}, 1),
		clients:  make(chan struct{}),
		attached: make(attachments),
	}
	p.on = p.changing
	p.publisher = newPublisher(p.attached)
	p.feeds = newFeeds(&p.shared, p.publisher)
	p.rules = rules{engine: p.engine, attached: p.attached, nodes: p.nodes, namespaces: p.namespaces}
	return p
}

// changing returns f with the lock. The compiler gets work once all objects are known.
func (p *Policies) changing(f func(key string)) func(key string) {
	return p.locked(func(key string) {
		f(key)
		p.wake()
	})
}

// wake gives the compiler work, once all objects are known.
func (p *Policies) wake() {
	if p.synced {
		poke(p.dirty)
	}
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// NotifyChanged receives a token when rules may have changed since the last call of Changed. It has one reader.
func (p *Policies) NotifyChanged() <-chan struct{} { return p.publisher.changed }

// Run watches until ctx ends. While the API server does not answer, the last known rules stay.
func (p *Policies) Run(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return p.watches.Run(ctx) })
	running.Go(func() error { return p.compileAll(ctx) })
	running.Go(func() error {
		err := p.watches.Await(ctx, func(missing []string) {
			p.config.Log.Warn("the API server has not shown all policies yet, keeping the last rules",
				"missing", missing)
		})
		if err != nil {
			return err
		}
		select { // rules without client addresses would end connections by Services
		case <-ctx.Done():
			return ctx.Err()
		case <-p.clients:
		}
		p.begin()
		return nil
	})
	return running.Wait()
}

// begin gives the engine all objects, and makes the rules of all attachments current. Between two objects it releases
// the lock.
func (p *Policies) begin() {
	p.feeds.begin(p.locked)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = true
	for id := range p.attached {
		p.pods.refresh(id)
		p.publisher.opened(id)
	}
	p.config.Log.Info("network policies are known", "attached", len(p.attached))
	poke(p.dirty)
}

// locked returns f with the lock.
func (p *Policies) locked(f func(key string)) func(key string) {
	return func(key string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		f(key)
	}
}

// SetNetworks replaces the known networks.
func (p *Policies) SetNetworks(n Networks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.setNetworks(n) {
		p.wake()
	}
}

// SetClients sets the client addresses of pods, and the reasons for families without one. Rules are not known before
// the first call.
func (p *Policies) SetClients(m policy.ClientMap, why []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engine.SetClients(m)
	p.withoutClients = why
	select {
	case <-p.clients:
	default:
		close(p.clients)
	}
	p.wake()
}

// WithoutClients lists why endpoints of Services, and so ingress policies, do not see the clients of a family.
func (p *Policies) WithoutClients() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withoutClients
}

// Synced reports whether all objects are known. Until then the rules of an earlier run hold, and new pods are closed.
func (p *Policies) Synced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.synced
}

// Failure returns why the rules may be outdated; nil if all watches are established.
func (p *Policies) Failure() error { return p.watches.Failure() }

func idOf(key string) policy.ID {
	namespace, name, _ := strings.Cut(key, "/")
	return policy.ID{Namespace: namespace, Name: name}
}

// Learn reads the pod of an ADD from the API server, if no watch has shown it, or if the watch may have shown its
// predecessor: without the UID they cannot be told apart. Without an answer the pod is closed until a watch shows it.
func (p *Policies) Learn(ctx context.Context, id pod.ID) {
	if id.IsZero() {
		return
	}
	own := policy.ID{Namespace: id.Namespace, Name: id.Name}
	p.mu.Lock()
	_, known := p.pods.shown(own, id.UID)
	p.mu.Unlock()
	if known && id.UID != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Question)
	defer cancel()
	o, err := p.config.Client.Pods(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if err != nil {
		p.config.Log.Warn("labels of a new pod are unknown, denying its connections until a watch shows it",
			"pod", id.String(), "err", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods.asked[own] = asked{uid: string(o.UID), pod: lightenPod(o)}
}

// Forget forgets what Learn read for an ADD that failed, unless the pod has an attachment.
func (p *Policies) Forget(id pod.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := policy.ID{Namespace: id.Namespace, Name: id.Name}
	if p.attached[own] == nil {
		delete(p.pods.asked, own)
	}
}

// Admit adds an attachment, or replaces it, and returns the rules of its pod by interface. Rules of a pod that had an
// attachment before are still returned by Changed: the event that calls Admit may fail. Until all objects are known
// they are the rules of the attachment only, which is closed, and isWhole is false: interfaces that the pod has already
// keep their rules.
func (p *Policies) Admit(a *pod.Attachment, node []netip.Prefix) (rules map[string]policy.Lists, isWhole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := policy.ID{Namespace: a.Pod.Namespace, Name: a.Pod.Name}
	isNew := p.attached[id] == nil
	own := p.attached.add(id, a)
	p.setLink(node)
	p.pods.refresh(id)
	if p.synced {
		_, changed := p.engine.CompilePod(id) // other pods with this one as a peer do not delay it
		p.publisher.compiled(id, changed)
		poke(p.dirty)
	}
	if isNew {
		p.publisher.forget(id)
	}
	if !p.synced {
		return p.rules.closed(own), false
	}
	return p.rules.of(id), true
}

// Dismiss removes an attachment. An unknown one is no error.
func (p *Policies) Dismiss(a *pod.Attachment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := policy.ID{Namespace: a.Pod.Namespace, Name: a.Pod.Name}
	if p.attached.remove(id, a.Key) {
		delete(p.pods.asked, id)
		p.publisher.forget(id)
	}
	p.pods.refresh(id)
	p.wake()
}

// Changed returns the rules of attached pods that may have changed since the last call, by "namespace/name"; no rules
// before all objects are known. If they are many, the next calls return the rest.
func (p *Policies) Changed(node []netip.Prefix) map[string]map[string]policy.Lists {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.synced {
		return nil
	}
	p.setLink(node)
	return p.publisher.take(p.rules.of)
}

// setLink sets the addresses of the node's link to the dataplane.
func (p *Policies) setLink(link []netip.Prefix) {
	if p.nodes.setLink(link) {
		poke(p.dirty)
	}
}

// compilerPause is how long changed rules of some pods may wait for the rules of other pods, so that few events apply
// many changes.
const compilerPause = 20 * time.Millisecond

// compileAll compiles pods with rules that may have changed, until ctx ends. It releases the lock after each pod, so an
// ADD waits for one pod at most.
func (p *Policies) compileAll(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.dirty:
		}
		p.settle()
		began := time.Now()
		for p.compileNext() {
			if time.Since(began) > compilerPause {
				p.announce()
				began = time.Now()
			}
		}
		p.announce()
	}
}

// settle notes what rules depend on beside the objects that watches show.
func (p *Policies) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.synced {
		return
	}
	p.setLink(p.nodes.link)
	for id := range p.publisher.untold {
		if !p.engine.IsDirty(id) { // unknown, or compiled already
			p.publisher.compiled(id, true)
		}
	}
}

// compileNext compiles one pod. It returns false if there was none. The engine is not complete before all objects are
// known.
func (p *Policies) compileNext() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.synced {
		return false
	}
	c, changed, some := p.engine.CompileNext()
	if some {
		p.publisher.compiled(c.ID, changed)
	}
	return some
}

// announce wakes the reader of NotifyChanged if rules changed.
func (p *Policies) announce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publisher.announce()
}

// Excess lists the policies and Services that are not applied completely to pods of this node because of a limit, by
// name.
func (p *Policies) Excess() []policy.Excess {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.Excess()
}

// ExcessOf lists those that are not applied completely to a pod.
func (p *Policies) ExcessOf(id policy.ID) []policy.Excess {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.engine.ExcessOf(id))
}

// Explain returns the decision of the policies about a connection. It fails before all objects are known.
func (p *Policies) Explain(from, to policy.End, protocol uint8, port uint16) (policy.Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.synced {
		return policy.Verdict{}, errNotSynced
	}
	return p.engine.Explain(from, to, protocol, port)
}

// Invalid lists the invalid parts of policies, one line for each policy. The invalid parts deny connections.
func (p *Policies) Invalid() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.policies.reasons()
}
