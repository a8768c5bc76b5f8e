package admission_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/k8s/lint"
)

// definition is a CustomResourceDefinition with the validation of an API server: by its schema, and by its rules.
type definition struct {
	schema *structural.Structural
	fields validation.SchemaValidator
	rules  *cel.Validator
}

// readDefinitions returns the definitions of the chart by their kind.
func readDefinitions(t *testing.T) map[string]*definition {
	t.Helper()
	files, err := filepath.Glob("../../k8s/chart/weft/files/crds/*.yaml")
	must(t, err)
	definitions := make(map[string]*definition)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		var v1 extensions.CustomResourceDefinition
		must(t, yaml.UnmarshalStrict(text, &v1))
		var schema apiextensions.JSONSchemaProps
		must(t, extensions.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
			v1.Spec.Versions[0].Schema.OpenAPIV3Schema, &schema, nil))
		d := &definition{}
		d.schema, err = structural.NewStructural(&schema)
		must(t, err)
		d.fields, _, err = validation.NewSchemaValidator(&schema)
		must(t, err)
		d.rules = cel.NewValidator(d.schema, true, celconfig.PerCallLimit)
		definitions[v1.Spec.Names.Kind] = d
	}
	return definitions
}

// objectOf reads a document like an API server: whole numbers are integers. It returns nil for a document that is no
// object.
func objectOf(document []byte) (object map[string]any) {
	text, err := yaml.YAMLToJSON(document)
	if err != nil || json.Unmarshal(text, &object) != nil {
		return nil
	}
	return object
}

// refusal returns why an API server refuses to create an object; "" if it accepts it. Unknown fields are not looked at:
// the client decides whether these are refused.
func (d *definition) refusal(t *testing.T, object map[string]any) string {
	t.Helper()
	defaulting.Default(object, d.schema)
	if errs := validation.ValidateCustomResource(nil, object, d.fields); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	if errs := listtype.ValidateListSetsAndMaps(nil, d.schema, object); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	errs, _ := d.rules.Validate(t.Context(), nil, d.schema, object, nil, celconfig.RuntimeCELCostBudget)
	if len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	return ""
}

// lintedAlone returns what weftctl lint says of a document that it reads alone.
func lintedAlone(t *testing.T, document []byte) string {
	t.Helper()
	report := lint.Report{Mode: lint.Modes()[0]}
	if err := report.Read("object.yaml", bytes.NewReader(document)); err != nil {
		return err.Error()
	}
	report.Finish()
	var texts []string
	for _, fault := range report.Faults {
		texts = append(texts, fault.String())
	}
	return strings.Join(texts, "; ")
}

// onlyLint are the faults of single objects that an API server accepts, because its rules cannot find them, or need more
// time for it than rules may take. They are parts of the texts of lint.
var onlyLint = []string{
	"belong to the cluster: remove the namespace", // the API server's router refuses it
	"podSelector: ", // lists of any length

	// The gateway may be the first address of a CIDR, and the last address of a CIDR is not known.
	"contains the gateway",
	"is not the address of a host in the cidrs",
	"has no gateway of this family",
	"the dataplane routes the packets of network",

	// Addresses are not compared.
	"is partly within the cidrs",
	"ends before it begins",
}

// A user learns from the status only that the nodes refuse an object which the API server accepted. So both refuse the
// same, except for what the API server's rules cannot express.
func TestAPIServersAndLintRefuseTheSameObjects(t *testing.T) {
	definitions := readDefinitions(t)
	scripts, err := filepath.Glob("../../ctl/testdata/script/lint*.txtar")
	must(t, err)
	objects := 0
	for _, script := range scripts {
		archive, err := txtar.ParseFile(script)
		must(t, err)
		for _, file := range archive.Files {
			if filepath.Ext(file.Name) != ".yaml" {
				continue
			}
			for document := range bytes.SplitSeq(file.Data, []byte("---\n")) {
				object := objectOf(document)
				if object["apiVersion"] != "contivpp.io/v1" {
					continue
				}
				d := definitions[fmt.Sprint(object["kind"])]
				if d == nil {
					continue // not a kind of a CustomResourceDefinition
				}
				objects++
				refusal := d.refusal(t, object)
				fault := lintedAlone(t, document)
				if differ(refusal, fault) {
					t.Errorf("%s, %s: an API server says %q, lint %q:\n%s", filepath.Base(script), file.Name, refusal, fault,
						document)
				}
			}
		}
	}
	if objects < 40 {
		t.Errorf("%d objects are compared", objects)
	}
}

