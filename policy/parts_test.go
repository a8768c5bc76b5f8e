package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"
)

// grower makes specs of which one field is as large as an object has room for, for each field that has no bound in its
// type.
type grower struct {
	*testing.T

	spec  any // pointer
	check func(path string)
}

// grow calls check for each field below v. Lists and maps on the way to it have one entry.
func (g *grower) grow(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("x", 2<<20))
		g.check(path)
		v.SetString("x")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), MaxParts+1, MaxParts+1))
		g.check(path + "[]")
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		g.grow(path+"[0]", v.Index(0))
	case reflect.Map:
		many := reflect.MakeMap(v.Type())
		for n := range MaxParts + 1 {
			many.SetMapIndex(reflect.ValueOf(fmt.Sprint(n)), reflect.ValueOf("x"))
		}
		v.Set(many)
		g.check(path + "{}")
		for _, entry := range [][2]string{{strings.Repeat("x", 2<<20), "x"}, {"x", strings.Repeat("x", 2<<20)}} {
			one := reflect.MakeMap(v.Type())
			one.SetMapIndex(reflect.ValueOf(entry[0]), reflect.ValueOf(entry[1]))
			v.Set(one)
			g.check(path + "{x}")
		}
		v.SetZero()
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		g.grow(path, v.Elem())
		v.SetZero()
	case reflect.Struct:
		for n := range v.NumField() {
			g.grow(path+"."+v.Type().Field(n).Name, v.Field(n))
		}
	case reflect.Int32, reflect.Int64, reflect.Int, reflect.Bool:
	default:
		g.Errorf("%s: a field of an unknown kind", path)
	}
}

// mostKept is the size of what is kept of an oversize spec: selectors of maxKeptParts.
const mostKept = 128 << 10

// Whatever a field of a policy is filled with, the policy is oversize, and little is kept of it. A new field of the API
// is among them.
func TestEachFieldOfAPolicyCountsForItsSize(t *testing.T) {
	var network networkingv1.NetworkPolicySpec
	var admin adminv1.AdminNetworkPolicySpec
	var baseline adminv1.BaselineAdminNetworkPolicySpec
	for _, tt := range []struct {
		what    string
		spec    any
		measure func() Measure
		kept    func() any
	}{
		{
			"NetworkPolicy", &network, func() Measure { return MeasureNetworkPolicy(&network, "") },
			func() any { return WithoutRules(&network) },
		},
		{
			"AdminNetworkPolicy", &admin, func() Measure { return MeasureAdmin(&admin) },
			func() any { return AdminWithoutRules(&admin) },
		},
		{
			"BaselineAdminNetworkPolicy", &baseline, func() Measure { return MeasureBaseline(&baseline) },
			func() any { return BaselineWithoutRules(&baseline) },
		},
	} {
		fields := 0
		g := grower{T: t, spec: tt.spec, check: func(path string) {
			fields++
			size := tt.measure()
			if over := size.Oversize(); over.IsZero() {
				t.Errorf("%s: %d parts", path, size.Parts)
			}
			raw, err := json.Marshal(tt.kept())
			if err != nil {
				t.Fatal(err)
			}
			if len(raw) > mostKept {
				t.Errorf("%s: %d bytes are kept", path, len(raw))
			}
		}}
		g.grow(tt.what, reflect.ValueOf(tt.spec).Elem())
		if fields < 20 {
			t.Errorf("%s: %d fields", tt.what, fields)
		}
	}
	if size := MeasureNetworkPolicy(&networkingv1.NetworkPolicySpec{},
		strings.Repeat("a,", MaxParts+1)); size.Oversize().IsZero() {
		t.Errorf("networks: %d parts", size.Parts)
	}
}

