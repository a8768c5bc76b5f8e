package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/weftnet/weft/pod"
)

// podManifest is also the source of the chart's policy for pods.
const podManifest = "../../k8s/manifests/pods.yaml"

// creates returns the texts with which the policies deny a pod.
func (s *server) creates(t testing.TB, p *corev1.Pod) []string {
	t.Helper()
	return s.writes(t, p, nil)
}

// writes returns the texts with which the policies deny a pod that is created, or changed from before.
func (s *server) writes(t testing.TB, p, before *corev1.Pod) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	operation := admission.Create
	var old runtime.Object
	if before != nil {
		operation = admission.Update
		old = before
	}
	attributes := admission.NewAttributesRecord(p, old, kind, p.Namespace, p.Name,
		kind.GroupVersion().WithResource("pods"), "", operation, nil, false,
		&user.DefaultInfo{Name: "me"})
	err := s.plugin.Validate(ctx, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	if err == nil {
		return nil
	}
	var denied *apierrors.StatusError
	if !errors.As(err, &denied) || denied.ErrStatus.Details == nil {
		t.Fatalf("the API server fails: %v", err)
	}
	var texts []string
	for _, c := range denied.ErrStatus.Details.Causes {
		_, text, _ := strings.Cut(c.Message, " denied request: ")
		texts = append(texts, text)
	}
	return texts
}

