package policy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"
)

// damage replaces a random part of a policy by one that is not understood. It returns false if the policy has no such
// part.
type damage struct {
	name string
	do   func(dice, *damaged) bool
}

// damaged is a policy of any kind.
type damaged struct {
	spec     *networkingv1.NetworkPolicySpec
	admin    *adminv1.AdminNetworkPolicySpec
	baseline *adminv1.BaselineAdminNetworkPolicySpec
}

func (d dice) damageSelector(s *metav1.LabelSelector) {
	broken := metav1.LabelSelectorRequirement{
		Key:      "app",
		Operator: pick[metav1.LabelSelectorOperator](d, "Inn", "In", "Exists"),
	}
	switch broken.Operator {
	case "In": // without values
	case "Exists":
		broken.Values = []string{"a"}
	}
	if len(s.MatchExpressions) > 0 {
		s.MatchExpressions[d.IntN(len(s.MatchExpressions))] = broken
		return
	}
	s.MatchLabels = nil
	s.MatchExpressions = []metav1.LabelSelectorRequirement{broken}
}

func (d dice) damageNamespaced(namespaces *metav1.LabelSelector, pods *adminv1.NamespacedPod) bool {
	switch {
	case namespaces != nil:
		d.damageSelector(namespaces)
	case pods != nil && d.chance(50):
		d.damageSelector(&pods.NamespaceSelector)
	case pods != nil:
		d.damageSelector(&pods.PodSelector)
	default:
		return false
	}
	return true
}

func (d dice) damagePeer(o *networkingv1.NetworkPolicyPeer) {
	switch {
	case d.chance(20):
		*o = networkingv1.NetworkPolicyPeer{}
	case d.chance(20) && o.IPBlock != nil:
		o.PodSelector = &metav1.LabelSelector{}
	case o.IPBlock != nil && d.chance(50) && len(o.IPBlock.Except) > 0:
		o.IPBlock.Except[0] = "10.0.0.0/33"
	case o.IPBlock != nil:
		o.IPBlock.CIDR = pick(d, "nonsense", "10.0.0.0", "10.0.0.256/24", "10.0.0.0/-1")
	case o.PodSelector != nil:
		d.damageSelector(o.PodSelector)
	default:
		d.damageSelector(o.NamespaceSelector)
	}
}

func (d dice) damagePort(o *networkingv1.NetworkPolicyPort) {
	switch d.IntN(4) {
	case 0:
		protocol := corev1.Protocol("ICMP")
		o.Protocol = &protocol
	case 1:
		number := intstr.FromInt32(pick[int32](d, 0, -1, 65536))
		o.Port = &number
	case 2:
		name := intstr.FromString("")
		o.Port = &name
	default:
		last := int32(77)
		o.EndPort = &last // before the first, or without a number
	}
}

// rulesOf lists the peers and ports of all rules.
func (o *damaged) rules() (list []rule) {
	switch {
	case o.spec != nil:
		for n := range o.spec.Ingress {
			list = append(list, rule{peers: o.spec.Ingress[n].From, ports: o.spec.Ingress[n].Ports})
		}
		for n := range o.spec.Egress {
			list = append(list, rule{peers: o.spec.Egress[n].To, ports: o.spec.Egress[n].Ports})
		}
	case o.admin != nil:
		for n := range o.admin.Ingress {
			r := &o.admin.Ingress[n]
			list = append(list, rule{action: (*string)(&r.Action), ingress: r.From, adminPorts: r.Ports})
		}
		for n := range o.admin.Egress {
			r := &o.admin.Egress[n]
			list = append(list, rule{action: (*string)(&r.Action), egress: r.To, adminPorts: r.Ports})
		}
	case o.baseline != nil:
		for n := range o.baseline.Ingress {
			r := &o.baseline.Ingress[n]
			list = append(list, rule{action: (*string)(&r.Action), ingress: r.From, adminPorts: r.Ports})
		}
		for n := range o.baseline.Egress {
			r := &o.baseline.Egress[n]
			list = append(list, rule{action: (*string)(&r.Action), baseline: r.To, adminPorts: r.Ports})
		}
	}
	return list
}

// rule has the parts of a rule of any kind of policy.
type rule struct {
	peers      []networkingv1.NetworkPolicyPeer
	ports      []networkingv1.NetworkPolicyPort
	action     *string
	ingress    []adminv1.AdminNetworkPolicyIngressPeer
	egress     []adminv1.AdminNetworkPolicyEgressPeer
	baseline   []adminv1.BaselineAdminNetworkPolicyEgressPeer
	adminPorts *[]adminv1.AdminNetworkPolicyPort
}