// Parts that are small in the API become many prefixes.
func TestPrefixesThatRemainOfABlockArePartsOfAPolicy(t *testing.T) {
	blocks := func(n int) *networkingv1.NetworkPolicySpec {
		var r networkingv1.NetworkPolicyIngressRule
		for k := range n {
			r.From = append(r.From, networkingv1.NetworkPolicyPeer{
				IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: []string{fmt.Sprintf("2001:db8::%x/128", k)}},
			})
		}
		return &networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{r}}
	}
	for n, isOver := range map[int]bool{100: false, 1000: true, 45_000: true} {
		size := MeasureNetworkPolicy(blocks(n), "")
		if size.Oversize().IsZero() == isOver {
			t.Errorf("%d blocks: %d parts", n, size.Parts)
		}
		if size.Parts > MaxParts+3*n {
			t.Errorf("%d parts are counted although fewer are enough", size.Parts)
		}
	}
	p, err := OfNetworkPolicy(&networkingv1.NetworkPolicy{Spec: *blocks(100)})
	if err != nil {
		t.Fatal(err)
	}
	prefixes := 0
	for _, peer := range p.peersIn(Ingress) {
		prefixes += len(peer.Prefixes)
	}
	if size := MeasureNetworkPolicy(blocks(100), ""); size.Parts < prefixes {
		t.Errorf("%d parts for %d prefixes", size.Parts, prefixes)
	}
}

// Each requirement is compared with all pods.
func TestRequirementsOfASelectorAreBounded(t *testing.T) {
	spec := &networkingv1.NetworkPolicySpec{}
	for n := range maxRequirements {
		spec.PodSelector.MatchExpressions = append(spec.PodSelector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: fmt.Sprint("k", n), Operator: metav1.LabelSelectorOpDoesNotExist,
		})
	}
	if size := MeasureNetworkPolicy(spec, ""); !size.Oversize().IsZero() {
		t.Errorf("%d requirements are too many", maxRequirements)
	}
	spec.PodSelector.MatchLabels = map[string]string{"one": "more"}
	size := MeasureNetworkPolicy(spec, "")
	if over := size.Oversize(); over.Size != maxRequirements+1 || over.Limit != maxRequirements {
		t.Errorf("over is %+v", over)
	}
	if kept := WithoutRules(spec); len(kept.PodSelector.MatchExpressions) > 0 {
		t.Error("the selector is kept")
	}
}

// What is kept of an oversize policy isolates the pods in the directions of the policy.
func TestWithoutItsRulesAPolicyIsolatesTheSame(t *testing.T) {
	egress := []networkingv1.NetworkPolicyEgressRule{{}}
	for _, tt := range []struct {
		types []networkingv1.PolicyType
		rules []networkingv1.NetworkPolicyEgressRule
	}{
		{nil, nil}, {nil, egress}, {[]networkingv1.PolicyType{"Ingress"}, egress}, {
			[]networkingv1.PolicyType{"Egress"}, nil,
		},
		{[]networkingv1.PolicyType{"Ingress", "Egress"}, egress}, {[]networkingv1.PolicyType{"egress"}, egress},
	} {
		spec := networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			PolicyTypes: tt.types,
			Egress:      tt.rules,
		}
		whole, _ := OfNetworkPolicy(&networkingv1.NetworkPolicy{Spec: spec})
		kept, err := OfNetworkPolicy(&networkingv1.NetworkPolicy{Spec: WithoutRules(&spec)})
		if err != nil {
			t.Fatal(err)
		}
		if whole.Isolates != kept.Isolates || whole.Subject.key != kept.Subject.key {
			t.Errorf("%v: isolates %v of %s, want %v of %s", tt.types, kept.Isolates, kept.Subject.key, whole.Isolates,
				whole.Subject.key)
		}
		if len(kept.Rules[Ingress])+len(kept.Rules[Egress]) > 0 {
			t.Errorf("%v: rules are kept", tt.types)
		}
	}
}

