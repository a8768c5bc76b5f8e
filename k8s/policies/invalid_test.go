package policies_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/policy"
)

// fromBlocks allows ingress from CIDRs only.
func fromBlocks(subject string, cidrs ...string) networkingv1.NetworkPolicySpec {
	spec := onlyFrom(subject, "web")
	spec.Ingress[0].From = nil
	for _, c := range cidrs {
		spec.Ingress[0].From = append(spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{
			IPBlock: &networkingv1.IPBlock{CIDR: c},
		})
	}
	return spec
}

// from returns a condition: ingress from an address is permitted.
func (l *lab) from(name, nic, remote string) func() bool {
	return func() bool { return l.permits(name, nic, policy.Ingress, remote, 80) }
}

func not(f func() bool) func() bool { return func() bool { return !f() } }

// The API server accepts these: it parses as Go did before 1.17.
func TestCIDRsThatTheAPIServerAcceptsAreValid(t *testing.T) {
	for _, cidr := range []string{"010.9.0.0/16", "10.9.0.0/016", "::ffff:10.9.0.0/112", "10.9.3.7/16"} {
		t.Run(cidr, func(t *testing.T) {
			l := newLab(t, nil)
			l.pod("db", "n1", "10.1.0.5", nil)
			l.run()
			l.admit(attachment("db", "eth0 default 10.1.0.5"))
			l.policy("p", fromBlocks("db", cidr))
			l.eventually("the pod is isolated", not(l.from("db", "eth0", "172.16.1.5")))
			if !l.permits("db", "eth0", policy.Ingress, "10.9.0.1", 80) {
				t.Error("an address of the block is denied")
			}
			if invalid := l.Invalid(); len(invalid) > 0 {
				t.Errorf("invalid: %q", invalid)
			}
		})
	}
}

// The same reading applies before and after a restart: nothing is remembered of an earlier version.
func TestInvalidRuleOfAPolicyPermitsNothing(t *testing.T) {
	l := newLab(t, nil)
	l.policy("p", onlyFrom("db", "web"))
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n2", "10.1.1.5", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	if !l.permits("db", "eth0", policy.Ingress, "10.1.1.5", 80) {
		t.Fatal("the valid policy permits nothing")
	}
	l.policy("p", fromBlocks("db", "10.9.0.0/33", "10.8.0.0/16"))
	const reason = `NetworkPolicy a/p: ingress[0]: ipBlock: "10.9.0.0/33" is not a CIDR`
	check := func(l *lab, when string) {
		t.Helper()
		l.eventually(when+": the valid peer is permitted", l.from("db", "eth0", "10.8.0.1"))
		for _, remote := range []string{"10.9.0.1", "10.1.1.5"} {
			if l.permits("db", "eth0", policy.Ingress, remote, 80) {
				t.Errorf("%s: %s is permitted", when, remote)
			}
		}
		if got := l.Invalid(); len(got) != 1 || got[0] != reason {
			t.Errorf("%s: invalid are %q, want %q", when, got, reason)
		}
	}
	check(l, "after the change")
	c, err := client.New(l.Connection())
	if err != nil {
		t.Fatal(err)
	}
	later := &lab{
		Server:   l.Server,
		T:        t,
		Policies: policies.New(policies.Config{Node: "n1", Client: c}),
		rules:    map[string]map[string]policy.Lists{},
	}
	later.run()
	later.admit(attachment("db", "eth0 default 10.1.0.5"))
	check(later, "after a restart of the agent")
	l.Remove(networkPolicies, "a", "p")
	l.eventually("nothing is invalid without the policy", func() bool { return len(l.Invalid()) == 0 })
	l.policy("p", fromBlocks("db", "10.9.0.0/33"))
	l.eventually("the policy is invalid again", func() bool { return len(l.Invalid()) == 1 })
	l.policy("p", onlyFrom("db", "web"))
	l.eventually("nothing is invalid after a correction", func() bool { return len(l.Invalid()) == 0 })
}

