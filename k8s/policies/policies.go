// Package policies watches what network policies depend on, for all nodes, and has the rules that follow for this
// node's pods.
package policies

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weftnet/weft/k8s/api/adminpolicy"
	"github.com/weftnet/weft/k8s/api/npwg"
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
	config  Config
	changed chan struct{}
	dirty   chan struct{} // the compiler has work
	clients chan struct{} // closed when SetClients was called
	watches *informer.Group

	pods          *informer.Informer[*corev1.Pod]
	namespaces    *informer.Informer[*corev1.Namespace]
	nodes         *informer.Informer[*corev1.Node]
	networkPolicy *informer.Informer[*networkingv1.NetworkPolicy]
	multi         *informer.Informer[*npwg.MultiNetworkPolicy]
	admin         *informer.Informer[*adminpolicy.AdminNetworkPolicy]
	services      *informer.Informer[*corev1.Service]
	slices        *informer.Informer[*discoveryv1.EndpointSlice]
	baseline      *informer.Informer[*adminpolicy.BaselineAdminNetworkPolicy]

	mu     sync.Mutex
	engine *policy.Engine
	synced bool // the API server has shown all objects once
	node   []netip.Prefix

	withoutClients []string // why endpoints of Services do not see the clients of a family

	departed departed
	networks Networks
	owners   *owners // of the blocks in networks; nil: none is known
	claims   claims

	shownNamespaces map[string]bool
	deniedNow       []policy.Denied
	attached        map[policy.ID]map[pod.Key]*pod.Attachment // of this node
	// pods that no watch had shown when their attachment was added
	asked   map[policy.ID]asked
	pending pending // attached pods with rules that Changed has not returned
	// attached pods that are pending when they are compiled, whatever their rules
	untold  map[policy.ID]bool
	link    []netip.Prefix        // the addresses of the node's link to the dataplane
	invalid map[policy.Ref]string // the errors of a policy, as logged
	room    *room
}