// Instead of the rules that are not read all connections are denied which they may deny.
func TestWithoutItsRulesAnAdminNetworkPolicyDenies(t *testing.T) {
	to := []adminv1.AdminNetworkPolicyEgressPeer{{Networks: []adminv1.CIDR{"192.0.2.0/24"}}}
	for action, want := range map[string]Action{"Allow": Allow, "Deny": Deny, "Pass": Deny, "unknown": Deny} {
		admin := adminv1.AdminNetworkPolicySpec{
			Subject: adminv1.AdminNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}},
		}
		admin.Egress = []adminv1.AdminNetworkPolicyEgressRule{
			{Action: "Allow", To: to}, {Action: adminv1.AdminNetworkPolicyRuleAction(action), To: to},
		}
		baseline := adminv1.BaselineAdminNetworkPolicySpec{Subject: admin.Subject}
		baseline.Egress = []adminv1.BaselineAdminNetworkPolicyEgressRule{
			{Action: adminv1.BaselineAdminNetworkPolicyRuleAction(action)},
		}
		first, _ := OfAdminNetworkPolicy(&adminv1.AdminNetworkPolicy{Spec: AdminWithoutRules(&admin)})
		last, _ := OfBaselineAdminNetworkPolicy(&adminv1.BaselineAdminNetworkPolicy{
			Spec: BaselineWithoutRules(&baseline),
		})
		for _, p := range []Policy{first, last} {
			p.Oversize = OversizeInNamespace(1)
			e := NewEngine(Config{})
			e.SetNamespace("a", nil)
			e.SetPod(podAt("a/p", true, "10.0.0.1"))
			e.SetPolicy(p)
			if got := decided(e, Egress, "203.0.113.1"); got != want {
				t.Errorf("%s %s: %s, want %s", p.Kind, action, got, want)
			}
			if got := decided(e, Ingress, "203.0.113.1"); got != Allow {
				t.Errorf("%s %s: ingress: %s", p.Kind, action, got)
			}
			if list := e.Excess(); action != "Allow" && (len(list) != 1 || list[0].Limit != MaxNamespaceParts) {
				t.Errorf("%s %s: over a limit are %v", p.Kind, action, list)
			}
		}
	}
}

// The engine holds little for an oversize policy of any kind.
func TestOversizePoliciesAreConvertedWithoutRules(t *testing.T) {
	many := networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, MaxParts+1)}
	subject := adminv1.AdminNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}}
	admin := adminv1.AdminNetworkPolicySpec{
		Subject: subject,
		Ingress: make([]adminv1.AdminNetworkPolicyIngressRule, MaxParts+1),
	}
	baseline := adminv1.BaselineAdminNetworkPolicySpec{
		Subject: subject, Ingress: make([]adminv1.BaselineAdminNetworkPolicyIngressRule, MaxParts+1),
	}
	annotated := &metav1.ObjectMeta{Annotations: map[string]string{AnnotationFor: strings.Repeat("a,", MaxParts+1)}}
	network, _ := OfNetworkPolicy(&networkingv1.NetworkPolicy{Spec: many})
	multi, _ := OfMultiNetworkPolicy(&metav1.ObjectMeta{}, &many)
	ofNetworks, _ := OfMultiNetworkPolicy(annotated, &networkingv1.NetworkPolicySpec{})
	ofAdmin, _ := OfAdminNetworkPolicy(&adminv1.AdminNetworkPolicy{Spec: admin})
	ofBaseline, _ := OfBaselineAdminNetworkPolicy(&adminv1.BaselineAdminNetworkPolicy{Spec: baseline})
	for _, tt := range []struct {
		Policy

		rules int
	}{{network, 0}, {multi, 0}, {ofNetworks, 0}, {ofAdmin, 1}, {ofBaseline, 1}} {
		if n := len(tt.Rules[Ingress]) + len(tt.Rules[Egress]); n != tt.rules {
			t.Errorf("%s: %d rules, want %d", tt.Kind, n, tt.rules)
		}
		if tt.Oversize.Limit != MaxParts {
			t.Errorf("%s: over is %+v", tt.Kind, tt.Oversize)
		}
	}
	if len(ofNetworks.Networks) > 0 || !ofNetworks.AllNetworks || multi.AllNetworks {
		t.Errorf("a policy of many networks is about %d, or all: %t", len(ofNetworks.Networks), ofNetworks.AllNetworks)
	}
}