// network-policy-api: a Deny rule with an unknown peer is a 'Deny all' rule. The other rules stay in force.
func TestAdminPolicyWithAnUnknownPeerFailsClosed(t *testing.T) {
	l := newLab(t, nil)
	l.pod("db", "n1", "10.1.0.5", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	p := &adminv1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.Subject.Namespaces = &metav1.LabelSelector{}
	to := func(cidr adminv1.CIDR) []adminv1.AdminNetworkPolicyEgressPeer {
		return []adminv1.AdminNetworkPolicyEgressPeer{{Networks: []adminv1.CIDR{cidr}}}
	}
	p.Spec.Egress = []adminv1.AdminNetworkPolicyEgressRule{
		{Name: "no-metadata", Action: adminv1.AdminNetworkPolicyRuleActionDeny, To: to("203.0.113.0/24")},
		{Name: "dns", Action: adminv1.AdminNetworkPolicyRuleActionAllow, To: to("198.51.100.0/24")},
		{
			Name:   "unknown",
			Action: adminv1.AdminNetworkPolicyRuleActionAllow,
			To:     append(to("192.0.2.0/24"), adminv1.AdminNetworkPolicyEgressPeer{}),
		},
	}
	egress := func(remote string) func() bool {
		return func() bool { return l.permits("db", "eth0", policy.Egress, remote, 80) }
	}
	l.Put(adminPolicies, p)
	l.eventually("the valid Deny rule denies", not(egress("203.0.113.9")))
	if !egress("198.51.100.9")() || !egress("192.0.2.9")() {
		t.Error("an unknown Allow rule denies")
	}
	p.Spec.Egress[2].Action = adminv1.AdminNetworkPolicyRuleActionDeny
	l.Put(adminPolicies, p)
	l.eventually("an unknown Deny rule denies all", not(egress("192.0.2.9")))
	if egress("203.0.113.9")() || egress("10.9.9.9")() {
		t.Error("an unknown Deny rule permits something")
	}
	if !egress("198.51.100.9")() {
		t.Error("the valid Allow rule before it does not permit")
	}
}

func TestMultiNetworkPolicyWithATypoIsolatesItsInterfaces(t *testing.T) {
	l := newLab(t, nil)
	l.pod("db", "n1", "10.1.0.5", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5", "net1 red 10.6.0.5", "net2 blue 10.7.0.5"))
	p := &npwg.MultiNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "a",
			Name:        "p",
			Annotations: map[string]string{policy.AnnotationFor: "red"},
		},
	}
	p.Spec = fromBlocks("db", "10.6.0.0/33", "10.6.1.0/24")
	l.Put(multiPolicies, p)
	l.eventually("the interface is isolated", not(l.from("db", "net1", "10.6.0.9")))
	if !l.permits("db", "net1", policy.Ingress, "10.6.1.9", 80) {
		t.Error("the valid peer is denied")
	}
	if !l.permits("db", "net2", policy.Ingress, "10.6.0.9", 80) ||
		!l.permits("db", "eth0", policy.Ingress, "10.6.0.9", 80) {
		t.Error("an interface on another network is isolated")
	}
	if len(l.Invalid()) != 1 {
		t.Errorf("invalid: %q", l.Invalid())
	}
}

// A rule that selects namespaces without a label does not allow pods of a namespace whose labels no watch has shown,
// and its own pods are closed.
func TestNamespaceThatIsNotKnownYetIsNotAllowed(t *testing.T) {
	l := newLab(t, nil)
	spec := onlyFrom("db", "x")
	spec.Ingress[0].From = []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "restricted", Operator: metav1.LabelSelectorOpDoesNotExist},
		},
	}}}
	l.policy("p", spec)
	l.pod("db", "n1", "10.1.0.5", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	late := func(o *corev1.Pod) { o.Namespace = "late" }
	l.pod("stranger", "n2", "10.1.1.77", late)
	l.pod("own", "n1", "10.1.0.6", late)
	l.pod("seen", "n2", "10.1.1.78", nil) // of namespace a, without the label: permitted
	l.eventually("a pod of a known namespace is permitted", l.from("db", "eth0", "10.1.1.78"))
	if l.from("db", "eth0", "10.1.1.77")() {
		t.Error("a pod of the unknown namespace is permitted")
	}
	own := attachment("own", "eth0 default 10.1.0.6")
	own.Pod.Namespace = "late"
	isOpen := func() bool {
		for name, rules := range l.Changed(nodeLink) {
			l.rules[name] = rules
		}
		list := l.rules["late/own"]["eth0"][policy.Ingress]
		return list == nil || list.Decide(netip.MustParseAddr("10.1.1.78"), policy.TCP, 80).Action == policy.Allow
	}
	if l.admit(own); isOpen() {
		t.Error("a pod of this node in the unknown namespace is open")
	}
	namespace := func(labels map[string]string) {
		l.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "late", Labels: labels}})
	}
	namespace(map[string]string{"restricted": "yes"})
	l.eventually("the pod of this node is open when its namespace is known", isOpen)
	if l.from("db", "eth0", "10.1.1.77")() {
		t.Error("a pod of the restricted namespace is permitted")
	}
	namespace(nil)
	l.eventually("a pod is permitted when its namespace does not have the label", l.from("db", "eth0", "10.1.1.77"))
	l.Remove("namespaces", "", "late")
	l.eventually("the pod of this node is closed without its namespace", not(isOpen))
	l.eventually("a pod is denied without its namespace", not(l.from("db", "eth0", "10.1.1.77")))
	namespace(nil)
	l.eventually("all is open again", func() bool { return isOpen() && l.from("db", "eth0", "10.1.1.77")() })
}

