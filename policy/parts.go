package policy

import (
	"fmt"
	"net/netip"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"
)

// All agents convert the policies of all namespaces, and compare them with pods while ADDs wait. The parts of a policy
// bound the memory and the work for that: its rules, peers, ports, networks, the requirements and values of its
// selectors, and the prefixes that remain of a block without its exceptions. A long text counts as several parts.
const (
	// MaxParts is the number of parts of a policy. The rules of a larger one are not read.
	MaxParts = 20_000
	// MaxNamespaceParts is the number of parts of the policies of a namespace, and of those without namespace. The
	// rules of the largest policies are not read.
	MaxNamespaceParts = 100_000
	// maxRequirements is the number of requirements of a selector: each may be compared with all pods.
	maxRequirements = 32
	// maxKeptParts is the number of parts of a selector that is kept of a policy without reading its rules.
	maxKeptParts = 1_000
	// textOfPart is the length of a text that is one part: the longest value of a label.
	textOfPart = 64
)

// Units of an Oversize.
const (
	unitParts          = "parts in one policy"
	unitNamespaceParts = "parts in the policies of a namespace"
	unitRequirements   = "requirements in one selector"
)

// Oversize says which bound the size of a policy exceeds. The zero value: none. Its rules are not read.
type Oversize struct {
	Size  int    `json:"size"`
	Limit int    `json:"limit"`
	Unit  string `json:"unit"`
}

// IsZero reports whether no bound is exceeded.
func (o Oversize) IsZero() bool { return o == Oversize{} }

// OversizeInNamespace returns the Oversize of a policy with this number of parts, if the other policies of its
// namespace leave no room for it.
func OversizeInNamespace(parts int) Oversize {
	return Oversize{Size: parts, Limit: MaxNamespaceParts, Unit: unitNamespaceParts}
}

// Measure is the size of a policy.
type Measure struct {
	Parts        int
	requirements int // of the largest selector
}

// Oversize returns the bound of one policy that the measure exceeds.
func (m *Measure) Oversize() Oversize {
	switch {
	case m.Parts > MaxParts:
		return Oversize{Size: m.Parts, Limit: MaxParts, Unit: unitParts}
	case m.requirements > maxRequirements:
		return Oversize{Size: m.requirements, Limit: maxRequirements, Unit: unitRequirements}
	}
	return Oversize{}
}

// MeasureNetworkPolicy returns the size of the spec of a NetworkPolicy or MultiNetworkPolicy. networks is the
// annotation [AnnotationFor].
func MeasureNetworkPolicy(spec *networkingv1.NetworkPolicySpec, networks string) Measure {
	var m Measure
	m.text(networks)
	m.Parts += strings.Count(networks, ",")
	m.selector(&spec.PodSelector)
	m.Parts += len(spec.PolicyTypes)
	for _, t := range spec.PolicyTypes {
		m.text(string(t))
	}
	for n := range spec.Ingress {
		m.rule(spec.Ingress[n].From, spec.Ingress[n].Ports)
	}
	for n := range spec.Egress {
		m.rule(spec.Egress[n].To, spec.Egress[n].Ports)
	}
	return m
}

// MeasureAdmin returns the size of the spec of an AdminNetworkPolicy.
func MeasureAdmin(spec *adminv1.AdminNetworkPolicySpec) Measure {
	var m Measure
	m.subject(&spec.Subject)
	for n := range spec.Ingress {
		r := &spec.Ingress[n]
		m.adminRule(adminRule{r.Name, string(r.Action), ingressPeers(r.From), r.Ports})
	}
	for n := range spec.Egress {
		r := &spec.Egress[n]
		m.adminRule(adminRule{r.Name, string(r.Action), r.To, r.Ports})
	}
	return m
}

// MeasureBaseline returns the size of the spec of a BaselineAdminNetworkPolicy.
func MeasureBaseline(spec *adminv1.BaselineAdminNetworkPolicySpec) Measure {
	var m Measure
	m.subject(&spec.Subject)
	for n := range spec.Ingress {
		r := &spec.Ingress[n]
		m.adminRule(adminRule{r.Name, string(r.Action), ingressPeers(r.From), r.Ports})
	}
	for n := range spec.Egress {
		r := &spec.Egress[n]
		m.adminRule(adminRule{r.Name, string(r.Action), baselinePeers(r.To), r.Ports})
	}
	return m
}

