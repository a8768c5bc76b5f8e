package pod

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
)

// PoolsAsked reads which pools of addresses a pod's annotations ask for. Its errors have code 103.
func PoolsAsked(annotations map[string]string) ([]string, error) {
	text, err := list(annotations, AnnotationPools)
	if text == "" || err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal([]byte(text), &names); err != nil || slices.Contains(names, "") {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: expected a JSON list of names of pools, not %.300q", AnnotationPools, text)
	}
	return names, nil
}

// AddressesAsked reads which addresses a pod's annotations ask for, at most one a family. Its errors have code 103.
func AddressesAsked(annotations map[string]string) ([]netip.Addr, error) {
	text, err := list(annotations, AnnotationIPs)
	if text == "" || err != nil {
		return nil, err
	}
	prefixes, err := parsePrefixes([]byte(text))
	if err != nil {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %w", AnnotationIPs, err)
	}
	var addresses []netip.Addr
	for _, p := range prefixes {
		if !p.IsSingleIP() {
			return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %q is not an IPv4 or IPv6 address", AnnotationIPs, p)
		}
		addresses = append(addresses, p.Addr())
	}
	return addresses, nil
}

func list(annotations map[string]string, name string) (string, error) {
	text := strings.TrimSpace(annotations[name])
	if len(text) > maxAnnotation {
		return "", Errorf(CodeInvalidAnnotation, "annotation %s: %d bytes, at most %d are read", name, len(text), maxAnnotation)
	}
	return text, nil
}
