package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"
)

// maxPriority is the largest priority of an AdminNetworkPolicy, which comes last.
const maxPriority = 1000

// OfAdminNetworkPolicy converts an AdminNetworkPolicy. The policy is valid with an error, too: see [InvalidError].
func OfAdminNetworkPolicy(o *adminv1.AdminNetworkPolicy) (Policy, error) {
	c := adminConversion{Policy: Policy{Ref: Ref{Kind: Admin, Name: o.Name}, Priority: int(o.Spec.Priority)}}
	spec := &o.Spec
	size := MeasureAdmin(spec)
	if c.Oversize = size.Oversize(); !c.Oversize.IsZero() {
		kept := AdminWithoutRules(spec)
		spec = &kept
	}
	c.setSubject(spec.Subject)
	if spec.Priority < 0 || spec.Priority > maxPriority {
		c.isUnsure = true
		c.invalid.add("priority", fmt.Errorf("%d is not a number from 0 to %d", spec.Priority, maxPriority))
	}
	for n, r := range spec.Ingress {
		c.add(Ingress, n, adminRule{r.Name, string(r.Action), ingressPeers(r.From), r.Ports})
	}
	for n, r := range spec.Egress {
		c.add(Egress, n, adminRule{r.Name, string(r.Action), r.To, r.Ports})
	}
	return c.Policy, c.invalid.of(c.Ref)
}

// OfBaselineAdminNetworkPolicy converts a BaselineAdminNetworkPolicy. The policy is valid with an error, too: see
// [InvalidError].
func OfBaselineAdminNetworkPolicy(o *adminv1.BaselineAdminNetworkPolicy) (Policy, error) {
	c := adminConversion{Policy: Policy{Ref: Ref{Kind: Baseline, Name: o.Name}}}
	spec := &o.Spec
	size := MeasureBaseline(spec)
	if c.Oversize = size.Oversize(); !c.Oversize.IsZero() {
		kept := BaselineWithoutRules(spec)
		spec = &kept
	}
	c.setSubject(spec.Subject)
	for n, r := range spec.Ingress {
		c.add(Ingress, n, adminRule{r.Name, string(r.Action), ingressPeers(r.From), r.Ports})
	}
	for n, r := range spec.Egress {
		c.add(Egress, n, adminRule{r.Name, string(r.Action), baselinePeers(r.To), r.Ports})
	}
	return c.Policy, c.invalid.of(c.Ref)
}

func ingressPeers(list []adminv1.AdminNetworkPolicyIngressPeer) []adminv1.AdminNetworkPolicyEgressPeer {
	var peers []adminv1.AdminNetworkPolicyEgressPeer
	for _, o := range list {
		peers = append(peers, adminv1.AdminNetworkPolicyEgressPeer{Namespaces: o.Namespaces, Pods: o.Pods})
	}
	return peers
}

func baselinePeers(list []adminv1.BaselineAdminNetworkPolicyEgressPeer) []adminv1.AdminNetworkPolicyEgressPeer {
	var peers []adminv1.AdminNetworkPolicyEgressPeer
	for _, o := range list {
		peers = append(peers, adminv1.AdminNetworkPolicyEgressPeer{
			Namespaces: o.Namespaces, Pods: o.Pods, Nodes: o.Nodes, Networks: o.Networks,
		})
	}
	return peers
}

// adminRule has the fields that the four types of rules of AdminNetworkPolicies and BaselineAdminNetworkPolicies share.
type adminRule struct {
	name, action string
	peers        []adminv1.AdminNetworkPolicyEgressPeer
	ports        *[]adminv1.AdminNetworkPolicyPort
}

// adminConversion is an AdminNetworkPolicy or BaselineAdminNetworkPolicy that is being converted.
type adminConversion struct {
	Policy

	invalid  faults
	isUnsure bool // the policy may be about other pods, or at another place among the policies
}

func (c *adminConversion) setSubject(o adminv1.AdminNetworkPolicySubject) {
	namespaces, pods, err := selectorsOf(o.Namespaces, o.Pods)
	if err != nil {
		c.isUnsure = true
		c.invalid.add("subject", err)
	}
	c.Subject = newSelector("", namespaces, pods)
}

// selectorsOf returns selectors of all namespaces and pods that may be selected. The error names the invalid parts.
func selectorsOf(namespaces *metav1.LabelSelector, pods *adminv1.NamespacedPod) (ns, ps labels.Selector, err error) {
	switch {
	case (namespaces == nil) == (pods == nil):
		return labels.Everything(), labels.Everything(), errors.New("it must select either namespaces or pods")
	case namespaces != nil:
		ns, err = atLeast(namespaces)
		return ns, labels.Everything(), err
	}
	ns, errNamespaces := atLeast(&pods.NamespaceSelector)
	ps, errPods := atLeast(&pods.PodSelector)
	return ns, ps, errors.Join(errNamespaces, errPods)
}

var actions = map[string]Action{
	string(adminv1.AdminNetworkPolicyRuleActionAllow): Allow, string(adminv1.AdminNetworkPolicyRuleActionDeny): Deny,
	string(adminv1.AdminNetworkPolicyRuleActionPass): Pass,
}

