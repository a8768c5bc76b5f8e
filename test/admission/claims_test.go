package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/weftnet/weft/k8s/lint"
	"github.com/weftnet/weft/pod"
)

// claimManifest is also the source of the chart's policy for the parameters of claims.
const claimManifest = "../../k8s/manifests/claim-parameters.yaml"

// denials returns the texts with which the policies deny an object of resource.k8s.io.
func (s *server) denials(
	t testing.TB, operation admission.Operation, resource string, o runtime.Object,
) (texts []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	group := resourceapi.SchemeGroupVersion
	var old runtime.Object
	if operation == admission.Update {
		old = o
	}
	attributes := admission.NewAttributesRecord(o, old, o.GetObjectKind().GroupVersionKind(), "a", "c",
		group.WithResource(resource), "",
		operation, nil, false, &user.DefaultInfo{Name: "me"})
	err := s.plugin.Validate(ctx, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	if err == nil {
		return nil
	}
	var denied *apierrors.StatusError
	if !errors.As(err, &denied) || denied.ErrStatus.Details == nil {
		t.Fatalf("the API server fails: %v", err)
	}
	for _, c := range denied.ErrStatus.Details.Causes {
		_, text, _ := strings.Cut(c.Message, " denied request: ")
		texts = append(texts, text)
	}
	return texts
}

// createsClaim returns the denials of a claim, which a template with the same content must have too.
func (s *server) createsClaim(t testing.TB, spec resourceapi.ResourceClaimSpec) []string {
	t.Helper()
	claim, template := claimOf(spec), templateOf(spec)
	denied := s.denials(t, admission.Create, "resourceclaims", claim)
	if of := s.denials(t, admission.Create, "resourceclaimtemplates", template); !slices.Equal(of, denied) {
		t.Errorf("the claim is denied with %q, its template with %q", denied, of)
	}
	return denied
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: kind}
}

func claimOf(spec resourceapi.ResourceClaimSpec) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		TypeMeta:   typeMeta("ResourceClaim"),
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c"},
		Spec:       spec,
	}
}

func templateOf(spec resourceapi.ResourceClaimSpec) *resourceapi.ResourceClaimTemplate {
	return &resourceapi.ResourceClaimTemplate{
		TypeMeta:   typeMeta("ResourceClaimTemplate"),
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c"},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	}
}

// linted returns the texts of weftctl lint for an object.
func linted(t testing.TB, o any) (texts []string) {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	var report lint.Report
	must(t, report.Read("claim.json", bytes.NewReader(text)))
	report.Finish()
	for _, f := range report.Faults {
		if !strings.Contains(f.Reason, ": role: only on a direct network") { // policy and driver do not know networks
			texts = append(texts, f.Reason)
		}
	}
	return texts
}

// driverErrors are the errors with which the driver refuses a claim: at most one for each request of a memif.
func driverErrors(spec resourceapi.ResourceClaimSpec) (texts []string) {
	for _, r := range spec.Devices.Requests {
		var p pod.ClaimParameters
		var err error
		for _, c := range spec.Devices.Config {
			if c.Opaque != nil && c.Opaque.Driver == pod.ClaimDriver && pod.ConcernsRequest(c.Requests, r.Name) &&
				err == nil {
				err = p.Merge(c.Opaque.Parameters.Raw)
			}
		}
		for n := range int(max(1, r.Exactly.Count)) {
			if err == nil {
				_, err = p.Named(r.Name, n, int(max(1, r.Exactly.Count))).Request()
			}
		}
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	return texts
}

// configured is a configuration for requests of a claim; parameters without version and kind get them.
func configured(parameters string, requests ...string) resourceapi.DeviceClaimConfiguration {
	if !strings.Contains(parameters, "apiVersion") {
		parameters = strings.Replace(parameters, "{", `{"apiVersion":"contivpp.io/v1","kind":"MemifParameters",`, 1)
		parameters = strings.Replace(parameters, ",}", "}", 1)
	}
	return resourceapi.DeviceClaimConfiguration{
		Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver:     pod.ClaimDriver,
				Parameters: runtime.RawExtension{Raw: []byte(parameters)},
			},
		},
	}
}

// claiming is a claim with requests "memif" of one memif and "two" of the given number of them.
func claiming(count int64, configs ...resourceapi.DeviceClaimConfiguration) resourceapi.ResourceClaimSpec {
	request := func(name string, count int64) resourceapi.DeviceRequest {
		return resourceapi.DeviceRequest{
			Name: name,
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: pod.ClaimDriver,
				Count:           count,
				AllocationMode:  "ExactCount",
			},
		}
	}
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{request("memif", 1), request("two", count)}, Config: configs,
	}}
}