var damages = []damage{
	{"subject", func(d dice, o *damaged) bool {
		switch {
		case o.spec != nil:
			d.damageSelector(&o.spec.PodSelector)
			return true
		case o.admin != nil && d.chance(30):
			o.admin.Subject = adminv1.AdminNetworkPolicySubject{}
			return true
		case o.admin != nil:
			return d.damageNamespaced(o.admin.Subject.Namespaces, o.admin.Subject.Pods)
		}
		return d.damageNamespaced(o.baseline.Subject.Namespaces, o.baseline.Subject.Pods)
	}},
	{"types", func(d dice, o *damaged) bool {
		if o.spec == nil || len(o.spec.PolicyTypes) == 0 {
			return false
		}
		o.spec.PolicyTypes[d.IntN(len(o.spec.PolicyTypes))] = pick[networkingv1.PolicyType](d, "ingress", "Egres", "")
		return true
	}},
	{"action", func(d dice, o *damaged) bool {
		rules := o.rules()
		if len(rules) == 0 || o.spec != nil {
			return false
		}
		*rules[d.IntN(len(rules))].action = pick(d, "allow", "", "Log")
		if o.baseline != nil && d.chance(30) {
			*rules[d.IntN(len(rules))].action = "Pass" // only AdminNetworkPolicies have it
		}
		return true
	}},
	{"peer", damageOnePeer},
	{"port", damageOnePort},
}

func damageOnePeer(d dice, o *damaged) bool {
	rules := o.rules()
	if len(rules) == 0 {
		return false
	}
	r := rules[d.IntN(len(rules))]
	isEmpty := d.chance(20)
	switch {
	case len(r.peers) > 0:
		d.damagePeer(&r.peers[d.IntN(len(r.peers))])
	case len(r.ingress) > 0:
		x := &r.ingress[d.IntN(len(r.ingress))]
		if isEmpty {
			*x = adminv1.AdminNetworkPolicyIngressPeer{}
			return true
		}
		return d.damageNamespaced(x.Namespaces, x.Pods)
	case len(r.egress) > 0:
		x := &r.egress[d.IntN(len(r.egress))]
		switch {
		case isEmpty:
			*x = adminv1.AdminNetworkPolicyEgressPeer{DomainNames: pick(d, nil, []adminv1.DomainName{"example.org"})}
		case x.Nodes != nil:
			d.damageSelector(x.Nodes)
		case len(x.Networks) > 0:
			x.Networks[d.IntN(len(x.Networks))] = "10.0.0.0/33"
		default:
			return d.damageNamespaced(x.Namespaces, x.Pods)
		}
	case len(r.baseline) > 0:
		x := &r.baseline[d.IntN(len(r.baseline))]
		if isEmpty || x.Nodes == nil && len(x.Networks) == 0 {
			*x = adminv1.BaselineAdminNetworkPolicyEgressPeer{}
			return true
		}
		x.Pods = &adminv1.NamespacedPod{} // two fields
	default:
		return false
	}
	return true
}

func damageOnePort(d dice, o *damaged) bool {
	rules := o.rules()
	if len(rules) == 0 {
		return false
	}
	r := rules[d.IntN(len(rules))]
	switch {
	case len(r.ports) > 0:
		d.damagePort(&r.ports[d.IntN(len(r.ports))])
	case r.adminPorts != nil && len(*r.adminPorts) > 0:
		x := &(*r.adminPorts)[d.IntN(len(*r.adminPorts))]
		empty := ""
		switch d.IntN(4) {
		case 0:
			*x = adminv1.AdminNetworkPolicyPort{}
		case 1:
			*x = adminv1.AdminNetworkPolicyPort{PortNumber: &adminv1.Port{Protocol: "ICMP", Port: 80}}
		case 2:
			*x = adminv1.AdminNetworkPolicyPort{PortRange: &adminv1.PortRange{Start: 9, End: 8}}
		default:
			*x = adminv1.AdminNetworkPolicyPort{NamedPort: &empty}
		}
	default:
		return false
	}
	return true
}