// text counts a text. A short one belongs to another part.
func (m *Measure) text(s string) { m.Parts += len(s) / textOfPart }

func (m *Measure) selector(s *metav1.LabelSelector) {
	if s == nil {
		return
	}
	requirements := len(s.MatchLabels) + len(s.MatchExpressions)
	m.Parts += 1 + requirements
	m.requirements = max(m.requirements, requirements)
	for key, value := range s.MatchLabels {
		m.text(key)
		m.text(value)
	}
	for n := range s.MatchExpressions {
		e := &s.MatchExpressions[n]
		m.text(e.Key)
		m.text(string(e.Operator))
		m.Parts += len(e.Values)
		for _, value := range e.Values {
			m.text(value)
		}
	}
}

func (m *Measure) rule(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
	m.Parts += 1 + len(peers) + len(ports)
	for n := range peers {
		m.selector(peers[n].PodSelector)
		m.selector(peers[n].NamespaceSelector)
		if peers[n].IPBlock != nil {
			m.block(peers[n].IPBlock)
		}
	}
	for n := range ports {
		if ports[n].Protocol != nil {
			m.text(string(*ports[n].Protocol))
		}
		if ports[n].Port != nil {
			m.text(ports[n].Port.StrVal)
		}
	}
}

// block counts a block, and the prefixes that remain of it, as far as these are needed to know that the policy is too
// large.
func (m *Measure) block(b *networkingv1.IPBlock) {
	m.Parts += len(b.Except)
	m.text(b.CIDR)
	for _, text := range b.Except {
		m.text(text)
	}
	if len(b.Except) == 0 || m.Parts > MaxParts {
		return
	}
	cidr, except, err := parseBlock(b)
	if err != nil {
		return
	}
	difference(cidr, within(cidr, except), func(netip.Prefix) bool {
		m.Parts++
		return m.Parts <= MaxParts
	})
}

func (m *Measure) subject(s *adminv1.AdminNetworkPolicySubject) {
	m.selector(s.Namespaces)
	m.pods(s.Pods)
}

func (m *Measure) pods(p *adminv1.NamespacedPod) {
	if p != nil {
		m.selector(&p.NamespaceSelector)
		m.selector(&p.PodSelector)
	}
}

func (m *Measure) adminRule(r adminRule) {
	m.Parts += 1 + len(r.peers)
	m.text(r.name)
	m.text(r.action)
	for n := range r.peers {
		peer := &r.peers[n]
		m.selector(peer.Namespaces)
		m.pods(peer.Pods)
		m.selector(peer.Nodes)
		m.Parts += len(peer.Networks) + len(peer.DomainNames)
		for _, cidr := range peer.Networks {
			m.text(string(cidr))
		}
		for _, name := range peer.DomainNames {
			m.text(string(name))
		}
	}
	if r.ports == nil {
		return
	}
	m.Parts += len(*r.ports)
	for _, p := range *r.ports {
		if p.NamedPort != nil {
			m.text(*p.NamedPort)
		}
		if p.PortNumber != nil {
			m.text(string(p.PortNumber.Protocol))
		}
		if p.PortRange != nil {
			m.text(string(p.PortRange.Protocol))
		}
	}
}

// oversizeRule is the name of the rule that denies instead of the rules that are not read. Without peers it is invalid,
// so that it denies all.
const oversizeRule = "(denies more: over the limit of parts)"