// Nothing but the definition of the kind validates a MultiNetworkPolicy. One that cannot be read hides no other one,
// and denies.
func TestUnreadableMultiNetworkPolicyHidesNoOther(t *testing.T) {
	const good = `{"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 80}]}]}`
	for _, tt := range []struct {
		what, spec  string
		permits     bool // TCP port 80 to the selected pod
		isOtherOpen bool // the other pod of the namespace
		isInvalid   bool
	}{
		{"valid", good, true, true, false},
		{"no spec", `null`, false, false, false},
		{
			"a rule of another type",
			`{"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"], "ingress": ["x", {"ports": [{"port": 80}]}]}`,
			true, true, true,
		},
		{
			"a port out of range",
			`{"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"ports": [{"port": 99999999999}]}]}`, false,
			true, true,
		},
		{
			"an unknown field of a rule", `{"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"form": []}]}`,
			false, true, true,
		},
		{
			"rules that are not a list", `{"podSelector": {"matchLabels": {"app": "db"}}, "ingress": {}}`, false, true,
			true,
		},
		{
			"types that are not a list",
			`{"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": "Ingress", "ingress": [{}]}`, false, true,
			true,
		},
		{"a selector of another type", `{"podSelector": "app=db", "ingress": [{}]}`, false, false, true},
		{
			"an unknown field of the spec", `{"podSelecter": {"matchLabels": {"app": "db"}}, "ingress": [{}]}`, false,
			false, true,
		},
		{"a spec of another type", `"x"`, false, false, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			l := newLab(t, nil)
			put := func(name, spec string) {
				o := &unstructured.Unstructured{}
				text := `{"apiVersion": "k8s.cni.cncf.io/v1beta1", "kind": "MultiNetworkPolicy", "spec": ` + spec + `}`
				if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
					t.Fatal(err)
				}
				o.SetNamespace("a")
				o.SetName(name)
				o.SetAnnotations(map[string]string{policy.AnnotationFor: "red"})
				l.Put(multiPolicies, o)
			}
			put("tried", tt.spec)
			put("witness", `{"podSelector": {"matchLabels": {"app": "witness"}}}`)
			for _, name := range []string{"db", "other", "witness"} {
				l.pod(name, "n1", "10.1.0.5", nil)
			}
			l.run()
			for _, name := range []string{"db", "other", "witness"} {
				l.admit(attachment(name, "net1 red 10.6.0.5"))
			}
			if l.permits("witness", "net1", policy.Ingress, "192.0.2.1", 80) {
				t.Error("another policy is not in force")
			}
			if got := l.permits("db", "net1", policy.Ingress, "192.0.2.1", 80); got != tt.permits {
				t.Errorf("permitted %t, want %t", got, tt.permits)
			}
			if l.permits("db", "net1", policy.Ingress, "192.0.2.1", 81) {
				t.Error("the selected pod is not isolated")
			}
			if got := l.permits("other", "net1", policy.Ingress, "192.0.2.1", 81); got != tt.isOtherOpen {
				t.Errorf("the other pod is open: %t, want %t", got, tt.isOtherOpen)
			}
			if isInvalid := len(l.Invalid()) == 1; isInvalid != tt.isInvalid {
				t.Errorf("invalid: %q", l.Invalid())
			}
			t.Log(l.Invalid())
		})
	}
}

// Egress rules: the first 127 addresses of 192.0.2.0/24 are allowed, and the others are denied.
const (
	allowSome = `{"action": "Allow", "to": [{"networks": ["192.0.2.0/25"]}]}`
	denyBlock = `{"action": "Deny", "to": [{"networks": ["192.0.2.0/24"]}]}`
)

// unreadableAdmin is a policy. SUBJECT in its spec selects one pod.
type unreadableAdmin struct {
	what, spec string
	// whether a selected and another pod may contact an allowed, a denied and any other address: + or -
	db, other string
	isInvalid bool
}

