package lint_test

import (
	"strings"
	"testing"

	"github.com/weftnet/weft/k8s/lint"
)

// TestEachObjectIsCheckedRefusedOrCounted has objects of all groups: lint checks an object, names it, or counts it as
// not checked.
func TestEachObjectIsCheckedRefusedOrCounted(t *testing.T) {
	for manifest, want := range map[string]string{
		"{apiVersion: contivpp.io/v1, kind: CustomNetwrk}":          `kind: unknown kind "CustomNetwrk" of the group contivpp.io; did you mean CustomNetwork?`,
		"{apiVersion: contivpp.io/v1, kind: ServiceFunctionChains}": "did you mean ServiceFunctionChain?",
		"{apiVersion: contivpp.io/v1, kind: Zzz}":                   "; known are CustomNetwork, ExternalInterface, IPBlock, IPPool, NodeNetwork, PodInterfaces, WeftConfig",
		"{apiVersion: contivpp.io/v1}":                              `unknown kind ""`,
		"{apiVersion: contivpp.io/v1alpha1, kind: CustomNetwork}":   `apiVersion: unknown version "v1alpha1" of the group contivpp.io: the version is contivpp.io/v1`,
		"{apiVersion: contivpp.io, kind: CustomNetwork}":            `unknown version "" of the group contivpp.io`,
		"{apiVersion: contivp.io/v1, kind: IPPool}":                 `"contivp.io/v1" does not have the kind IPPool; did you mean contivpp.io/v1?`,
		"{kind: IPPool}":                                          `"" does not have the kind IPPool`,
		"{apiVersion: v1, kind: IPPool}":                          `"v1" does not have the kind IPPool`,
		"{apiVersion: config.contiv.vpp/v1, kind: Other}":         "the group is Contiv-VPP's",
		"{apiVersion: crd.projectcalico.org/v1, kind: IPPool}":    "1 not checked",
		"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy}": "1 not checked",
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {group: contivpp.io, scope: Cluster, names: {plural: ippools}}}":          "1 not checked",
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {group: contivpp.io, scope: Namespaced, names: {plural: podinterfaces}}}": "1 not checked",
		"{apiVersion: contivpp.io/v1, kind: IPBlock, spec: {nod: a}}":                                                                                          "spec.nod: unknown key; did you mean node?",
		"{apiVersion: v1, kind: List, items: [7]}":                                                                                                                                                       "items[0]: expected an object of Kubernetes, not",
		"{apiVersion: contivpp.io/v1, kind: CustomNetworkList, items: [{spec: {type: L4}}]}":                                                                                                             "spec.type: should be one of [L2 L3]",
		"{apiVersion: contivpp.io/v1, kind: CustomNetworkList, items: [{kind: Pod, spec: {}}]}":                                                                                                          "1 not checked",
		"{kind: PodTemplate, template: {metadata: {annotations: {contivpp.io/ip-pools: x}}, spec: {containers: [{name: a}]}}}":                                                                           "expected a JSON list of pool names",
		"{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {annotations: {contivpp.io/custom-if: t1/tub}}, spec: {domain: {}}}":                                                       "metadata.annotations[contivpp.io/custom-if]",
		"{apiVersion: kubevirt.io/v1, kind: VirtualMachine, spec: {template: {metadata: {annotations: {contivpp.io/custom-if: t1/tub}}, spec: {domain: {}}}}}":                                           "spec.template.metadata.annotations[contivpp.io/custom-if]",
		"{apiVersion: pool.kubevirt.io/v1beta1, kind: VirtualMachinePool, spec: {virtualMachineTemplate: {spec: {template: {metadata: {annotations: {contivpp.io/ip-pools: x}}, spec: {domain: {}}}}}}}": "expected a JSON list of pool names",
		"{apiVersion: notkubevirt.io/v1, kind: VirtualMachineInstance, metadata: {annotations: {contivpp.io/custom-if: t1/tub}}, spec: {domain: {}}}":                                                    "1 not checked",
	} {
		var r lint.Report
		if err := r.Read("f", strings.NewReader(manifest)); err != nil {
			t.Fatal(err)
		}
		said := saidOf(t, manifest)
		if r.Skipped == 1 && said == "" {
			said = "1 not checked"
		}
		if !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", manifest, said, want)
		}
	}
}

// A Service selects pods of its namespace only, also without a namespace in the files.
func TestAServiceIsComparedWithPodsOfItsNamespace(t *testing.T) {
	const service = "{kind: Service, metadata: {namespace: shop, name: s}, spec: {selector: {app: a}}}"
	for namespace, isNamed := range map[string]bool{"shop": true, "lab": false} {
		pod := "{kind: Pod, metadata: {namespace: " + namespace + ", name: p, labels: {app: a}, annotations: " +
			"{contivpp.io/custom-if: t1/tap, contivpp.io/service-endpoint-if: t1}}, spec: {containers: [{name: a}]}}"
		said := saidOf(t, service+"\n---\n"+pod)
		if named := strings.Contains(said, "spec.selector: the endpoints of this Service are on eth0"); named != isNamed {
			t.Errorf("pod of the namespace %s: %q", namespace, said)
		}
	}
}
