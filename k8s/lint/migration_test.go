package lint_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/k8s/lint"
)

// promises are manifests for the rows of the tables in docs/migration.md, by the first cell: what lint says. A row
// without a manifest has a reason why lint has nothing to say.
var promises = map[string]struct{ manifest, want, nothing string }{
	"CustomNetwork `spec.type`": {nothing: "it is the same"},
	"CustomNetwork `spec.subnetCIDR`": {
		"{apiVersion: contivpp.io/v1, kind: CustomNetwork, metadata: {name: n}, spec: {type: L2, subnetCIDR: 10.1.0.0/16}}",
		"spec.subnetCIDR: unknown key; did you mean cidrs?", "",
	},
	"CustomNetwork `spec.subnetOneNodePrefixLen`": {
		"{apiVersion: contivpp.io/v1, kind: CustomNetwork, metadata: {name: n}, spec: {type: L2, subnetOneNodePrefixLen: 24}}",
		"spec.subnetOneNodePrefixLen: unknown key; did you mean blockSize?", "",
	},
	"ExternalInterface `spec.type`": {
		external("type: L2, network: blue"), "spec.type: the network has a type: delete the field", "",
	},
	"ExternalInterface `spec.network`": {
		external("network: stub, nodes: [{node: a, interface: eth1}]"),
		"the network stub cannot have external interfaces", "",
	},
	"ExternalInterface `spec.nodes[].vppInterfaceName`": {
		external("network: blue, nodes: [{node: a, vppInterfaceName: eth1}]"),
		"vppInterfaceName: unknown key; did you mean interface?", "",
	},
	"ExternalInterface `spec.nodes[].ip`": {
		external("network: blue, nodes: [{node: a, interface: eth1, ip: 10.1.1.1/24}]"),
		"ip: unknown key; did you mean ips?", "",
	},
	"ExternalInterface `spec.nodes[].vlan`": {nothing: "it is the same"},
	"ServiceFunctionChain": {
		"{apiVersion: contivpp.io/v1, kind: ServiceFunctionChain, metadata: {name: c}}",
		"kind: the kind is Contiv-VPP's", "",
	},
	"CustomConfiguration": {
		"{apiVersion: contivpp.io/v1, kind: CustomConfiguration, metadata: {name: c}}",
		"use files in externalConfig", "",
	},
	"NodeConfig, `nodeConfig` of contiv.conf": {
		"{apiVersion: nodeconfig.contiv.vpp/v1, kind: NodeConfig, metadata: {name: n1}}",
		"use the agent's configuration", "",
	},
	"TelemetryReport": {
		"{apiVersion: telemetry.contiv.vpp/v1, kind: TelemetryReport, metadata: {name: t}}", "use weftctl status", "",
	},
	"CustomResourceDefinition of CustomNetwork and ExternalInterface": {
		"{apiVersion: apiextensions.k8s.io/v1beta1, kind: CustomResourceDefinition, metadata: {name: customnetworks.contivpp.io}, spec: " +
			"{group: contivpp.io, scope: Namespaced, names: {plural: customnetworks}}}", "cannot be upgraded in place",
		"",
	},
	"CustomResourceDefinition of the other kinds": {
		"{apiVersion: apiextensions.k8s.io/v1beta1, kind: CustomResourceDefinition, metadata: {name: s}, spec: " +
			"{group: contivpp.io, scope: Namespaced, names: {plural: servicefunctionchains}}}", "Weft has no such kind: delete it", "",
	},
	"`metadata.namespace` of a custom resource": {
		"{apiVersion: contivpp.io/v1, kind: CustomNetwork, metadata: {name: n, namespace: a}, spec: {type: L2}}",
		"remove the namespace", "",
	},

	"`contivpp.io/custom-if`": {nothing: "it is the same"},
	"`contivpp.io/custom-if-2` and other keys with this prefix": {
		pod("contivpp.io/custom-if-2: t1/tap"), "list all interfaces in contivpp.io/custom-if", "",
	},
	"`contivpp.io/microservice-label`": {
		pod("contivpp.io/microservice-label: a"), "so it has no effect: the program can read interfaces.json", "",
	},
	"limit `contivpp.io/memif: N`":                           {nothing: "it is the same"},
	"annotation `io.contivpp.memif.secret` of the container": {nothing: "Contiv-VPP set it, no manifest has it"},
	"memif directory of mode 0, so root only":                {nothing: "no manifest has it"},
	"`contivpp.io/service-endpoint-if`": {
		strings.Replace(pod("contivpp.io/custom-if: t1/tap, contivpp.io/service-endpoint-if: t1"), "{name: p,",
			"{name: p, labels: {app: a},", 1) +
			"\n---\n{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {app: a}}}\n",
		"Service s: spec.selector: the endpoints of this Service are on eth0, not on t1", "",
	},
	"`MEMIF_SOCKET`, `MEMIF_SECRET`": {
		"{kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, args: [--socket=/run/vpp/memif.sock]}]}}",
		"note: the path /run/vpp/memif.sock was", "",
	},
	"contiv.conf, in a ConfigMap": {
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: contiv-agent-cfg}, data: {contiv.conf: 'a: b'}}",
		"contiv.conf is of Contiv-VPP, and Weft does not read it", "",
	},
}

func external(spec string) string {
	return "{apiVersion: contivpp.io/v1, kind: ExternalInterface, metadata: {name: e}, spec: {" + spec + "}}"
}

func pod(annotations string) string {
	return "{kind: Pod, metadata: {name: p, annotations: {" + annotations + "}}, spec: {containers: [{name: a}]}}"
}

// TestLintNamesWhatTheMigrationGuideSays has a case for each row of the tables of Contiv-VPP's objects, annotations and
// pods.
func TestLintNamesWhatTheMigrationGuideSays(t *testing.T) {
	text, err := os.ReadFile("../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, contiv, _ := strings.Cut(string(text), "## From Contiv-VPP")
	contiv, _, _ = strings.Cut(contiv, "### Configuration")
	var rows []string
	for line := range strings.Lines(contiv) {
		if cells := strings.Split(line, "|"); len(cells) > 3 && !strings.HasPrefix(cells[1], "---") &&
			strings.TrimSpace(cells[1]) != "Contiv-VPP" {
			rows = append(rows, strings.TrimSpace(cells[1]))
		}
	}
	for _, row := range rows {
		if _, known := promises[row]; !known {
			t.Errorf("the row %q of docs/migration.md has no case", row)
		}
	}
	for row, promise := range promises {
		if !slices.Contains(rows, row) {
			t.Errorf("docs/migration.md has no row %q", row)
		}
		if promise.nothing != "" {
			continue
		}
		if said := saidOf(t, promise.manifest); !strings.Contains(said, promise.want) {
			t.Errorf("%s: lint says\n%s\nwant %q", row, said, promise.want)
		}
	}
}

// saidOf returns the problems and notes of a manifest.
func saidOf(t *testing.T, manifest string) string {
	t.Helper()
	var r lint.Report
	if err := r.Read("f", strings.NewReader(manifest)); err != nil {
		t.Fatal(err)
	}
	r.Finish()
	var said strings.Builder
	for _, f := range r.Faults {
		said.WriteString(f.String() + "\n")
	}
	for _, f := range r.Notes {
		said.WriteString("note: " + f.Reason + "\n")
	}
	return said.String()
}