// claimCases are parameters of a claim; denied is a part of the text, "" if the policy admits the claim.
var claimCases = []struct{ name, parameters, denied string }{
	{"none", `{}`, ""},
	{
		"all",
		`{"interface":"fast","network":"blue","options":{"ringSize":2048,"bufferSize":2048,"rxQueues":2,"txQueues":1,"mtu":9600,"mode":"ip",` +
			`"role":"client","uid":0,"gid":4294967294,"mac":"02-00-00-00-00-01","ips":["10.1.1.1","fd00::1/64"]}}`, "",
	},
	{"null", `{"interface":null,"network":null,"options":{"uid":null,"ips":null}}`, ""},
	{
		"an unknown parameter", `{"networks":"blue"}`,
		"parameters: networks: unknown parameter; known are apiVersion, kind, delegate, interface, network and options",
	},
	{"a device for delegates", `{"delegate":true,"interface":"fast","network":"","options":{}}`, ""},
	{"a device that is not for delegates", `{"delegate":false,"network":"blue","options":{"mtu":1400}}`, ""},
	{
		"a device for delegates with a network", `{"delegate":true,"network":"blue"}`,
		"request memif: delegate: the NetworkAttachmentDefinition has network and options",
	},
	{
		"a device for delegates with options", `{"delegate":true,"options":{"mtu":1400}}`,
		"request memif: delegate: the NetworkAttachmentDefinition has network and options",
	},
	{"delegate as text", `{"delegate":"yes"}`, `parameters: delegate: expected true or false, not "\"yes\""`},
	{"a network as a number", `{"network":7}`, `parameters: network: expected a string, not "7"`},
	{"an interface as a list", `{"interface":["a"]}`, `parameters: interface: expected a string`},
	{
		"a wrong network", `{"network":"Blue"}`,
		`request memif: network "Blue": the network must be default, stub or the name of a custom network`,
	},
	{
		"a reserved interface", `{"interface":"lo"}`,
		`request memif: interface "lo": the name must be a Linux interface name`,
	},
	{
		"a name that is too long with a number", `{"interface":"abcdefghijklmno"}`,
		`request two: interface "abcdefghijklmno1": the name must be`,
	},
	{
		"a name that is too long with two digits", `{"interface":"abcdefghijklmn"}`,
		`request two: interface "abcdefghijklmn10": the name must be`,
	},
	{
		"another version", `{"apiVersion":"contivpp.io/v2","kind":"MemifParameters"}`,
		`parameters: apiVersion "contivpp.io/v2" and kind "MemifParameters": expected contivpp.io/v1 and MemifParameters`,
	},
	{"options as a list", `{"options":[]}`, "parameters: options: expected a JSON object"},
	{"no options", `{"options":null}`, "parameters: options: expected a JSON object"},
	{
		"an unknown option", `{"options":{"ringsize":2}}`,
		"parameters: options: ringsize: unknown option; known are allowedAddresses",
	},
	{"a small ring", `{"options":{"ringSize":1}}`, `parameters: options: ringSize: expected 2 to 16384 slots, not "1"`},
	{
		"no power of two", `{"options":{"ringSize":100}}`,
		`parameters: options: ringSize: expected a power of two, not 100`,
	},
	{
		"a ring that holds no packet", `{"options":{"ringSize":2,"bufferSize":64}}`,
		"request memif: options: ringSize 2 x bufferSize 64: the ring holds 128 bytes, and a packet of MTU 576 has 590; set a larger ringSize or bufferSize, or a smaller mtu",
	},
	{
		"a ring that holds no packet of its MTU", `{"options":{"ringSize":128,"bufferSize":64,"mtu":9000}}`,
		"the ring holds 8192 bytes, and a packet of MTU 9000 has 9014",
	},
	{
		"a ring without room for the Ethernet header",
		`{"options":{"ringSize":2,"bufferSize":4500,"mtu":9000,"mode":"ethernet"}}`,
		"the ring holds 9000 bytes, and a packet of MTU 9000 has 9014",
	},
	{"a ring that just holds its packet", `{"options":{"ringSize":2,"bufferSize":4507,"mtu":9000}}`, ""},
	{"a ring without headers", `{"options":{"ringSize":2,"bufferSize":4500,"mtu":9000,"mode":"ip"}}`, ""},
	{
		"a short ring without headers", `{"options":{"ringSize":2,"bufferSize":64,"mode":"ip"}}`,
		"the ring holds 128 bytes, and a packet of MTU 576 has 576",
	},
	{"a large MTU", `{"options":{"mtu":9601}}`, `parameters: options: mtu: expected 576 to 9600 bytes, not "9601"`},
	{"a fraction", `{"options":{"mtu":1400.5}}`, `parameters: options: mtu: expected 576 to 9600 bytes`},
	{
		"a number as text", `{"options":{"rxQueues":"2"}}`,
		`parameters: options: rxQueues: expected 1 to 255 queues, not "\"2\""`,
	},
	{
		"null as a number", `{"options":{"txQueues":null}}`,
		`parameters: options: txQueues: expected 1 to 255 queues, not "null"`,
	},
	{
		"a large buffer", `{"options":{"bufferSize":65537}}`,
		`parameters: options: bufferSize: expected 64 to 65536 bytes, not "65537"`,
	},
	{
		"a reserved group", `{"options":{"gid":4294967295}}`,
		`parameters: options: gid: expected a number from 0 to 4294967294, not "4294967295"`,
	},
	{"a mode", `{"options":{"mode":"l2"}}`, `parameters: options: mode: expected "ethernet" or "ip", not "\"l2\""`},
	{
		"a role", `{"options":{"role":"Server"}}`,
		`parameters: options: role: expected "client" or "server", not "\"Server\""`,
	},
	{
		"a group address", `{"options":{"mac":"03:00:00:00:00:01"}}`,
		`parameters: options: mac: expected a unicast MAC of 6 octets, not "\"03:00:00:00:00:01\""`,
	},
	{"MAC as a number", `{"options":{"mac":2}}`, `parameters: options: mac: expected a MAC, not "2"`},
	{
		"zero MAC", `{"options":{"mac":"0000.0000.0000"}}`,
		`parameters: options: mac: expected a unicast MAC of 6 octets`,
	},
	{"no list", `{"options":{"ips":"10.1.1.1"}}`, `parameters: options: ips: expected a JSON list of addresses`},
	{
		"no address", `{"options":{"ips":["10.1.1"]}}`,
		`parameters: options: ips: "10.1.1" is not an IPv4 or IPv6 address`,
	},
	{
		"two addresses of a family", `{"options":{"ips":["10.1.1.1","fd00::1","10.1.1.2/24"]}}`,
		`parameters: options: ips: 10.1.1.2 is the second address of its family, one each is possible`,
	},
	{
		"a container", `{"options":{"container":"vnf"}}`,
		"request memif: options: container: the pod's spec says which containers have the claim",
	},
	{
		"no container", `{"options":{"container":"Vnf"}}`,
		`parameters: options: container: expected the name of a container of the pod, not "\"Vnf\""`,
	},
}