var unreadableAdmins = []unreadableAdmin{
	{"valid", `{SUBJECT, "egress": [` + allowSome + `, ` + denyBlock + `]}`, "+-+", "+++", false},
	{"no spec", `null`, "+++", "+++", true},
	{"a rule of another type", `{SUBJECT, "egress": [` + allowSome + `, ` + denyBlock + `, "x"]}`, "+--", "+++", true},
	{"rules that are not a list", `{SUBJECT, "egress": {}}`, "---", "+++", true},
	{"an unknown field of an Allow rule",
		`{SUBJECT, "egress": [{"action": "Allow", "to": [{"networks": ["192.0.2.0/25"]}], "protocols": []}, ` +
			denyBlock + `]}`,
		"--+", "+++", true},
	{"an unknown field of a Deny rule",
		`{SUBJECT, "egress": [` + allowSome +
			`, {"action": "Deny", "to": [{"networks": ["192.0.2.0/24"]}], "protocols": []}]}`,
		"+--", "+++", true},
	{
		"an unknown field of a peer",
		`{SUBJECT, "egress": [{"action": "Allow", "to": [{"namespaces": {"sameLabels": ["x"]}}]}, ` + denyBlock + `]}`,
		"--+", "+++", true,
	},
	{
		"a priority of another type", `{"priority": "5", SUBJECT, "egress": [` + allowSome + `, ` + denyBlock + `]}`,
		"--+", "+++", true,
	},
	{
		"a priority that Go cannot hold",
		`{"priority": 99999999999, SUBJECT, "egress": [` + allowSome + `, ` + denyBlock + `]}`, "--+", "+++", true,
	},
	{
		"a priority out of range", `{"priority": 1001, SUBJECT, "egress": [` + allowSome + `, ` + denyBlock + `]}`,
		"--+", "+++", true,
	},
	{
		"the last priority", `{"priority": 1000, SUBJECT, "egress": [` + allowSome + `, ` + denyBlock + `]}`, "+-+",
		"+++", false,
	},
	{
		"a subject of another type", `{"subject": "x", "egress": [` + allowSome + `, ` + denyBlock + `]}`, "--+", "--+",
		true,
	},
	{
		"an unknown field of the spec", `{SUBJECT, "tier": "Admin", "egress": [` + allowSome + `, ` + denyBlock + `]}`,
		"---", "+++", true,
	},
	{"a spec of another type", `"x"`, "---", "---", true},
}

// The definition of the kind may be of another version, and it accepts times of conditions that Go does not parse. A
// policy that cannot be read hides no other one, and its unreadable parts deny.
func TestUnreadableAdminNetworkPolicyHidesNoOther(t *testing.T) {
	for _, kind := range []string{"AdminNetworkPolicy", "BaselineAdminNetworkPolicy"} {
		for _, tt := range unreadableAdmins {
			if kind == "BaselineAdminNetworkPolicy" && strings.Contains(tt.spec, "priority") {
				continue // it has no priority
			}
			t.Run(kind+"/"+tt.what, func(t *testing.T) { tt.check(t, kind) })
		}
	}
}

func (u *unreadableAdmin) check(t *testing.T, kind string) {
	l := newLab(t, nil)
	l.putAdmin(kind, "tried", u.spec,
		`{"conditions": [{"type": "Ready", "lastTransitionTime": "2026-01-01t00:00:00z"}]}`)
	l.putAdmin(kind, "witness",
		`{"subject": {"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "witness"}}}}, "egress": [
		{"action": "Deny", "to": [{"networks": ["0.0.0.0/0"]}]}]}`, `"x"`)
	names := []string{"db", "other", "witness"}
	for _, name := range names {
		l.pod(name, "n1", "10.1.0.5", nil)
	}
	l.run()
	for _, name := range names {
		l.admit(attachment(name, "eth0 default 10.1.0.5"))
	}
	for name, want := range map[string]string{"db": u.db, "other": u.other, "witness": "---"} {
		got := ""
		for _, remote := range []string{"192.0.2.1", "192.0.2.129", "203.0.113.1"} {
			got += map[bool]string{true: "+", false: "-"}[l.permits(name, "eth0", policy.Egress, remote, 80)]
		}
		if got != want {
			t.Errorf("%s: the allowed, the denied and another address: %s, want %s", name, got, want)
		}
	}
	if isInvalid := len(l.Invalid()) == 1; isInvalid != u.isInvalid {
		t.Errorf("invalid: %q", l.Invalid())
	}
}

// putAdmin puts an AdminNetworkPolicy or a BaselineAdminNetworkPolicy whose spec and status may be of any type.
func (l *lab) putAdmin(kind, name, spec, status string) {
	l.Helper()
	subject := `"subject": {"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "db"}}}}`
	resource := baselinePolicies
	if kind == "AdminNetworkPolicy" {
		resource = adminPolicies
	}
	spec = strings.Replace(spec, "SUBJECT", subject, 1)
	text := `{"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": "` + kind + `", "spec": ` + spec +
		`, "status": ` + status + `}`
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		l.Fatal(err)
	}
	o.SetName(name)
	l.Put(resource, o)
}
