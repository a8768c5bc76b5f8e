package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// annotation matches a constant with the key of an annotation.
var annotation = regexp.MustCompile(`(?m)\bAnnotation\w+ += (?:pod\.)?(AnnotationPrefix \+ )?"([\w./-]+)"`)

func annotations(root string) (string, error) {
	sources, err := productSources(root)
	if err != nil {
		return "", err
	}
	// explained are the annotations with their place of documentation; each constant Annotation... must be here.
	explained := map[string]struct{ on, meaning string }{
		"custom-if": {
			"pods",
			"interfaces besides the main one: [configuration.md](../configuration.md#networks-and-extra-interfaces)",
		},
		"custom-if-options": {
			"pods",
			"options of these interfaces: [configuration.md](../configuration.md#networks-and-extra-interfaces), of memifs [memif.md](../memif.md#options)",
		},
		"ip-pools": {
			"pods, Namespaces",
			"pools of the main interface's addresses: [addresses.md](../addresses.md#selection-of-a-pool)",
		},
		"ip-addresses": {
			"pods", "static addresses of the main interface: [addresses.md](../addresses.md#static-addresses)",
		},
		"service-endpoint-if": {
			"pods",
			"the interface on which the pod serves: [networking.md](../networking.md#services-by-another-interface-than-eth0)",
		},
		"microservice-label": {"pods", "stored, without effect"},
		"mac-seed": {
			"IPAMClaims",
			"written by the controller: from it the MAC of the interface is derived: [addresses.md](../addresses.md#pods-of-a-statefulset)",
		},
		"endpoint-selector": {
			"Services",
			"the pods that serve by another interface: [networking.md](../networking.md#services-by-another-interface-than-eth0)",
		},
		"policy-for": {"MultiNetworkPolicies", "the networks of the policy: [policy.md](../policy.md)"},
		"networks":   {"pods", "NetworkAttachmentDefinitions: [multus.md](../multus.md#the-selection)"},
		"default-network": {
			"pods",
			"of Multus; its limit and its claim for the main interface: [multus.md](../multus.md#under-multus)",
		},
	}
	constants := map[string]string{} // key, by its last part
	for _, s := range sources {
		for _, m := range annotation.FindAllStringSubmatch(s.text, -1) {
			if m[2] == "contivpp.io/" || filepath.Dir(s.path) == "devicemanager" {
				continue
			}
			key := m[2]
			if m[1] != "" {
				key = "contivpp.io/" + key
			}
			constants[filepath.Base(key)] = key
		}
	}
	var problems []error
	var b strings.Builder
	b.WriteString(note +
		"# Annotations\n\nOther keys `contivpp.io/...` on pods have no effect, and an event `WeftUnknownAnnotation`. `weftctl lint` checks all of them.\n\n" +
		"| annotation | on | meaning |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(constants)) {
		e, exists := explained[name]
		if !exists {
			problems = append(problems, fmt.Errorf("annotation %s is not explained", constants[name]))
		}
		delete(explained, name)
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", constants[name], e.on, e.meaning)
	}
	for _, name := range slices.Sorted(maps.Keys(explained)) {
		problems = append(problems, fmt.Errorf("there is no annotation %s", name))
	}
	return b.String(), errors.Join(problems...)
}