// annotated is a pod with the memifs of two containers.
func annotated(annotations map[string]string, first, second int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", Annotations: annotations}}
	for name, n := range map[string]int64{"vnf": first, "side": second} {
		c := corev1.Container{Name: name}
		if n > 0 {
			c.Resources.Limits = corev1.ResourceList{pod.Resource: *resource.NewQuantity(n, resource.DecimalSI)}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	slices.SortFunc(p.Spec.Containers, func(a, b corev1.Container) int { return strings.Compare(b.Name, a.Name) })
	return p
}

// agentErrors are all errors that the agent's parsers, or its assignment of memifs, have for a pod.
func agentErrors(p *corev1.Pod) (texts []string) {
	for _, problem := range pod.AnnotationProblems(p.Annotations, p.Namespace, "eth0") {
		if problem.Annotation != pod.AnnotationEndpoint {
			texts = append(texts, problem.Err.Error())
		}
	}
	for _, problem := range pod.LimitProblems(p.Annotations) {
		texts = append(texts, problem.Err.Error())
	}
	requests, err := pod.InterfaceRequests(p.Annotations, "eth0")
	have, needed := 0, 0
	for _, c := range p.Spec.Containers {
		q := c.Resources.Limits[pod.Resource]
		have += int(q.Value())
	}
	for _, r := range requests {
		if r.Type == pod.TypeMemif {
			needed++
		}
	}
	if err == nil && needed > have {
		texts = append(texts, pod.FewMemifs("", have, needed))
	}
	return texts
}

func custom(text string) map[string]string { return map[string]string{pod.AnnotationCustom: text} }

func withOptions(text, options string) map[string]string {
	return map[string]string{pod.AnnotationCustom: text, pod.AnnotationOptions: options}
}

// An edit of the interfaces of a running pod is refused as its creation would be; a pod with annotations that are invalid
// since before can be changed otherwise.
func TestEditsOfInterfacesAreRefusedAsTheCreationOfThePod(t *testing.T) {
	s := serve(t, readFile(t, podManifest), cluster(t)...)
	const invalid = "t1/tub"
	for name, tt := range map[string]struct {
		before, after map[string]string
		denied        string
	}{
		"an interface is added":            {custom("t1/tap"), custom("t1/tap, t2/veth"), ""},
		"the first interface is added":     {nil, custom("t1/tap"), ""},
		"all interfaces are removed":       {custom("t1/tap"), nil, ""},
		"an invalid item":                  {custom("t1/tap"), custom(invalid), "the type must be tap, veth or memif"},
		"an invalid first item":            {nil, custom(invalid), "the type must be tap, veth or memif"},
		"an invalid option":                {custom("t1/tap"), withOptions("t1/tap", `{"t1": {"mtu": 1}}`), "mtu"},
		"invalid since before":             {custom(invalid), custom(invalid), ""},
		"another invalid item than before": {custom(invalid), custom("t1/tun"), "the type must be tap, veth or memif"},
		"more memifs than the limit":       {nil, custom("m1/memif, m2/memif, m3/memif"), "contivpp.io/memif"},
	} {
		t.Run(name, func(t *testing.T) {
			before := annotated(tt.before, 1, 1)
			after := annotated(tt.after, 1, 1)
			after.Labels = map[string]string{"changed": "yes"}
			texts := strings.Join(s.writes(t, after, before), "\n")
			if tt.denied == "" && texts != "" || !strings.Contains(texts, tt.denied) {
				t.Errorf("denied by %q, want %q", texts, tt.denied)
			}
		})
	}
}

// podCases are annotations of pods with two memifs in their limits; denied is a part of the denial, "" if the policy
// admits the pod.
var podCases = []struct {
	name        string
	annotations map[string]string
	denied      string
}{
	{"no annotation", nil, ""},
	{"all types", custom(" t1/tap , v1/veth/stub,m1/memif/blue"), ""},
	{"an empty annotation", custom(" "), ""},
	{
		"another network than DNS labels", custom("t1/tap/Blue"),
		`item "t1/tap/Blue": the network must be default, stub or the name of a custom network`,
	},
	{
		"a wrong type", custom("t1/tub"),
		`annotation contivpp.io/custom-if: item "t1/tub": the type must be tap, veth or memif`,
	},
	{"no type", custom("t1"), `item "t1": expected name/type or name/type/network`},
	{"an empty item", custom("t1/tap,"), `item "": expected name/type or name/type/network`},
	{"a long name", custom("a234567890123456/tap"), "the name must be a Linux interface name"},
	{"a reserved name", custom("lo/tap"), "the name must be a Linux interface name"},
	{"a name with a colon", custom("a:b/tap"), "the name must be a Linux interface name"},
	{"the main interface", custom("eth0/tap"), `item "eth0/tap": the name is taken by another interface of the pod`},
	{"a name twice", custom("t1/tap,t1/veth"), `item "t1/veth": the name is taken by another interface of the pod`},
	{
		"17 interfaces", custom(strings.TrimSuffix(strings.Repeat("t/tap,", 17), ",")),
		"17 interfaces, at most 16 are possible",
	},
	{
		"a long annotation", custom("t1/tap" + strings.Repeat(",", 1<<14)),
		"annotation contivpp.io/custom-if: 16390 bytes, at most 16384 are read",
	},
	{"control characters", custom("t\n1/tap"), `item "t\n1/tap": the name must`},
	{"three memifs and two in the limits", custom("m1/memif,m2/memif,m3/memif"),
		"the pod's containers have 2 of contivpp.io/memif and annotation contivpp.io/custom-if asks for 3; raise the limits, or ask for fewer"},
	{
		"valid options",
		withOptions("m1/memif, t1/tap",
			`{"m1": {"container": "vnf", "ringSize": 1024, "mode": "ip", "uid": 0}, "t1": {"mtu": 9600, "ips": ["fd00::1", "10.1.1.1/24"]}, "t1x": {}}`),
		`"t1x" is not an interface of contivpp.io/custom-if`,
	},
	{
		"options of no interface", map[string]string{pod.AnnotationOptions: `{"t1": {}}`},
		`"t1" is not an interface of contivpp.io/custom-if`,
	},
	{
		"no JSON", withOptions("t1/tap", `{"t1": {"mtu": 1400}`),
		"annotation contivpp.io/custom-if-options: expected JSON, interface name -> options",
	},
	{"a comma too many", withOptions("t1/tap", `{"t1": {"mtu": 1400,}}`), "expected JSON, interface name -> options"},
	{"a list", withOptions("t1/tap", `[]`), "expected JSON, interface name -> options"},
	{"blank options", withOptions("t1/tap", " "), "expected JSON, interface name -> options"},
	{"an interface twice", withOptions("t1/tap", `{"t1": {}, "t1": {}}`), `"t1" occurs twice`},
	{
		"an unknown option", withOptions("t1/tap", `{"t1": {"mac": "02:00:00:00:00:01", "mtuu": 1400}}`),
		`"t1": mtuu: unknown option; known are allowedAddresses`,
	},
	{"a small MTU", withOptions("t1/tap", `{"t1": {"mtu": 575}}`), `"t1": mtu: expected 576 to 9600 bytes, not "575"`},
	{
		"an MTU as text", withOptions("t1/tap", `{"t1": {"mtu": "1400"}}`),
		`"t1": mtu: expected 576 to 9600 bytes, not "\"1400\""`,
	},
	{
		"an MTU with a fraction", withOptions("t1/tap", `{"t1": {"mtu": 1400.5}}`),
		`"t1": mtu: expected 576 to 9600 bytes, not "1400.5"`,
	},
	{
		"a large ring", withOptions("m1/memif", `{"m1": {"ringSize":32768 }}`),
		`"m1": ringSize: expected 2 to 16384 slots, not "32768"`,
	},
	{
		"a ring that holds no packet", withOptions("m1/memif", `{"m1": {"ringSize": 2, "bufferSize": 64}}`),
		`"m1": ringSize 2 x bufferSize 64: the ring holds 128 bytes, and a packet of MTU 576 has 590; set a larger ringSize or bufferSize, or a smaller mtu`,
	},
	{
		"a ring that holds no packet of its MTU", withOptions("m1/memif", `{"m1": {"ringSize": 4, "mtu":9000}}`),
		`"m1": ringSize 4 x bufferSize 2048: the ring holds 8192 bytes, and a packet of MTU 9000 has 9014`,
	},
	{
		"a ring without room for the Ethernet header",
		withOptions("m1/memif", `{"m1": {"ringSize": 2, "bufferSize":4500, "mtu":9000}}`),
		`the ring holds 9000 bytes, and a packet of MTU 9000 has 9014`,
	},
	{
		"a ring without headers",
		withOptions("m1/memif", `{"m1": {"ringSize": 2, "bufferSize": 4500, "mtu": 9000, "mode" : "ip"}}`), "",
	},
	{
		"a ring that just holds its packet",
		withOptions("m1/memif", `{"m1": {"ringSize": 2, "bufferSize": 4507, "mtu": 9000}}`), "",
	},
	{
		"an option of memifs", withOptions("t1/tap", `{"t1": {"ringSize": 1024}}`),
		`"t1": ringSize: only an interface of type memif has this option`,
	},
	{
		"routes", withOptions("t1/tap, t2/veth",
			`{"t1": {"routes": [{"to": "10.2.0.0/16", "via": "10.1.0.9", "metric": 7}, {"to": "::/0"}], "mtu": 1400},
			"t2": {"defaultRoute": true, "ipForwarding" : false, "routes": []}}`), "",
	},
	{
		"an unknown option beside routes",
		withOptions("t1/tap", `{"t1": {"routes": [{"to": "10.2.0.0/16"}], "route": "10.2.0.0/16"}}`),
		`"t1": route: unknown option; known are allowedAddresses`,
	},
	{
		"addresses that move", withOptions("t1/tap",
			`{"t1": {"allowedAddresses": ["10.5.0.100", "fd05::/120"], "virtualRouters": [51 , 52]}}`), "",
	},
	{"VLANs", withOptions("t1/tap", `{"t1": {"vlans": [300 , "100-199"]}}`), ""},
	{"no VLANs", withOptions("t1/tap, t2/tap", `{"t1": {"vlans": null}, "t2": {"vlans": []}}`), ""},
	{
		"VLANs as text", withOptions("t1/tap", `{"t1": {"vlans": "100-199"}}`),
		`"t1": vlans: expected a JSON list such as [300, "100-199"], not "\"100-199\""`,
	},
	{
		"a VLAN above the highest", withOptions("t1/tap", `{"t1": {"vlans": [5, 4095]}}`),
		`"t1": vlans: "4095" is neither a VLAN of 1 to 4094 nor a range such as 100-199`,
	},
	{
		"a range of three", withOptions("t1/tap", `{"t1": {"vlans": ["1-2-3"]}}`),
		`"t1": vlans: "1-2-3" is neither a VLAN of 1 to 4094 nor a range such as 100-199`,
	},
	{
		"a range backwards", withOptions("t1/tap", `{"t1": {"vlans": ["20-10"]}}`),
		`"t1": vlans: "20-10" ends before it begins`,
	},
	{
		"a VLAN twice", withOptions("t1/tap", `{"t1": {"vlans": [170, "100-199", 150]}}`), `"t1": vlans: VLAN 150 occurs twice`,
	},
	{
		"a switch as text", withOptions("t1/tap", `{"t1": {"defaultRoute": "yes"}}`),
		`"t1": defaultRoute: expected true or false, not "\"yes\""`,
	},
	{
		"the DNS of a network", withOptions("t1/tap, m1/memif", `{"t1": {"dns": true}, "m1": {"dns": false}}`), "",
	},
	{
		"the DNS of two networks", withOptions("t1/tap, m1/memif", `{"m1": {"dns": true}, "t1": {"mtu": 1400, "dns" : true}}`),
		`"m1": dns: interface t1 has this option, and a CNI result has one DNS; remove one of both`,
	},
	{"DNS as text", withOptions("t1/tap", `{"t1": {"dns": "no"}}`), `"t1": dns: expected true or false, not "\"no\""`},
	{"escaped options", withOptions("t1/tap", `{"t\u0031": {"mt\u0075": 1400}}`), ""},
	{"pools", map[string]string{pod.AnnotationPools: `["a", "b"]`}, ""},
	{
		"no list of pools", map[string]string{pod.AnnotationPools: `a`},
		`annotation contivpp.io/ip-pools: expected a JSON list of pool names, not "a"`,
	},
	{"an empty name of a pool", map[string]string{pod.AnnotationPools: `[""]`}, "expected a JSON list of pool names"},
	{
		"64 pools with escapes",
		map[string]string{pod.AnnotationPools: `["\"a"` + strings.Repeat(`,"\u0022,\""`, pod.MaxPools-1) + `]`}, "",
	},
	{
		"65 pools", map[string]string{pod.AnnotationPools: `["a"` + strings.Repeat(`,"b"`, pod.MaxPools) + `]`},
		"annotation contivpp.io/ip-pools: 65 pools, at most 64 are possible",
	},
	{
		"as many pools as fit", map[string]string{pod.AnnotationPools: `["a"` + strings.Repeat(`,"b"`, 4094) + `]`},
		"annotation contivpp.io/ip-pools: 4095 pools, at most 64 are possible",
	},
	{"addresses", map[string]string{pod.AnnotationIPs: `["10.1.1.1/32", "fd00::1"]`}, ""},
	{
		"no address", map[string]string{pod.AnnotationIPs: `["10.1.1"]`},
		`annotation contivpp.io/ip-addresses: "10.1.1" is not an IPv4 or IPv6 address`,
	},
	{
		"a prefix", map[string]string{pod.AnnotationIPs: `["10.1.1.1/24"]`},
		`"10.1.1.1/24" is not an IPv4 or IPv6 address`,
	},
	{
		"no list of addresses", map[string]string{pod.AnnotationIPs: `10.1.1.1`},
		`expected a JSON list of addresses, not "10.1.1.1"`,
	},
	{
		"two IPv4 addresses", map[string]string{pod.AnnotationIPs: `["10.1.1.1", "10.1.1.2"]`},
		"10.1.1.2 is the second address of its family, one each is possible",
	},
	{
		"bandwidth limits",
		map[string]string{"kubernetes.io/ingress-bandwidth": "1.5Gi", "kubernetes.io/egress-bandwidth": "1e6"}, "",
	},
	{
		"a bandwidth limit with a unit", map[string]string{"kubernetes.io/egress-bandwidth": "1Mbit"},
		`annotation kubernetes.io/egress-bandwidth: expected a quantity such as 100M or 1.5Gi, not "1Mbit"`,
	},
	{
		"two wrong bandwidth limits",
		map[string]string{"kubernetes.io/ingress-bandwidth": "x", "kubernetes.io/egress-bandwidth": "999"},
		`annotation kubernetes.io/egress-bandwidth: expected 1k to 4T bits per second, not "999"`,
	},
	{
		"a bandwidth limit above all", map[string]string{"kubernetes.io/ingress-bandwidth": "1e99"},
		`annotation kubernetes.io/ingress-bandwidth: expected 1k to 4T bits per second, not "1e99"`,
	},
	{
		"a bandwidth limit in thousandths", map[string]string{"kubernetes.io/ingress-bandwidth": "1000000m"},
		`annotation kubernetes.io/ingress-bandwidth: expected a quantity`,
	},
	{
		"an unknown bandwidth limit", map[string]string{"kubernetes.io/in-bandwidth": "1M"},
		"annotation kubernetes.io/in-bandwidth: unknown limit; known are kubernetes.io/ingress-bandwidth and kubernetes.io/egress-bandwidth",
	},
	{"limits of options", map[string]string{
		pod.AnnotationCustom:  "t1/tap, t2/tap",
		pod.AnnotationOptions: `{"t1": {"rate": {"ingress": "1M", "egress": "2M"}, "dscp": "EF"}, "t2": {"rate": "1M", "burst": 20000}}`,
	}, ""},
	{"an unknown option beside limits", map[string]string{
		pod.AnnotationCustom:  "t1/tap",
		pod.AnnotationOptions: `{"t1": {"rate": {"ingress": "1M"}, "dcsp": 1}}`,
	}, `"t1": dcsp: unknown option; known are allowedAddresses, burst`},
	{
		"an empty limit",
		map[string]string{"kubernetes.io/ingress-bandwidth": " ", "example.org/ingress-bandwidth": "1M"}, "",
	},
	{"an unknown annotation", map[string]string{"contivpp.io/custom-fi": "t1/tub"}, ""},
}

// TestPolicyForPodsAgreesWithTheAgent compares the denials with the table and with the parsers of the agent, word by
// word.
func TestPolicyForPodsAgreesWithTheAgent(t *testing.T) {
	s := serve(t, readFile(t, podManifest), cluster(t)...)
	for _, tt := range podCases {
		p := annotated(tt.annotations, 1, 1)
		denials := s.creates(t, p)
		if tt.denied == "" && len(denials) > 0 ||
			tt.denied != "" && !strings.Contains(strings.Join(denials, "\n"), tt.denied) {
			t.Errorf("%s: denied with %q, want %q", tt.name, denials, tt.denied)
		}
		checkWords(t, p, denials)
	}
}

// checkWords requires that each denial is an error of the agent, or the beginning of one with details.
func checkWords(t testing.TB, p *corev1.Pod, denials []string) {
	t.Helper()
	all := agentErrors(p)
	for _, denial := range denials {
		if !slices.ContainsFunc(all, func(text string) bool { return strings.HasPrefix(text, denial) }) {
			t.Errorf("annotations %q:\ndenied with  %s\nthe agent has %q", p.Annotations, denial, all)
		}
	}
}

func TestPolicyForPodsLeavesOthersAlone(t *testing.T) {
	s := serve(t, readFile(t, podManifest), cluster(t)...)
	wrong := custom("t1/tub")
	onHost := annotated(wrong, 0, 0)
	onHost.Spec.HostNetwork = true
	claims := annotated(custom("m1/memif"), 0, 0)
	claims.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c"}}
	initial := annotated(custom("m1/memif"), 0, 0)
	initial.Spec.InitContainers = []corev1.Container{annotated(nil, 1, 0).Spec.Containers[0]}
	for name, p := range map[string]*corev1.Pod{
		"in the node's network":             onHost,
		"with claims":                       claims,
		"with a memif of an init container": initial,
	} {
		if denials := s.creates(t, p); len(denials) > 0 {
			t.Errorf("%s: %q", name, denials)
		}
	}
	if s.creates(t, annotated(wrong, 0, 0)) == nil || s.creates(t, annotated(custom("m1/memif"), 0, 0)) == nil {
		t.Error("the same annotations of a plain pod are admitted")
	}
}

// The longest annotations that the agent accepts stay within the cost limits: beyond them the policy would be ignored.
// A wrong pool shows that the policy is evaluated.
func TestLongestAnnotationsAreWithinTheCostLimit(t *testing.T) {
	s := serve(t, readFile(t, podManifest), cluster(t)...)
	fill := func(text string) string { return strings.Repeat(" ", 1<<14-len(text)) }
	names, options := []string{}, []string{}
	for i := range pod.MaxCustomInterfaces {
		names = append(names, fmt.Sprintf("interface-%05d/memif/%s", i, strings.Repeat("n", 63)))
		options = append(options,
			fmt.Sprintf(`"interface-%05d": {"container": "vnf", "ringSize": 1024, "bufferSize": 2048, "rxQueues": 1, "txQueues": 1, `+
				`"mtu": 1400, "mac": "02:00:00:00:00:%02x", "mode": "ethernet", "uid": 1, "gid": 1, "ips": ["10.1.1.1", "fd00::1"]}`, i, i))
	}
	ifs, opts, ips := strings.Join(names, ","), "{"+strings.Join(options, ",")+"}", `["10.1.1.1"XXXX, "fd00::1"]`
	pools := `["` + strings.Join(many(pod.MaxPools, strings.Repeat("p", 240)+"-%d-%d"), `","`) + `"]`
	p := annotated(map[string]string{
		pod.AnnotationCustom:  strings.Replace(ifs, ",", ","+fill(ifs), 1),
		pod.AnnotationOptions: strings.Replace(opts, ",", ","+fill(opts), 1),
		pod.AnnotationIPs:     strings.Replace(ips, "XXXX", fill(ips), 1),
		pod.AnnotationPools:   pools[:len(pools)-1] + fill(pools) + "]",
	}, 16, 0)
	if errs := agentErrors(p); len(errs) > 0 {
		t.Fatalf("the agent refuses the annotations: %.300q", errs)
	}
	if denials := s.creates(t, p); len(denials) > 0 {
		t.Errorf("denied: %.300q", denials)
	}
	p.Annotations[pod.AnnotationPools] = "[7" + strings.Repeat(" ", 1<<14-3) + "]"
	if denials := s.creates(t, p); len(denials) != 1 {
		t.Errorf("with a wrong pool: %d denials; the policy was not evaluated", len(denials))
	}
}

// TestPolicyForPodsRefusesNothingThatTheAgentAccepts compares random annotations: valid ones with a few changed
// characters.
func TestPolicyForPodsRefusesNothingThatTheAgentAccepts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := serve(t, readFile(t, podManifest), cluster(t)...)
	refused, accepted := 0, 0
	for range 1500 {
		p := annotated(randomAnnotations(random), random.Int64N(3), random.Int64N(2))
		denials, errs := s.creates(t, p), agentErrors(p)
		if len(denials) > 0 && len(errs) == 0 {
			t.Errorf("the agent accepts %q, and the policy denies it: %q", p.Annotations, denials)
		}
		if len(denials) > 0 {
			refused++
		} else if len(errs) == 0 {
			accepted++
		}
	}
	if refused < 200 || accepted < 200 {
		t.Errorf("%d pods refused, %d accepted: the comparison shows little", refused, accepted)
	}
}

func randomAnnotations(random *rand.Rand) map[string]string {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	mutated := func(text string) string {
		for range random.IntN(3) * random.IntN(2) {
			at := random.IntN(len(text) + 1)
			text = text[:at] +
				pick("", " ", ",", "/", `"`, "{", "}", "[", "]", ":", `\`, "0", "a", "é", "\n", "\u2003", "null") +
				text[min(len(text), at+random.IntN(2)):]
		}
		return strings.ToValidUTF8(text, "?")
	}
	a := make(map[string]string)
	var items, names []string
	for range random.IntN(4) {
		name := pick("t1", "m1", "v1", "x-2", "a.b", "eth1")
		names = append(names, name)
		items = append(items,
			name+pick("/", " / ")+pick("tap", "veth", "memif", "memif")+pick("", "/blue", "/stub", "/default", "/ b1"))
	}
	if len(items) > 0 {
		a[pod.AnnotationCustom] = mutated(strings.Join(items, pick(",", ", ", " ,")))
	}
	if random.IntN(2) == 0 {
		options := make(map[string]map[string]any)
		for _, name := range names {
			values := map[string]any{
				"mtu": random.IntN(10000), "mac": pick("02:00:00:00:00:01", "x"), "ips": []string{
					pick("10.1.1.1", "::1", "fd00::1/64"),
				},
				"rxQueues": random.IntN(300), "ringSize": 1 << random.IntN(16), "bufferSize": 32 << random.IntN(12),
				"mode": pick("ip", "ethernet"), "container": pick("vnf", ":", "}", "{"), "uid": random.IntN(3),
				"mtuu": 1,
			}
			options[name] = make(map[string]any)
			for _, k := range slices.Sorted(func(yield func(string) bool) {
				for k := range values {
					if !yield(k) {
						return
					}
				}
			}) {
				if random.IntN(6) == 0 {
					options[name][k] = values[k]
				}
			}
		}
		raw, _ := json.Marshal(options)
		a[pod.AnnotationOptions] = mutated(string(raw))
	}
	if random.IntN(3) == 0 {
		a[pod.AnnotationPools] = mutated(pick(`["a"]`, `["a", "b"]`, "[]", "null", `["a\u0062"]`))
	}
	if random.IntN(3) == 0 {
		a[pod.AnnotationIPs] = mutated(pick(`["10.1.1.1"]`, `["10.1.1.1/32", "fd00::1"]`, "[]", "null",
			`["fe80::1%eth0"]`, `["::ffff:10.1.1.1"]`, `["10.01.1.1"]`, `["fd00::1/128", "FD00::2"]`))
	}
	return a
}
