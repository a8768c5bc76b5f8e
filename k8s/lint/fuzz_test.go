package lint_test

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/weftnet/weft/k8s/lint"
)

// ofGo matches texts that name types or functions of Go.
var ofGo = regexp.MustCompile(
	`Go (struct|value)|cannot unmarshal|map\[string\]|interface \{|json: |yaml: |strconv\.|netip\.|v1\.[A-Z]|time: `)

// FuzzRead reads invalid and odd manifests: Read ends, and each problem has a file and a reason.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"kind: Pod\nmetadata: {name: p, annotations: {contivpp.io/custom-if: t1/tub}}\nspec: {containers: [{name: a}]}\n---\n",
		"items: [{items: [1, {kind: Namespace, metadata: {annotations: {contivpp.io/ip-pools: x}}}]}]",
		"kind: 1\nmetadata: [1]\nspec: {template: 7, containers: [{name: 3, resources: {limits: {contivpp.io/memif: x}}}, 4]}",
		`{"kind":"Pod","spec":{"containers":[null]}}{"kind":"Pod"}`, "---\n---\n- 1\n", "&a [*a]",
		"{kind: Service, metadata: {annotations: {contivpp.io/endpoint-selector: 'a in (b', contivpp.io/x: y}}, spec: 7}",
		"{kind: Service, metadata: {annotations: {contivpp.io/endpoint-selector: a}}, spec: {type: ExternalName, selector: [a]}}",
		"{apiVersion: contivpp.io/v1, kind: CustomNetwork, metadata: {name: 1}, spec: {type: [], cidrs: [1], mtu: x, subnetCIDR: y}}",
		"apiVersion: contivpp.io/v1\nkind: IPPool\nmetadata: {name: p}\nspec: &s {cidr: 10.1.0.0/16, cidr: 7, blockSize: 1.5}\nstatus: *s\n",
		"{apiVersion: contivpp.io/v1, kind: ExternalInterface, spec: {network: stub, nodes: [{node: a, ips: [x, 10.1.1.1/24]}, {node: a}, 7]}}",
		"{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, spec: {config: '{\"type\":\"weft-cni\",\"options\":{\"mtu\":[]}}'}}",
		"{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, spec: {config: '{\"type\":7}'}}",
		"{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {devices: {requests: [{name: a, exactly: {deviceClassName: memif.contivpp.io, count: -1}}, 7], config: [{opaque: {driver: memif.contivpp.io, parameters: [1]}}, {requests: a}]}}}\n---\nkind: Pod\nspec: {resourceClaims: [{resourceClaimName: c}, 1], containers: []}",
		"{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, spec: {spec: {devices: {requests: [{firstAvailable: [{count: x}]}], config: [{opaque: {driver: memif.contivpp.io}}]}}}}",
		"{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {namespace: a}, spec: {config: [{opaque: {driver: memif.contivpp.io, parameters: {options: 1, interface: a}}}]}}",
		"{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: [a]}",
		"{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {devices: {requests: {a: b}}}}",
		"{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {devices: []}}",
		"{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: c}, spec: {spec: [a]}}",
		"{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: c}, spec: [a]}",
		"{kind: Pod, metadata: {annotations: {contivpp.io/service-endpoint-if: t1}}, spec: {hostNetwork: 1, containers: [{name: a}]}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var report lint.Report
		err := report.Read("f", bytes.NewReader(text))
		report.Finish()
		lines := bytes.Count(text, []byte("\n")) + 1
		for _, fault := range append(report.Faults, report.Notes...) {
			if fault.File != "f" || fault.Reason == "" || fault.Line < 1 || fault.Line > lines ||
				ofGo.MatchString(fault.String()) {
				t.Errorf("%+v of %q (error %v)", fault, text, err)
			}
		}
		if err != nil && ofGo.MatchString(err.Error()) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
