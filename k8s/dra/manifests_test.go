package dra

import (
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/pod"
)

// claimSpec is the spec of a claim with one request "m" and one configuration.
func claimSpec(request, driver, requests, parameters string) string {
	return fmt.Sprintf(
		`{devices: {requests: [{name: m, %s}], config: [{requests: %s, opaque: {driver: %s, parameters: %s}}]}}`,
		request, requests, driver, parameters)
}

// memifParameters are parameters with the name of an interface.
func memifParameters(name string) string {
	return fmt.Sprintf(`{apiVersion: contivpp.io/v1, kind: MemifParameters, interface: %s}`, name)
}

// The plan of a pod has the memifs that the driver would prepare once the scheduler has allocated the claims.
func TestDevicesOfAPlanAreThoseOfTheScheduler(t *testing.T) {
	const fast = `{metadata: {name: fast}, spec: {config: [{opaque: {driver: memif.contivpp.io, parameters: {apiVersion: contivpp.io/v1, kind: MemifParameters, interface: f0}}}]}}`
	exactly := func(class string, count int) string {
		return fmt.Sprintf("exactly: {deviceClassName: %s, count: %d}", class, count)
	}
	first := func(class string) string {
		return fmt.Sprintf(
			"firstAvailable: [{name: small, deviceClassName: %s}, {name: large, deviceClassName: other}]", class)
	}
	own := pod.ClaimDriver
	for what, tt := range map[string]struct {
		spec, class string
		want        []string // request and interface
	}{
		"one memif": {
			claimSpec(exactly(own, 1), own, "[m]", memifParameters("m0")), "", []string{"m m0"},
		},
		"two of one request": {
			claimSpec(exactly(own, 2), own, "[m]", memifParameters("m0")), "", []string{"m m01", "m m02"},
		},
		"all devices count as one": {
			claimSpec("exactly: {deviceClassName: memif.contivpp.io, allocationMode: All}", own, "[m]",
				memifParameters("m0")),
			"", []string{"m m0"},
		},
		"parameters of all requests": {
			claimSpec(exactly(own, 1), own, "[]", memifParameters("m0")), "", []string{"m m0"},
		},
		"parameters of the class": {
			claimSpec(exactly("fast", 1), "gpu.example.com", "[]", "{}"), fast, []string{"m f0"},
		},
		"the claim precedes the class": {
			claimSpec(exactly("fast", 1), own, "[m]", memifParameters("m0")), fast, []string{"m m0"},
		},
		"a class that is not in the file": {
			claimSpec(exactly("fast", 1), own, "[m]", memifParameters("m0")), "", []string{"m m0"},
		},
		"a device of another driver": {
			claimSpec(exactly("gpu", 1), "gpu.example.com", "[m]", "{}"), "", nil,
		},
		"another device beside": {
			claimSpec(exactly("gpu", 1), own, "[other]", memifParameters("m0")), "", nil,
		},
		"the first alternative": {
			claimSpec(first(own), own, "[m/small]", memifParameters("m0")), "", []string{"m/small m0"},
		},
		"parameters of all alternatives": {
			claimSpec(first(own), own, "[m]", memifParameters("m0")), "", []string{"m/small m0"},
		},
		"parameters of another alternative": {
			claimSpec(first("fast"), own, "[m/large]", memifParameters("m0")), fast, []string{"m/small f0"},
		},
		"alternatives of a class that is not in the file": {
			claimSpec(first("fast"), own, "[m]", memifParameters("m0")), "", []string{"m/small m0"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			var m Manifests
			add := func(kind, object string) {
				raw, err := yaml.YAMLToJSON([]byte(object))
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Add("resource.k8s.io/v1", kind, raw); err != nil {
					t.Fatal(err)
				}
			}
			add("ResourceClaim", `{metadata: {name: shared, namespace: shop}, spec: `+tt.spec+`}`)
			add("ResourceClaimTemplate", `{metadata: {name: each, namespace: shop}, spec: {spec: `+tt.spec+`}}`)
			if tt.class != "" {
				add("DeviceClass", tt.class)
			}
			for _, claim := range []PodClaim{
				{Name: "c", ResourceClaimName: "shared"}, {Name: "c", ResourceClaimTemplateName: "each"},
			} {
				devices, missing, err := m.Devices(pod.ID{Namespace: "shop", Name: "web"}, []PodClaim{claim})
				if err != nil || len(missing) > 0 {
					t.Fatalf("%v, missing %v", err, missing)
				}
				var got []string
				for _, d := range devices {
					got = append(got, d.Request+" "+d.Parameters.Interface)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("%+v: %q, want %q", claim, got, tt.want)
				}
			}
		})
	}
}

func TestClaimsThatAreNotInTheManifestsAreNamed(t *testing.T) {
	var m Manifests
	_, missing, err := m.Devices(pod.ID{Namespace: "shop", Name: "web"}, []PodClaim{
		{Name: "a", ResourceClaimName: "x"}, {Name: "b", ResourceClaimTemplateName: "y"},
	})
	if want := []string{"ResourceClaim shop/x", "ResourceClaimTemplate shop/y"}; err != nil ||
		!slices.Equal(missing, want) {
		t.Errorf("%q, %v; want %q", missing, err, want)
	}
}