// fields are right and wrong values of the fields of an object; "!" marks fields that are always there.
type fields map[string][]any

// draw returns an object with up to four of the other fields: with more, nearly all objects are wrong.
func (f fields) draw(random *rand.Rand) map[string]any {
	names := slices.Sorted(maps.Keys(f))
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	drawn := make(map[string]any)
	left := random.IntN(5)
	for _, name := range names {
		name, isRequired := strings.CutPrefix(name, "!")
		if !isRequired && left == 0 {
			continue
		}
		values := f[name]
		if isRequired {
			values = f["!"+name]
		} else {
			left--
		}
		drawn[name] = values[random.IntN(len(values))]
	}
	return drawn
}

func list(values ...any) []any { return values }

// randomSpecs has the fields of each kind.
var randomSpecs = map[string]fields{
	"CustomNetwork": {
		"!type": {"L2", "L3"},
		"cidrs": {
			list("10.5.0.0/24"), list("fd05::/64"), list("10.5.0.0/24", "fd05::/64"), list("10.5.0.0/24", "10.6.0.0/24"),
			list("10.5.0.1/24"), list("10.5.0.0/31"), list("fd05::/127"), list("10.5.0.0"), list("127.0.0.0/24"), list("::/0"),
			list("224.0.0.0/24"), list("10.5.0.0/27"), list("10.0.0.0/8"), list("::ffff:10.5.0.0/120"), list("fd05::/48"), list(),
		},
		"blockSize":   {26, 20, 30, 31, 19, 24},
		"blockSizeV6": {122, 126, 116, 64, 127},
		"gateway": {
			"none", "10.5.0.254", "10.5.0.254,fd05::fe", "10.5.0.254, 10.5.0.253", "10.9.0.1", "router", "", "10.5.0.0",
			"10.5.0.255", "fd05::", "none,10.5.0.1",
		},
		"reserved": {
			list("10.5.0.10"), list("10.5.0.0/28"), list("10.5.0.10-10.5.0.20"), list("10.5.0.20-10.5.0.10"), list("10.9.0.1"),
			list("fd05::10-fd05::20"), list("10.5.0.10-fd05::1"), list("10.5.0.1/24"), list("a-b"), list("10.5.0.1-10.5.0.2-10.5.0.3"),
		},
		"excluded": {list("10.5.0.64/26"), list("fd05::/64"), list("10.5.0.200 - 10.5.0.210"), list("fe80::1%eth0")},
		"routes": {
			list(map[string]any{"to": "10.9.0.0/16", "via": "10.5.0.9"}), list(map[string]any{"to": "10.9.0.0/16"}),
			list(map[string]any{"to": "0.0.0.0/0", "via": "fd05::1"}), list(map[string]any{"to": "10.9.0.1/16"}), list(map[string]any{"to": "10.5.0.0/24"}),
			list(map[string]any{"to": "10.9.0.0/16", "via": "10.9.0.9"}),
			list(map[string]any{"to": "10.9.0.0/16", "via": "10.5.0.9", "metric": -1}),
			list(map[string]any{"to": "10.9.0.0/16", "via": "10.5.0.9"}, map[string]any{"to": "10.9.0.0/16"}),
		},
		"allowedAddresses": {
			list("10.5.0.100"), list("10.5.0.96/28"), list("10.5.0.100-10.5.0.110"), list("192.0.2.1"), list("127.0.0.1"),
			list("fe80::1"), list("::"), list("10.4.0.0-10.6.0.0"), list("224.0.0.18"), list("10.5.0.1/24"), list("x"),
		},
		"virtualRouters": {list(51), list(0), list(256), list(51, 51), list()},
		"permissions": {
			list(map[string]any{"podSelector": map[string]any{}, "virtualRouters": list(51)}),
			list(map[string]any{"podSelector": map[string]any{}, "allowedAddresses": list("10.5.0.120")}),
			list(map[string]any{"podSelector": map[string]any{}, "allowedAddresses": list("10.5.0.1/24")}),
			list(map[string]any{"podSelector": map[string]any{}, "allowedAddresses": list("fe80::/64")}),
			list(map[string]any{"podSelector": map[string]any{}, "allowedAddresses": list("10.5.0.1-10.5.0.2")}),
			list(map[string]any{"podSelector": map[string]any{}}), list(map[string]any{"virtualRouters": list(51)}),
		},
		"routedPrefixes": {
			list("10.60.0.0/16"), list("10.60.0.1/16"), list("10.5.0.0/25"), list("10.0.0.0/8"), list("ff00::/8"), list("fd60::/48"),
			list("0.0.0.0/0"), list("10.60.0.0/16", "10.60.1.0/24"), list("10.60.0.1"), list("127.0.0.0/8"),
		},
		"vlans": {
			list("100-199"), list("1"), list("4094"), list("4095"), list("0"), list("199-100"), list("100-199", "150"),
			list("1-256"), list("1-257"), list("100", "100"), list("x"), list(),
		},
		"mtu":       {1500, 1280, 576, 575, 9600, 9601, 1000},
		"vni":       {1, 255, 256, 5000, 1048576, 16777215, 16777216, 0},
		"antiSpoof": {true, false},
		"direct":    {true, false},
		"dns": {
			map[string]any{"nameservers": list("10.5.0.53")}, map[string]any{"nameservers": list("x")}, map[string]any{},
			map[string]any{"search": list("example.com")}, map[string]any{"search": list("-")}, map[string]any{"domain": "a b"},
		},
	},
	"IPPool": {
		"!cidr": {
			"10.1.0.0/16", "10.1.0.1/16", "fd01::/64", "10.1.0.0/30", "10.1.0.0/31", "x", "127.0.0.0/8", "224.0.0.0/8", "0.0.0.0/0",
			"::/0", "fe80::/64", "::ffff:10.1.0.0/112", "10.1.0.0/27",
		},
		"blockSize": {26, 20, 30, 19, 31, 116, 122, 126, 128},
	},
	"ExternalInterface": {
		"!network": {"default", "blue", "stub", "Blue", "a_b"},
		"!nodes": {
			list(map[string]any{"node": "n1", "interface": "eth1"}), list(map[string]any{"node": "n1"}), list(),
			list(map[string]any{"node": "n1", "interface": "eth1", "vlan": 100}),
			list(map[string]any{"node": "n1", "interface": "eth1", "vlan": 4095}),
			list(map[string]any{"node": "n1", "interface": "eth1", "vlan": 100, "vlans": list("100")}),
			list(map[string]any{"node": "n1", "interface": "eth1", "vlans": list("100-199"), "nativeVLAN": 0}),
			list(map[string]any{"node": "n1", "interface": "eth1", "vlans": list("100-199"), "nativeVLAN": 150}),
			list(map[string]any{"node": "n1", "interface": "eth1", "vlans": list("100-199"), "outerVLAN": 7}),
			list(map[string]any{"node": "n1", "interface": "eth1", "vlans": list("1-257")}),
			list(map[string]any{"node": "n1", "interface": "eth1", "ips": list("192.0.2.1/24")}),
			list(map[string]any{"node": "n1", "interface": "eth1", "ips": list("192.0.2.1")}),
			list(map[string]any{"node": "n1", "interface": "eth1", "ips": list("192.0.2.1/24", "192.0.3.1/24")}),
			list(map[string]any{"node": "n1", "interface": "eth1", "ips": list("127.0.0.1/8")}),
			list(map[string]any{"node": "N 1", "interface": "eth1"}), list(map[string]any{"node": "n1", "interface": "e th"}),
			list(map[string]any{"node": "n1", "interface": "eth1"}, map[string]any{"node": "n2", "interface": "eth1"}),
		},
	},
}