// damageOne damages a copy of one policy of a world, and returns its new conversion. It returns false if there is
// nothing to damage.
func (d dice) damageOne(w *world) (name string, p Policy, err error, done bool) { //nolint:revive // as the conversions return it
	x := damages[d.IntN(len(damages))]
	var conversions []func() bool
	for _, o := range append(append([]*policyObject{}, w.policies...), w.multi...) {
		conversions = append(conversions, func() bool {
			o := o.DeepCopy()
			if !x.do(d, &damaged{spec: &o.Spec}) {
				return false
			}
			if _, isMulti := o.Annotations[AnnotationFor]; isMulti {
				p, err = OfMultiNetworkPolicy(o, &o.Spec)
			} else {
				p, err = OfNetworkPolicy(o)
			}
			return true
		})
	}
	for _, o := range w.admin {
		conversions = append(conversions, func() bool {
			o := o.DeepCopy()
			if !x.do(d, &damaged{admin: &o.Spec}) {
				return false
			}
			p, err = OfAdminNetworkPolicy(o)
			return true
		})
	}
	if w.baseline != nil {
		conversions = append(conversions, func() bool {
			o := w.baseline.DeepCopy()
			if !x.do(d, &damaged{baseline: &o.Spec}) {
				return false
			}
			p, err = OfBaselineAdminNetworkPolicy(o)
			return true
		})
	}
	if len(conversions) == 0 {
		return "", p, nil, false
	}
	done = pick(d, conversions...)()
	return x.name, p, err, done
}

// What is permitted with a part of a policy that is not understood, is permitted if it is understood, whatever it says,
// and whatever other policies there are.
func TestDamagedPolicyPermitsNothingMore(t *testing.T) {
	seed := seedOf(t)
	tried := map[string]int{}
	closed := 0
	for n := range *policyWorlds {
		d := dice{rand.New(rand.NewPCG(seed, uint64(n)))}
		w := d.world(t)
		what, p, err, done := d.damageOne(w)
		if !done {
			continue
		}
		if invalid := (*InvalidError)(nil); !errors.As(err, &invalid) || invalid.Policy != p.Ref ||
			strings.Contains(err.Error(), "\n") {
			t.Fatalf("cluster %d: damage to %s of %s is not reported: %v\n%s", n, what, p.Ref, err, show(w))
		}
		tried[fmt.Sprint(p.Kind, " ", what)]++
		whole := NewEngine(Config{})
		broken := NewEngine(Config{})
		w.fill(t, whole)
		w.fill(t, broken)
		broken.SetPolicy(p)
		whole.Compile()
		broken.Compile()
		was := whole.Lists()
		is := broken.Lists()
		for range 100 {
			k := d.packet(w)
			if !k.pod.Local {
				continue
			}
			before, _ := evaluate(was, k)
			after, why := evaluate(is, k)
			if before && !after {
				closed++
			}
			if after && !before {
				t.Fatalf("cluster %d: damage to %s opens %s of %s on %s with %s, protocol %d port %d (%s): %v\n%s",
					n, what, k.direction, k.pod, k.nic.Name, k.remote, k.protocol, k.port, why, err, show(w))
			}
		}
	}
	t.Logf("damaged: %v; %d packets denied by it", tried, closed)
	for _, k := range []Kind{Admin, Network, Multi, Baseline} {
		for _, x := range damages {
			isAdmin := k == Admin || k == Baseline
			hasIt := x.name != "types" && x.name != "action" || x.name == "types" && !isAdmin ||
				x.name == "action" && isAdmin
			if hasIt && tried[fmt.Sprint(k, " ", x.name)] == 0 {
				t.Errorf("no %s of a %s was damaged", x.name, k)
			}
		}
	}
	if closed == 0 {
		t.Error("no damage closed anything")
	}
}

// Until a watch has shown a namespace, the pods of other namespaces are permitted no more than afterwards, whatever
// labels it has.
func TestUnknownNamespacePermitsNothingMore(t *testing.T) {
	seed := seedOf(t)
	closed := 0
	for n := range *policyWorlds {
		d := dice{rand.New(rand.NewPCG(seed, uint64(n)))}
		w := d.world(t)
		late := pick(d, "x", "y", "z")
		w.namespaces[late] = d.labels()
		known := NewEngine(Config{})
		unknown := NewEngine(Config{})
		w.fill(t, known)
		w.fill(t, unknown)
		unknown.DeleteNamespace(late)
		known.Compile()
		unknown.Compile()
		was := known.Lists()
		is := unknown.Lists()
		for range 60 {
			k := d.packet(w)
			if !k.pod.Local || k.pod.Namespace == late {
				continue
			}
			want, _ := evaluate(was, k)
			got, why := evaluate(is, k)
			if want && !got {
				closed++
			}
			if got && !want {
				t.Fatalf(
					"cluster %d: without the labels of namespace %s, %s of %s on %s with %s, protocol %d port %d is permitted (%s)\n%s",
					n, late, k.direction, k.pod, k.nic.Name, k.remote, k.protocol, k.port, why, show(w))
			}
		}
	}
	if closed == 0 {
		t.Error("no unknown namespace denied anything")
	}
}