// serveClaims denies also what it cannot evaluate, which an API server admits: a wrong expression must not hide.
func serveClaims(t testing.TB) *server {
	t.Helper()
	all := readFile(t, claimManifest)
	fail := admissionv1.Fail
	for _, p := range all.policies {
		p.Spec.FailurePolicy = &fail
	}
	return serve(t, all, cluster(t)...)
}

// TestPolicyForClaimsAgreesWithLint compares the denials with the table, with weftctl lint word by word, and with the
// driver.
func TestPolicyForClaimsAgreesWithLint(t *testing.T) {
	s := serveClaims(t)
	for _, tt := range claimCases {
		spec := claiming(10, configured(tt.parameters))
		denials := s.createsClaim(t, spec)
		if tt.denied == "" && len(denials) > 0 ||
			tt.denied != "" && !strings.Contains(strings.Join(denials, "\n"), tt.denied) {
			t.Errorf("%s: denied with %q, want %q", tt.name, denials, tt.denied)
		}
		if refused := len(driverErrors(spec)) > 0; refused != (tt.denied != "") {
			t.Errorf("%s: the driver refuses it: %v", tt.name, refused)
		}
		checkLinted(t, tt.parameters, denials, linted(t, claimOf(spec)))
		checkLinted(t, tt.parameters, denials, linted(t, templateOf(spec)))
	}
}

// checkLinted requires denials and problems of lint, or neither, and that each denial is a problem, or the beginning of
// one.
func checkLinted(t testing.TB, of string, denials, problems []string) {
	t.Helper()
	if (len(denials) > 0) != (len(problems) > 0) {
		t.Errorf("%s:\ndenied with %q\nlint has    %q", of, denials, problems)
	}
	for _, denial := range denials {
		if !slices.ContainsFunc(problems, func(text string) bool { return strings.HasPrefix(text, denial) }) {
			t.Errorf("%s:\ndenied with %s\nlint has    %q", of, denial, problems)
		}
	}
}

