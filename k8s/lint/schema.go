package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	validation "k8s.io/kube-openapi/pkg/validation/errors"
	openapi "k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/internal/yamltext"
	"github.com/weftnet/weft/k8s/manifests"
)

// schema is the schema of a kind of Weft.
type schema struct{ *openapi.Schema }

// schemas are the schemas of Weft's kinds, by plural name.
var schemas = sync.OnceValue(func() map[string]schema {
	all := make(map[string]schema)
	files, err := manifests.CRDs.ReadDir("crds")
	for _, file := range files {
		var crd struct {
			Spec struct {
				Names    struct{ Plural string }
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema json.RawMessage
					}
				}
			}
		}
		text, _ := manifests.CRDs.ReadFile(path.Join("crds", file.Name()))
		read := &openapi.Schema{}
		err = errors.Join(err, yaml.Unmarshal(text, &crd),
			json.Unmarshal(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, read))
		all[crd.Spec.Names.Plural] = schema{read}
	}
	if err != nil {
		panic(fmt.Sprintf("embedded CRDs: %v", err)) //nolint:forbidigo // impossible: a test reads the embedded files
	}
	return all
})

// renamed are fields of Contiv-VPP's kinds and of other programs, with the fields of Weft.
var renamed = map[string]string{
	"subnetCIDR": "cidrs", "subnetOneNodePrefixLen": "blockSize", "vppInterfaceName": "interface", "ip": "ips",
	"cidr": "cidrs", "subnet": "cidrs",
}

// removed are fields of Contiv-VPP's kinds that Weft's do not have, by kind and path, with what to do.
var removed = map[string]string{"ExternalInterface spec.type": "the network has a type: delete the field"}

// validate validates the fields of an object with the API server's library. It reports unknown fields, which the
// API server would only warn of, or drop.
func (s schema) validate(o *object) {
	s.reportUnknown(o, o.fields, nil)
	result := validate.NewSchemaValidator(s.Schema, nil, "", strfmt.Default).Validate(o.fields)
	for _, err := range result.Errors {
		var wrong *validation.Validation
		if !errors.As(err, &wrong) {
			o.say(nil, err)
			continue
		}
		reason := strings.TrimPrefix(strings.TrimPrefix(err.Error(), wrong.Name), " in "+wrong.In)
		o.say(pathOf(wrong.Name), errors.New(strings.TrimSpace(reason)))
	}
}

// reportUnknown reports fields that the schema does not have.
func (s schema) reportUnknown(o *object, v any, at yamltext.Path) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			property, known := s.Properties[k]
			way := removed[o.text("kind")+" "+at.With(k).String()]
			switch {
			case known:
				schema{&property}.reportUnknown(o, v[k], at.With(k))
			case way != "":
				o.say(at.With(k), errors.New(way))
			case len(s.Properties) > 0:
				o.say(at.With(k), errors.New(yamltext.Unknown(k, slices.Sorted(maps.Keys(s.Properties)), renamed)))
			}
		}
	case []any:
		if s.Items == nil || s.Items.Schema == nil {
			return
		}
		for i, item := range v {
			schema{s.Items.Schema}.reportUnknown(o, item, at.With(i))
		}
	}
}

// step matches a step of a path of the library: a key or an index.
var step = regexp.MustCompile(`[^.\[\]]+|\[\d+\]`)

// pathOf parses a path such as spec.nodes[1].vlan.
func pathOf(name string) (p yamltext.Path) {
	for _, s := range step.FindAllString(name, -1) {
		if i, err := strconv.Atoi(strings.Trim(s, "[]")); err == nil {
			p = p.With(i)
			continue
		}
		p = p.With(s)
	}
	return p
}