func TestAddressesAreParsedAsTheAPIServerDoes(t *testing.T) {
	for text, want := range map[string]string{
		"010.9.0.0/16": "10.9.0.0/16", "10.9.0.0/016": "10.9.0.0/16", "::ffff:10.9.0.0/112": "10.9.0.0/16",
		"10.9.3.7/16": "10.9.0.0/16",
		"10.0.0.0/0":  "0.0.0.0/0", "::ffff:0:0/96": "0.0.0.0/0", "::ffff:10.9.0.0/88": "::ff00:0:0/88", "::/0": "::/0",
		"FD00::1/8":   "fd00::/8",
		"10.0.0.0/33": "", "10.0.0.0": "", "10.0.0/8": "", "fe80::1%eth0/64": "", "": "", "10.0.0.0/+8": "",
		"0x0a.0.0.0/8": "",
	} {
		p, err := ParsePrefix(text)
		if got := fmt.Sprint(p); err == nil && got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %v, %v, want %q", text, p, err, want)
		}
	}
	for text, want := range map[string]string{
		"010.09.0.008": "10.9.0.8", "::ffff:10.0.0.1": "10.0.0.1", "fd00::01": "fd00::1", "10.0.0.1": "10.0.0.1",
		"None": "", "": "", "10.0.0.1/32": "",
	} {
		a, err := ParseAddress(text)
		if got := fmt.Sprint(a); err == nil && got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %v, %v, want %q", text, a, err, want)
		}
	}
}

// FuzzParsePrefix compares with netip, which accepts a part of what the API server accepts.
func FuzzParsePrefix(f *testing.F) {
	f.Add("10.1.2.3/8")
	f.Add("::ffff:10.0.0.0/104")
	f.Fuzz(func(t *testing.T, text string) {
		want, err := netip.ParsePrefix(text)
		if err != nil || want.Addr().Is4In6() {
			return
		}
		got, err := ParsePrefix(text)
		if err != nil || got != want.Masked() {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want.Masked())
		}
	})
}

// The reasons name rule and part, so that an author finds them.
func TestInvalidPartsAreNamed(t *testing.T) {
	p := &adminv1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "guard"}}
	p.Spec.Egress = []adminv1.AdminNetworkPolicyEgressRule{
		{
			Name:   "dns",
			Action: "Allow",
			To:     []adminv1.AdminNetworkPolicyEgressPeer{{DomainNames: []adminv1.DomainName{"example.org"}}},
		},
		{
			Action: "Log",
			To:     []adminv1.AdminNetworkPolicyEgressPeer{{Networks: []adminv1.CIDR{"10.0.0.0/8", "10.0.0.0/33"}}},
		},
	}
	_, err := OfAdminNetworkPolicy(p)
	const want = `AdminNetworkPolicy guard: subject: it must select either namespaces or pods; egress[0] dns: domainNames are not supported; ` +
		`egress[1]: networks: "10.0.0.0/33" is not a CIDR, unknown action "Log"`
	if fmt.Sprint(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Users write policies whose parts are all invalid, and each agent keeps why.
func TestReasonsWhyAPolicyIsInvalidAreBounded(t *testing.T) {
	long := strings.Repeat("ä", 5_000)
	for what, peers := range map[string][]networkingv1.NetworkPolicyPeer{
		"many":     make([]networkingv1.NetworkPolicyPeer, MaxParts/2),
		"one long": {{IPBlock: &networkingv1.IPBlock{CIDR: long}}},
	} {
		spec := networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: peers}}}
		for range 100 {
			spec.Egress = append(spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers[:1]})
		}
		_, err := OfNetworkPolicy(&networkingv1.NetworkPolicy{Spec: spec})
		var invalid *InvalidError
		if !errors.As(err, &invalid) {
			t.Fatalf("%s: %v", what, err)
		}
		if n := len(invalid.Reasons); n != maxReasons+1 || len(err.Error()) > 5000 {
			t.Errorf("%s: %d reasons of %d bytes", what, n, len(err.Error()))
		}
	}
}