func TestConfigurationsOfAClaimAreMergedByRequest(t *testing.T) {
	s := serveClaims(t)
	for _, tt := range []struct {
		name    string
		configs []resourceapi.DeviceClaimConfiguration
		denied  bool
	}{
		{
			"a valid name after an invalid one",
			[]resourceapi.DeviceClaimConfiguration{
				configured(`{"interface":"lo"}`), configured(`{"interface":"fast"}`),
			},
			false,
		},
		{
			"an invalid name after a valid one",
			[]resourceapi.DeviceClaimConfiguration{
				configured(`{"interface":"fast"}`), configured(`{"interface":"l:o"}`, "memif"),
			},
			true,
		},
		{
			"a container in the first one",
			[]resourceapi.DeviceClaimConfiguration{
				configured(`{"options":{"container":"a"}}`, "two"), configured(`{"options":{"mtu":1400}}`),
			},
			true,
		},
		{
			"the name of the request",
			[]resourceapi.DeviceClaimConfiguration{configured(`{"interface":"l:o"}`), configured(`{"interface":""}`)},
			false,
		},
		{
			"a ring and buffers that together hold no packet",
			[]resourceapi.DeviceClaimConfiguration{
				configured(`{"options":{"ringSize":2}}`), configured(`{"options":{"bufferSize":64}}`),
			},
			true,
		},
		{
			"larger buffers in the second one",
			[]resourceapi.DeviceClaimConfiguration{
				configured(`{"options":{"ringSize":2,"bufferSize":64}}`), configured(`{"options":{"bufferSize":2048}}`),
			},
			false,
		},
		{
			"an invalid option of the second one",
			[]resourceapi.DeviceClaimConfiguration{configured(`{}`), configured(`{"options":{"mtu":1}}`, "two")}, true,
		},
	} {
		spec := claiming(1, tt.configs...)
		denials := s.createsClaim(t, spec)
		if (len(denials) > 0) != tt.denied {
			t.Errorf("%s: denied with %q", tt.name, denials)
		}
		checkLinted(t, tt.name, denials, linted(t, claimOf(spec)))
	}
}

func TestPolicyForClaimsValidatesClassesAndLeavesOthersAlone(t *testing.T) {
	s := serveClaims(t)
	wrong := configured(`{"options":{"mtu":1}}`)
	class := &resourceapi.DeviceClass{TypeMeta: typeMeta("DeviceClass"), ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: resourceapi.DeviceClassSpec{
			Config: []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: wrong.DeviceConfiguration}},
		}}
	for _, operation := range []admission.Operation{admission.Create, admission.Update} {
		denials := s.denials(t, operation, "deviceclasses", class)
		if len(denials) != 1 {
			t.Errorf("%s of a class with a wrong option: %q", operation, denials)
		}
		checkLinted(t, "class", denials, linted(t, class))
	}
	if denials := s.denials(t, admission.Update, "resourceclaims", claimOf(claiming(1, wrong))); len(denials) > 0 {
		t.Errorf("the change of a claim, such as the removal of its finalizer, is denied: %q", denials)
	}
	wrong.Opaque.Driver = "gpu.example.com"
	if denials := s.createsClaim(t, claiming(1, wrong)); len(denials) > 0 {
		t.Errorf("parameters of another driver are denied: %q", denials)
	}
	unrelated := claiming(1, configured(`{"interface":"lo"}`))
	for i := range unrelated.Devices.Requests {
		unrelated.Devices.Requests[i].Exactly.DeviceClassName = "gpu"
	}
	if denials := s.createsClaim(t, unrelated); len(denials) > 0 {
		t.Errorf("a claim of no memif is denied: %q", denials)
	}
}