// New knows no object. It sends no request before Run.
func New(c Config) *Policies {
	c.Question = cmp.Or(c.Question, 3*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Policies{
		config:   c,
		changed:  make(chan struct{}, 1),
		dirty:    make(chan struct{}, 1),
		clients:  make(chan struct{}),
		watches:  informer.NewGroup(c.Log),
		engine:   policy.NewEngine(policy.Config{}),
		attached: make(map[policy.ID]map[pod.Key]*pod.Attachment),
		asked:    make(map[policy.ID]asked),
		pending:  make(pending),
		invalid:  make(map[policy.Ref]string), untold: make(map[policy.ID]bool), shownNamespaces: make(map[string]bool),
		room: newRoom(policy.MaxNamespaceParts),
	}
	p.watch()
	p.watchServices()
	return p
}

// watch adds the informers. MultiNetworkPolicies and AdminNetworkPolicies are not installed everywhere.
func (p *Policies) watch() {
	g := p.watches
	c := p.config.Client
	p.pods = informer.Add(g, "pods of all nodes", c.Pods(""), informer.Options[*corev1.Pod]{
		Lighten: lightenPod, Same: samePod,
	})
	p.pods.OnObject(func(o *corev1.Pod) { p.on(func(string) { p.refreshPod(o) })("") })
	p.namespaces = informer.Add(g, "namespaces", c.Namespaces(), informer.Options[*corev1.Namespace]{
		Lighten: lightenNamespace, Changed: p.on(p.refreshNamespace),
	})
	p.nodes = informer.Add(g, "nodes", c.Nodes(), informer.Options[*corev1.Node]{
		Lighten: lightenNode, Same: sameNode, Changed: p.on(p.refreshNode),
	})
	p.networkPolicy = informer.Add(g, "network policies", c.FullNetworkPolicies(),
		informer.Options[*networkingv1.NetworkPolicy]{
			Lighten: lightenNetworkPolicy, Changed: p.on(p.refreshNetworkPolicy),
		})
	p.multi = informer.Add(g, "multi network policies", c.MultiNetworkPolicies(),
		informer.Options[*npwg.MultiNetworkPolicy]{
			Optional: true, Lighten: lightenMulti, Changed: p.on(p.refreshMulti),
		})
	p.admin = informer.Add(g, "admin network policies", c.AdminNetworkPolicies(),
		informer.Options[*adminpolicy.AdminNetworkPolicy]{
			Optional: true, Lighten: lightenAdmin, Changed: p.on(p.refreshAdmin),
		})
	p.baseline = informer.Add(g, "baseline admin network policies", c.BaselineAdminNetworkPolicies(),
		informer.Options[*adminpolicy.BaselineAdminNetworkPolicy]{
			Optional: true, Lighten: lightenBaseline, Changed: p.on(p.refreshBaseline),
		})
}

// on returns f with the lock. The compiler gets work once all objects are known.
func (p *Policies) on(f func(key string)) func(key string) {
	return func(key string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		f(key)
		if p.synced {
			poke(p.dirty)
		}
	}
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// NotifyChanged receives a token when rules may have changed since the last call of Changed. It has one reader.
func (p *Policies) NotifyChanged() <-chan struct{} { return p.changed }

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
	refreshAll(p.namespaces, p.locked(p.refreshNamespace))
	refreshAll(p.nodes, p.locked(p.refreshNode))
	refreshAll(p.networkPolicy, p.locked(p.refreshNetworkPolicy))
	refreshAll(p.multi, p.locked(p.refreshMulti))
	refreshAll(p.admin, p.locked(p.refreshAdmin))
	refreshAll(p.baseline, p.locked(p.refreshBaseline))
	refreshAll(p.pods, p.locked(func(key string) { p.refresh(idOf(key)) }))
	refreshAll(p.services, p.locked(p.refreshService)) // endpoints depend on pods
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = true
	for id := range p.attached {
		p.refresh(id)
		p.untold[id] = true
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
	if p.synced {
		poke(p.dirty)
	}
}

// WithoutClients lists why endpoints of Services, and so ingress policies, do not see the clients of a family.
func (p *Policies) WithoutClients() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withoutClients
}

func refreshAll[T interface {
	metav1.Object
	runtime.Object
}](in *informer.Informer[T], refresh func(key string)) {
	for _, o := range in.All() {
		key := o.GetName()
		if o.GetNamespace() != "" {
			key = o.GetNamespace() + "/" + key
		}
		refresh(key)
	}
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
	_, known := p.shown(own, id.UID)
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
	p.asked[own] = asked{uid: string(o.UID), pod: lightenPod(o)}
}

// Forget forgets what Learn read for an ADD that failed, unless the pod has an attachment.
func (p *Policies) Forget(id pod.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := policy.ID{Namespace: id.Namespace, Name: id.Name}
	if p.attached[own] == nil {
		delete(p.asked, own)
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
	if isNew {
		p.attached[id] = make(map[pod.Key]*pod.Attachment)
	}
	own := *a
	own.Interfaces = slices.Clone(a.Interfaces)
	p.attached[id][a.Key] = &own
	p.setNode(node)
	p.refresh(id)
	if p.synced {
		_, changed := p.engine.CompilePod(id) // other pods with this one as a peer do not delay it
		p.told(id, changed)
		poke(p.dirty)
	}
	if isNew {
		delete(p.pending, id)
		delete(p.untold, id)
	}
	if !p.synced {
		return p.closed(&own), false
	}
	return p.rulesOf(id), true
}

// closed returns the rules of an unknown attachment.
func (p *Policies) closed(a *pod.Attachment) map[string]policy.Lists {
	rules := make(map[string]policy.Lists)
	for _, i := range a.Interfaces {
		rules[i.Name] = policy.Closed(p.node)
	}
	return rules
}

// Dismiss removes an attachment. An unknown one is no error.
func (p *Policies) Dismiss(a *pod.Attachment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := policy.ID{Namespace: a.Pod.Namespace, Name: a.Pod.Name}
	delete(p.attached[id], a.Key)
	if len(p.attached[id]) == 0 {
		delete(p.attached, id)
		delete(p.asked, id)
		delete(p.pending, id)
		delete(p.untold, id)
	}
	p.refresh(id)
	if p.synced {
		poke(p.dirty)
	}
}

// Changed returns the rules of attached pods that may have changed since the last call, by "namespace/name"; no rules
// before all objects are known. If they are many, the next calls return the rest.
func (p *Policies) Changed(node []netip.Prefix) map[string]map[string]policy.Lists {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.synced {
		return nil
	}
	p.setNode(node)
	sizes := make(map[policy.ID]int, len(p.pending))
	for id := range p.pending {
		sizes[id] = sizeOf(p.rulesOf(id))
	}
	now := p.pending.take(sizes)
	changed := make(map[string]map[string]policy.Lists, len(now))
	for _, id := range now {
		changed[id.String()] = p.rulesOf(id)
	}
	if len(p.pending) > 0 {
		poke(p.changed)
	}
	return changed
}

// sizeOf returns the number of rules in the dataplane for lists, of which no other pod may have one.
func sizeOf(rules map[string]policy.Lists) int {
	n := 0
	for _, both := range rules {
		for _, l := range both {
			if l != nil {
				n += l.Size(false)
			}
		}
	}
	return n
}

// told notes that an attached pod was compiled.
func (p *Policies) told(id policy.ID, changed bool) {
	if p.attached[id] != nil && (changed || p.untold[id]) {
		p.pending.add(id)
	}
	delete(p.untold, id)
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
	p.setNode(p.link)
	for id := range p.untold {
		if !p.engine.IsDirty(id) { // unknown, or compiled already
			p.told(id, true)
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
		p.told(c.ID, changed)
	}
	return some
}

// announce wakes the reader of NotifyChanged if rules changed.
func (p *Policies) announce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) > 0 {
		poke(p.changed)
	}
}

// rulesOf returns the rules of an attached pod. An unknown pod is closed, and a pod in a namespace with unknown
// labels.
func (p *Policies) rulesOf(id policy.ID) map[string]policy.Lists {
	lists, known := p.engine.ListsOf(id)
	rules := make(map[string]policy.Lists)
	for _, a := range p.attached[id] {
		maps.Copy(rules, p.closed(a))
	}
	isOpen := p.synced && known && p.shownNamespaces[id.Namespace]
	if !isOpen {
		return rules
	}
	for _, a := range p.newestOf(id) { // an interface of a predecessor may have the same name
		for _, i := range a.Interfaces {
			delete(rules, i.Name)
		}
	}
	maps.Copy(rules, lists)
	return rules
}

// setNode sets the addresses by which the node reaches its pods: the addresses of its link to the dataplane, and its
// own.
func (p *Policies) setNode(link []netip.Prefix) {
	p.link = link
	list := slices.Clone(link)
	if n, known := p.nodes.One(p.config.Node); known {
		list = append(list, p.addressesOf(n)...)
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	list = slices.Compact(list)
	denied := p.denied(list)
	if !slices.Equal(list, p.node) || !slices.Equal(denied, p.deniedNow) {
		p.node = list
		p.deniedNow = denied
		p.engine.SetConfig(policy.Config{Nodes: list, Denied: denied})
		poke(p.dirty)
	}
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