// Objects that no script has.
func TestAPIServersAndLintRefuseTheSameRandomObjects(t *testing.T) {
	definitions := readDefinitions(t)
	random := rand.New(rand.NewPCG(1, 2))
	for _, kind := range slices.Sorted(maps.Keys(randomSpecs)) {
		accepted := 0
		reported := make(map[string]bool)
		for range 6000 {
			document, err := yaml.Marshal(map[string]any{
				"apiVersion": "contivpp.io/v1",
				"kind":       kind,
				"metadata":   map[string]any{"name": "n"},
				"spec":       randomSpecs[kind].draw(random),
			})
			must(t, err)
			refusal := definitions[kind].refusal(t, objectOf(document))
			fault := lintedAlone(t, document)
			if refusal == "" && fault == "" {
				accepted++
			}
			if key := refusal + fault; differ(refusal, fault) && !reported[key] {
				reported[key] = true
				t.Errorf("%s: an API server says %q, lint %q:\n%s", kind, refusal, fault, document)
			}
		}
		if accepted < 20 {
			t.Errorf("%s: only %d objects are accepted", kind, accepted)
		}
	}
}

// A network from before a rule, which breaks it, can still be deleted: that changes its finalizers, and its status.
// Kubernetes 1.30 and newer compare with the former object.
func TestObjectsFromBeforeARuleCanBeDeleted(t *testing.T) {
	d := readDefinitions(t)["CustomNetwork"]
	for name, spec := range map[string]map[string]any{
		"a gateway of another family": {"type": "L3", "cidrs": list("fd05::/64"), "gateway": "10.5.0.1"},
		"reserved addresses elsewhere": {
			"type": "L2", "cidrs": list("10.5.0.0/24"), "reserved": list("10.9.0.1", "10.5.0.1/24"),
		},
		"addresses that are not routed": {"type": "L2", "cidrs": list("127.0.0.0/24"), "allowedAddresses": list("224.0.0.18")},
		"many VLANs":                    {"type": "L2", "vlans": list("1-257")},
	} {
		former := map[string]any{
			"apiVersion": "contivpp.io/v1",
			"kind":       "CustomNetwork",
			"metadata":   map[string]any{"name": "blue", "finalizers": list("contivpp.io/in-use")},
			"spec":       spec,
			"status":     map[string]any{"vni": int64(7)},
		}
		if d.refusal(t, runtime.DeepCopyJSON(former)) == "" {
			t.Errorf("%s: a new object is accepted", name)
		}
		now := runtime.DeepCopyJSON(former)
		now["metadata"] = map[string]any{"name": "blue"}
		now["status"] = map[string]any{"vni": int64(8)}
		if refusal := d.refusalOfUpdate(t, now, former); refusal != "" {
			t.Errorf("%s: its finalizer cannot be removed: %s", name, refusal)
		}
	}
}

// refusalOfUpdate returns why an API server refuses to update an object; "" if it accepts it.
func (d *definition) refusalOfUpdate(t *testing.T, now, former map[string]any) string {
	t.Helper()
	defaulting.Default(now, d.schema)
	defaulting.Default(former, d.schema)
	both := common.NewCorrelatedObject(now, former, &model.Structural{Structural: d.schema})
	errs := validation.ValidateCustomResourceUpdate(nil, now, former, d.fields, validation.WithRatcheting(both))
	found, _ := d.rules.Validate(t.Context(), nil, d.schema, now, former, celconfig.RuntimeCELCostBudget,
		cel.WithRatcheting(both))
	if errs = append(errs, found...); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	return ""
}

// differ reports whether one of both refuses an object, and the other would have to.
func differ(refusal, fault string) bool {
	if refusal == "" && slices.ContainsFunc(onlyLint, func(part string) bool { return strings.Contains(fault, part) }) {
		return false
	}
	return (refusal == "") != (fault == "")
}