// The largest parameters that the API server stores, 32 configurations of 10 KiB (maxima of k8s.io/api/resource/v1),
// stay within the cost limits: beyond them the policy would be ignored. A wrong option at the end shows that the policy
// is evaluated.
func TestLargestClaimIsWithinTheCostLimit(t *testing.T) {
	s := serveClaims(t)
	fill := func(text string) string {
		return strings.Replace(text, "{",
			"{"+strings.Repeat(" ", 10<<10-len(text)-len(`"apiVersion":"contivpp.io/v1","kind":"MemifParameters",`)), 1)
	}
	var configs []resourceapi.DeviceClaimConfiguration
	for range resourceapi.DeviceConfigMaxSize {
		configs = append(configs, configured(fill(claimCases[1].parameters)))
	}
	spec := claiming(1, configs...)
	for i := range resourceapi.DeviceRequestsMaxSize - 2 {
		r := *spec.Devices.Requests[0].DeepCopy()
		r.Name = fmt.Sprint("memif-", i)
		spec.Devices.Requests = append(spec.Devices.Requests, r)
	}
	if denials := s.createsClaim(t, spec); len(denials) > 0 {
		t.Errorf("denied: %.300q", denials)
	}
	spec.Devices.Config[len(configs)-1] = configured(`{"options":{"container":"vnf"}}`)
	if denials := s.createsClaim(t, spec); len(denials) != 1 {
		t.Errorf("with a container: %d denials; the policy was not evaluated", len(denials))
	}
	var keys []string
	for i := range 900 {
		keys = append(keys, fmt.Sprintf(`"k%d":%d`, i, i))
	}
	spec.Devices.Config[len(configs)-1] = configured(`{"options":{` + strings.Join(keys, ",") + `}}`)
	if denials := s.createsClaim(t, spec); len(denials) != 1 {
		t.Errorf("with 900 unknown options: %.300q; the policy was not evaluated", denials)
	}
}

// TestPolicyForClaimsAgreesOnRandomParameters compares policy, lint and driver.
func TestPolicyForClaimsAgreesOnRandomParameters(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := serveClaims(t)
	refused, accepted := 0, 0
	for range 1500 {
		spec := claiming(1+random.Int64N(12), configured(randomParameters(random)))
		if random.IntN(3) == 0 {
			spec.Devices.Config = append(spec.Devices.Config,
				configured(randomParameters(random), []string{"memif", "two"}[random.IntN(2)]))
		}
		denials, errs := s.createsClaim(t, spec), driverErrors(spec)
		text, _ := json.Marshal(spec.Devices.Config)
		checkLinted(t, string(text), denials, linted(t, claimOf(spec)))
		if (len(denials) > 0) != (len(errs) > 0) {
			t.Errorf("%s:\ndenied with    %q\nthe driver has %q", text, denials, errs)
		}
		if len(denials) > 0 {
			refused++
		} else {
			accepted++
		}
	}
	if refused < 300 || accepted < 300 {
		t.Errorf("%d claims refused, %d accepted: the comparison shows little", refused, accepted)
	}
}

// randomParameters are valid ones and, seldom, one value of another key or kind.
func randomParameters(random *rand.Rand) string {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	anything := func() string {
		return pick("null", "7", "-1", "1.5", "true", `"x"`, `""`, `"a b"`, `"é"`, "[]", "{}", `["a"]`, `[null]`,
			`[7]`, "4294967295", "18446744073709551616", `"lo"`,
			`"fe80::1%eth0"`, `["::ffff:10.1.1.1"]`, `["10.01.1.1"]`, `["10.1.1.1","10.1.1.2"]`, `"02:00:00-00:00:01"`)
	}
	valid := map[string][]string{
		"mtu": {"1400", "576", "9600"}, "rxQueues": {"1", "255"}, "ringSize": {"1024", "16384"},
		"bufferSize": {"64", "65536"}, "mode": {`"ip"`, `"ethernet"`},
		"role": {`"client"`}, "uid": {"0", "4294967294"}, "gid": {"7"},
		"mac":       {`"02:00:00:00:00:01"`, `"0200.0000.0001"`},
		"ips":       {`["10.1.1.1"]`, `["fd00::1/64","10.1.1.1/24"]`, "[]"},
		"container": {"1"}, "Mtu": {"1"},
	}
	var options []string
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range valid {
			if !yield(k) {
				return
			}
		}
	}) {
		switch {
		case random.IntN(60) == 0:
			options = append(options, fmt.Sprintf("%q:%s", k, anything()))
		case random.IntN(5) == 0 && k != "container" && k != "Mtu":
			options = append(options, fmt.Sprintf("%q:%s", k, pick(valid[k]...)))
		}
	}
	var all []string
	for k, v := range map[string]string{
		"interface": pick(`"fast"`, `"a.b"`, `"abcdefghijklm"`), "network": pick(`"blue"`, `"stub"`),
		"options": "{" + strings.Join(options, ",") + "}", "net": anything(),
		"delegate": pick("true", "false"),
	} {
		switch {
		case random.IntN(40) == 0:
			v = anything()
		case k == "net" || k != "options" && random.IntN(2) == 0:
			continue
		}
		all = append(all, fmt.Sprintf("%q:%s", k, v))
	}
	return "{" + strings.Join(all, ",") + "}"
}
