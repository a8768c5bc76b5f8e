package lint_test

import (
	"bytes"
	"testing"

	"github.com/weftnet/weft/k8s/lint"
)

// FuzzRead reads invalid and odd manifests: Read ends, and each problem has a file and a reason.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"kind: Pod\nmetadata: {name: p, annotations: {contivpp.io/custom-if: t1/tub}}\nspec: {containers: [{name: a}]}\n---\n",
		"items: [{items: [1, {kind: Namespace, metadata: {annotations: {contivpp.io/ip-pools: x}}}]}]",
		"kind: 1\nmetadata: [1]\nspec: {template: 7, containers: [{name: 3, resources: {limits: {contivpp.io/memif: x}}}, 4]}",
		`{"kind":"Pod","spec":{"containers":[null]}}{"kind":"Pod"}`, "---\n---\n- 1\n", "&a [*a]",
		"{kind: Service, metadata: {annotations: {contivpp.io/endpoint-selector: 'a in (b', contivpp.io/x: y}}, spec: 7}",
		"{kind: Service, metadata: {annotations: {contivpp.io/endpoint-selector: a}}, spec: {type: ExternalName, selector: [a]}}",
		"{kind: Pod, metadata: {annotations: {contivpp.io/service-endpoint-if: t1}}, spec: {hostNetwork: 1, containers: [{name: a}]}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var report lint.Report
		err := report.Read("f", bytes.NewReader(text))
		for _, fault := range report.Faults {
			if fault.File != "f" || fault.Reason == "" {
				t.Errorf("%+v of %q (error %v)", fault, text, err)
			}
		}
	})
}