// WithoutRules returns a spec that isolates the pods of another one in the same directions, and allows no connection.
// If the selector is large, it selects all pods of the namespace.
func WithoutRules(spec *networkingv1.NetworkPolicySpec) networkingv1.NetworkPolicySpec {
	var kept networkingv1.NetworkPolicySpec
	if isKept(&spec.PodSelector) {
		kept.PodSelector = spec.PodSelector
	}
	is, _ := directionsOf(spec)
	if is.isolated[Ingress] {
		kept.PolicyTypes = append(kept.PolicyTypes, networkingv1.PolicyTypeIngress)
	}
	if is.isolated[Egress] {
		kept.PolicyTypes = append(kept.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
	return kept
}

// isKept reports whether selectors are small enough to be kept if the rules of their policy are not read.
func isKept(selectors ...*metav1.LabelSelector) bool {
	var m Measure
	for _, s := range selectors {
		m.selector(s)
	}
	return m.Parts <= maxKeptParts && m.requirements <= maxRequirements
}

// KeptNetworks returns the annotation [AnnotationFor] of a policy with unread rules; false: it is too large to be kept,
// and the policy is about all networks.
func KeptNetworks(annotation string) (string, bool) {
	return annotation, len(annotation) <= maxKeptParts*textOfPart && strings.Count(annotation, ",") < maxKeptParts
}

// AdminWithoutRules returns a spec that denies all in the directions in which another one may deny or pass, and allows
// no connection. If the subject is large, it is all pods.
func AdminWithoutRules(spec *adminv1.AdminNetworkPolicySpec) adminv1.AdminNetworkPolicySpec {
	kept := adminv1.AdminNetworkPolicySpec{Priority: spec.Priority, Subject: keptSubject(&spec.Subject)}
	for n := range spec.Ingress {
		if spec.Ingress[n].Action != adminv1.AdminNetworkPolicyRuleActionAllow {
			kept.Ingress = []adminv1.AdminNetworkPolicyIngressRule{
				{Name: oversizeRule, Action: adminv1.AdminNetworkPolicyRuleActionDeny},
			}
			break
		}
	}
	for n := range spec.Egress {
		if spec.Egress[n].Action != adminv1.AdminNetworkPolicyRuleActionAllow {
			kept.Egress = []adminv1.AdminNetworkPolicyEgressRule{
				{Name: oversizeRule, Action: adminv1.AdminNetworkPolicyRuleActionDeny},
			}
			break
		}
	}
	return kept
}

// BaselineWithoutRules is AdminWithoutRules for BaselineAdminNetworkPolicies.
func BaselineWithoutRules(spec *adminv1.BaselineAdminNetworkPolicySpec) adminv1.BaselineAdminNetworkPolicySpec {
	kept := adminv1.BaselineAdminNetworkPolicySpec{Subject: keptSubject(&spec.Subject)}
	for n := range spec.Ingress {
		if spec.Ingress[n].Action != adminv1.BaselineAdminNetworkPolicyRuleActionAllow {
			kept.Ingress = []adminv1.BaselineAdminNetworkPolicyIngressRule{
				{Name: oversizeRule, Action: adminv1.BaselineAdminNetworkPolicyRuleActionDeny},
			}
			break
		}
	}
	for n := range spec.Egress {
		if spec.Egress[n].Action != adminv1.BaselineAdminNetworkPolicyRuleActionAllow {
			kept.Egress = []adminv1.BaselineAdminNetworkPolicyEgressRule{
				{Name: oversizeRule, Action: adminv1.BaselineAdminNetworkPolicyRuleActionDeny},
			}
			break
		}
	}
	return kept
}

// keptSubject returns a subject that is small enough to be kept: all pods instead of a large one.
func keptSubject(s *adminv1.AdminNetworkPolicySubject) adminv1.AdminNetworkPolicySubject {
	selectors := []*metav1.LabelSelector{s.Namespaces}
	if s.Pods != nil {
		selectors = append(selectors, &s.Pods.NamespaceSelector, &s.Pods.PodSelector)
	}
	if isKept(selectors...) {
		return *s
	}
	return adminv1.AdminNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}}
}

// parseBlock parses a block and its exceptions.
func parseBlock(b *networkingv1.IPBlock) (cidr netip.Prefix, except []netip.Prefix, err error) {
	if cidr, err = ParsePrefix(b.CIDR); err != nil {
		return cidr, nil, fmt.Errorf("ipBlock: %w", err)
	}
	for _, text := range b.Except {
		p, err := ParsePrefix(text)
		if err != nil {
			return cidr, nil, fmt.Errorf("ipBlock: except: %w", err)
		}
		except = append(except, p)
	}
	return cidr, except, nil
}