// add adds the n-th rule of a direction.
func (c *adminConversion) add(d Direction, n int, o adminRule) {
	r := Clause{Name: fmt.Sprintf("%s[%d]", d, n), AnyPort: o.ports == nil}
	if o.name != "" {
		r.Name += " " + o.name
	}
	action, errAction := ofAction(c.Kind, o.action)
	r.Action = action
	errs := []error{r.setPeers(o.peers), r.setPorts(o.ports)}
	isUnderstood := errors.Join(errs...) == nil
	c.invalid.add(r.Name, errors.Join(append(errs, errAction)...))
	switch {
	case r.Action == Allow && (!isUnderstood || c.isUnsure):
		return
	case !isUnderstood:
		r = Clause{Name: r.Name, Action: Deny, Any: true, AnyPort: true}
	case c.isUnsure:
		r.Action = Deny
	}
	c.Rules[d] = append(c.Rules[d], r.ofUnknown()...)
}

// ofUnknown returns the rule with its meaning for pods of namespaces with unknown labels: the rule denies them if it
// may deny them or leave them to other policies, and it allows none of them.
func (r *Clause) ofUnknown() []Clause {
	switch r.Action {
	case Deny:
		return []Clause{r.reading(alsoUnknown)}
	case Pass:
		denied := r.reading(onlyUnknown)
		denied.Action = Deny
		denied.Name += " (of a namespace that is not known yet)"
		denied.Peers = slices.DeleteFunc(denied.Peers, func(p Peer) bool {
			return p.Pods == nil || p.Pods.unknown != onlyUnknown
		})
		if len(denied.Peers) > 0 {
			return []Clause{denied, *r}
		}
	}
	return []Clause{*r}
}

// reading returns a copy of the rule with selectors that treat unknown namespaces in the given way.
func (r *Clause) reading(u unknownNamespaces) Clause {
	is := *r
	is.Peers = slices.Clone(r.Peers)
	for n, p := range is.Peers {
		if p.Pods != nil {
			s := p.Pods.with(u)
			is.Peers[n].Pods = &s
		}
	}
	return is
}

// ofAction parses the action of a rule of a kind of policy. An unknown action is read as Deny.
func ofAction(k Kind, text string) (Action, error) {
	a, known := actions[text]
	if !known || a == Pass && k != Admin {
		return Deny, fmt.Errorf("unknown action %q", text)
	}
	return a, nil
}

func (r *Clause) setPeers(list []adminv1.AdminNetworkPolicyEgressPeer) error {
	if len(list) == 0 {
		return errors.New("a rule without peers")
	}
	var errs []error
	for _, o := range list {
		peer, err := ofAdminPeer(o)
		errs = append(errs, err)
		r.Peers = append(r.Peers, peer)
	}
	return errors.Join(errs...)
}

func (r *Clause) setPorts(list *[]adminv1.AdminNetworkPolicyPort) error {
	if list == nil {
		return nil
	}
	if len(*list) == 0 {
		return errors.New("an empty list of ports")
	}
	var errs []error
	for _, o := range *list {
		port, err := ofAdminPort(o)
		errs = append(errs, err)
		r.Ports = append(r.Ports, port)
	}
	return errors.Join(errs...)
}

// count returns how many are true.
func count(list ...bool) int {
	n := 0
	for _, is := range list {
		if is {
			n++
		}
	}
	return n
}

func ofAdminPeer(o adminv1.AdminNetworkPolicyEgressPeer) (Peer, error) {
	switch {
	case len(o.DomainNames) > 0:
		return Peer{}, errors.New("domainNames are not supported")
	case count(o.Nodes != nil, len(o.Networks) > 0, o.Namespaces != nil, o.Pods != nil) != 1:
		return Peer{}, errors.New("a peer without exactly one of namespaces, pods, nodes and networks")
	case o.Nodes != nil:
		nodes, err := metav1.LabelSelectorAsSelector(o.Nodes)
		return Peer{Nodes: quick(nodes)}, err
	case len(o.Networks) > 0:
		return ofNetworks(o.Networks)
	}
	namespaces, pods, err := selectorsOf(o.Namespaces, o.Pods)
	s := newSelector("", namespaces, pods)
	return Peer{Pods: &s}, err
}

func ofNetworks(list []adminv1.CIDR) (peer Peer, err error) {
	for _, cidr := range list {
		p, err := ParsePrefix(string(cidr))
		if err != nil {
			return peer, fmt.Errorf("networks: %w", err)
		}
		peer.Prefixes = append(peer.Prefixes, p)
	}
	return peer, nil
}

func ofAdminPort(o adminv1.AdminNetworkPolicyPort) (p Port, err error) {
	switch {
	case count(o.PortNumber != nil, o.PortRange != nil, o.NamedPort != nil) != 1:
		return p, errors.New("a port without exactly one of number, range and name")
	case o.PortNumber != nil:
		if p.Protocol, err = ParseProtocol(string(o.PortNumber.Protocol)); err != nil {
			return p, err
		}
		p.Ports, err = ofRange(o.PortNumber.Port, o.PortNumber.Port)
	case o.PortRange != nil:
		if p.Protocol, err = ParseProtocol(string(cmp.Or(o.PortRange.Protocol, corev1.ProtocolTCP))); err != nil {
			return p, err
		}
		p.Ports, err = ofRange(o.PortRange.Start, o.PortRange.End)
	case *o.NamedPort != "":
		p.Name = *o.NamedPort
	default:
		err = errors.New("a named port without name")
	}
	return p, err
}
