package lint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftnet/weft/internal/yamltext"
	"github.com/weftnet/weft/k8s/endpoints"
	"github.com/weftnet/weft/pod"
)

// claim is a ResourceClaim, a ResourceClaimTemplate, or a DeviceClass, which has only configurations.
type claim struct {
	*object
	requests []deviceRequest
	configs  []deviceConfig
	memifs   []pod.InterfaceRequest // set by resolve; without the alternatives
}

// deviceRequest is a request of a claim, or one of its alternatives.
type deviceRequest struct {
	path        yamltext.Path
	name, class string // an alternative is REQUEST/NAME
	count       int
}

// deviceConfig is the parameters that a claim or a class has for the driver.
type deviceConfig struct {
	path     yamltext.Path
	requests []string // none: all
	raw      []byte   // parameters
	valid    bool
}

func resourceClaim(o *object) bool {
	return (&claim{object: o}).validate("ResourceClaim", spec("devices"))
}

func resourceClaimTemplate(o *object) bool {
	return (&claim{object: o}).validate("ResourceClaimTemplate", spec("spec", "devices"))
}

func deviceClass(o *object) bool {
	c := &claim{object: o}
	c.readConfigs(spec("config"))
	if len(c.configs) == 0 && o.name() != pod.ClaimDriver {
		return false
	}
	o.clusterScoped()
	o.report.found.has("DeviceClass", o.name(), c)
	return true
}

// validate validates the parameters of a claim; false: it has no device of the driver.
func (c *claim) validate(kind string, at yamltext.Path) bool {
	c.readConfigs(at.With("config"))
	c.readRequests(at.With("requests"))
	c.report.found.has(kind, c.namespace()+"/"+c.name(), c)
	return len(c.configs) > 0 ||
		slices.ContainsFunc(c.requests, func(r deviceRequest) bool { return r.class == pod.ClaimDriver })
}

// readConfigs reads the parameters for the driver, and reports all errors with the text of the driver.
func (c *claim) readConfigs(path yamltext.Path) {
	c.list(path, func(at yamltext.Path, item map[string]any) {
		if driver, _, _ := unstructured.NestedString(item, "opaque", "driver"); driver != pod.ClaimDriver {
			return
		}
		config := deviceConfig{path: at.With("opaque").With("parameters"), valid: true}
		config.requests, _, _ = unstructured.NestedStringSlice(item, "requests")
		parameters, _, _ := unstructured.NestedFieldNoCopy(item, "opaque", "parameters")
		raw, err := json.Marshal(parameters)
		if err != nil {
			c.say(config.path, err)
			return
		}
		config.raw = raw
		var p pod.ClaimParameters
		for _, problem := range p.MergeEach(raw) {
			config.valid = false
			c.say(config.of(problem.Parameter), fmt.Errorf("parameters: %w", problem.Err))
		}
		if config.valid {
			c.report.found.asksForNetwork(c.object, config.of("network"), p.Network)
		}
		c.configs = append(c.configs, config)
	})
}

// of returns the path of a parameter.
func (c *deviceConfig) of(parameter string) yamltext.Path {
	if parameter == "" {
		return c.path
	}
	return c.path.With(parameter)
}

// readRequests reads the requests of a claim, and their alternatives.
func (c *claim) readRequests(path yamltext.Path) {
	add := func(at yamltext.Path, name string, fields map[string]any) {
		r := deviceRequest{path: at, name: name, count: 1}
		r.class, _, _ = unstructured.NestedString(fields, "deviceClassName")
		if n, err := strconv.Atoi(fmt.Sprint(fields["count"])); err == nil {
			r.count = min(max(n, 1), pod.MaxCustomInterfaces+1)
		}
		c.requests = append(c.requests, r)
	}
	c.list(path, func(at yamltext.Path, item map[string]any) {
		name, _, _ := unstructured.NestedString(item, "name")
		if exactly, is := item["exactly"].(map[string]any); is {
			add(at, name, exactly)
		}
		c.list(at.With("firstAvailable"), func(at yamltext.Path, item map[string]any) {
			alternative, _, _ := unstructured.NestedString(item, "name")
			add(at, name+"/"+alternative, item)
		})
	})
}

// resolve validates the memifs of a claim, which need the parameters of its classes. Classes that are not in the files
// have no parameters.
func (c *claim) resolve() {
	for _, r := range c.requests {
		class := c.report.found.claims["DeviceClass "+r.class]
		parameters, ours := c.parametersOf(class, r)
		if !ours {
			continue
		}
		for n := range r.count {
			memif, problems := parameters.Named(r.name, n, r.count).RequestEach()
			for _, p := range problems {
				c.say(r.path, fmt.Errorf("request %s: %w", r.name, p.Err))
			}
			if len(problems) > 0 {
				break // the other devices have the same
			}
			if parameters.Delegate { // the interface is a definition's
				continue
			}
			if err := c.report.found.suits(memif); err != nil && (class != nil || r.class == pod.ClaimDriver) {
				c.say(r.path, fmt.Errorf("request %s: %w", r.name, err))
				break
			}
			if !strings.Contains(r.name, "/") {
				memif.Claim = c.namespace() + "/" + c.name()
				c.memifs = append(c.memifs, memif)
			}
		}
	}
}

// parametersOf merges the parameters of a request in the order of the driver; false: it is no memif, or its parameters
// are invalid.
func (c *claim) parametersOf(class *claim, r deviceRequest) (p pod.ClaimParameters, ours bool) {
	ours = r.class == pod.ClaimDriver
	configs := slices.Clone(c.configs)
	if class != nil {
		ours = true
		configs = slices.Concat(class.configs, configs)
	}
	for _, config := range configs {
		if !pod.ConcernsRequest(config.requests, r.name) {
			continue
		}
		if !config.valid || len(p.MergeEach(config.raw)) > 0 {
			return p, false
		}
		ours = ours || slices.Contains(config.requests, r.name)
	}
	return p, ours
}

// claimed returns the memifs of a pod's claims, and refers to claims that are not in the files.
func (t *template) claimed() (memifs []pod.InterfaceRequest) {
	t.list(t.at.With("spec").With("resourceClaims"), func(at yamltext.Path, item map[string]any) {
		for key, kind := range map[string]string{
			"resourceClaimName":         "ResourceClaim",
			"resourceClaimTemplateName": "ResourceClaimTemplate",
		} {
			name, is := item[key].(string)
			if !is {
				continue
			}
			name = t.namespace() + "/" + name
			if c := t.report.found.claims[kind+" "+name]; c != nil {
				memifs = append(memifs, c.memifs...)
				continue
			}
			t.report.found.asked = append(t.report.found.asked, reference{t.object, at.With(key), kind, name})
		}
	})
	return memifs
}

// validateClaimed reports each memif of the pod's claims that its annotations and other claims exclude, with the error
// of the ADD.
func (t *template) validateClaimed(selected []pod.InterfaceRequest) {
	var accepted []pod.InterfaceRequest
	for _, memif := range t.claimed() {
		request := &pod.Request{
			Key: pod.Key{IfName: endpoints.MainInterface}, Annotations: t.annotations,
			Resolved: pod.Resolved{Selected: selected, Claimed: append(slices.Clone(accepted), memif)},
		}
		if _, err := request.Extra(); err != nil {
			t.say(t.at.With("spec").With("resourceClaims"), err)
			continue
		}
		accepted = append(accepted, memif)
	}
}
