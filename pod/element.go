package pod

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weftnet/weft/internal/jsonempty"
	"github.com/weftnet/weft/internal/jsonerror"
)

// AnnotationDefaultNetwork selects the definition of the main interface under Multus. Only Multus reads the
// definition.
const AnnotationDefaultNetwork = "v1.multus-cni.io/default-network"

// Element is the part of a pod's selection for an interface that Multus adds. Multus passes the claim to no plugin, and
// the limits only to a definition with the capability bandwidth.
type Element struct {
	Annotation string // that has the element; "": no element is for the interface
	IPAMClaim  string // name of the claim that holds the addresses, in the namespace of the pod; "": none
	Limits     Limits
}

// rawElement is an element as Multus reads it: names of keys in any case, the last one of several.
type rawElement struct {
	Name            string          `json:"name"`
	Interface       string          `json:"interface"`
	FormerInterface string          `json:"interfaceRequest"` // Multus reads it if there is no interface
	Bandwidth       json.RawMessage `json:"bandwidth"`
	IPAMClaim       json.RawMessage `json:"ipam-claim-reference"`
}

// ElementOf returns the element of a pod's annotations for the interface of an attachment that Multus adds. In contrast
// to Selections it accepts elements of other plugins, which may have any keys. Its errors have code 103.
func ElementOf(annotations map[string]string, key Key) (Element, error) {
	e, err := elementOf(annotations[AnnotationNetworks], key, positionOf(key.IfName))
	if e == nil && err == nil && key.IfName == mainInterface {
		e, err = elementOf(annotations[AnnotationDefaultNetwork], key, 0)
		return e.parse(AnnotationDefaultNetwork, err)
	}
	return e.parse(AnnotationNetworks, err)
}

// positionOf returns the position of the selection that Multus calls netN; -1: it chose no such name.
func positionOf(ifName string) int {
	number, _ := strings.CutPrefix(ifName, "net")
	n, err := strconv.Atoi(number)
	if err != nil || ifName != "net"+strconv.Itoa(n) {
		return -1
	}
	return n - 1
}

// elementOf returns the element for the interface in the text of an annotation; nil: there is none.
func elementOf(text string, key Key, position int) (*rawElement, error) {
	if !strings.ContainsAny(text, `[{"`) {
		return nil, nil // names of definitions and interfaces only
	}
	var elements []rawElement
	if err := json.Unmarshal([]byte(text), &elements); err != nil {
		return nil, fmt.Errorf("expected a JSON list of objects: %w", jsonerror.Plain(err))
	}
	found := candidates(elements, key, position)
	if len(found) == 0 {
		return nil, nil
	}
	for _, e := range found {
		if len(found) > 1 && !e.saysNothing() {
			return nil, fmt.Errorf("%d elements are for interface %s of network %s, and one has bandwidth or "+
				"ipam-claim-reference: name a different interface in each", len(found), key.IfName, key.Network)
		}
	}
	return &found[0], nil
}

// candidates returns the elements that may be the one for the interface: those with its name, else those without a
// name. Of these the position decides, but networks that Multus itself adds (defaultNetworks) shift elements to later
// positions: an element of the interface's network precedes another one in its position.
func candidates(elements []rawElement, key Key, position int) []rawElement {
	var named, unnamed, inPosition []rawElement
	for at, e := range elements {
		switch {
		case e.interfaceName() == key.IfName:
			named = append(named, e)
		case e.interfaceName() == "" && at <= position:
			unnamed = append(unnamed, e)
			if at == position {
				inPosition = append(inPosition, e)
			}
		}
	}
	isOfNetwork := func(e rawElement) bool { return e.Name == key.Network }
	switch {
	case len(named) == 1:
		return named
	case len(named) > 1 && slices.ContainsFunc(named, isOfNetwork):
		return slices.DeleteFunc(named, func(e rawElement) bool { return !isOfNetwork(e) })
	case len(named) > 1:
		return named
	case slices.ContainsFunc(inPosition, isOfNetwork):
		return inPosition
	case slices.ContainsFunc(unnamed, isOfNetwork):
		return slices.DeleteFunc(unnamed, func(e rawElement) bool { return !isOfNetwork(e) })
	}
	return inPosition
}

func (e *rawElement) interfaceName() string { return cmp.Or(e.Interface, e.FormerInterface) }

func (e *rawElement) saysNothing() bool {
	return jsonempty.Is(e.Bandwidth) && jsonempty.Is(e.IPAMClaim)
}

// parse returns the element of an annotation, or the error with the annotation's name.
func (e *rawElement) parse(annotation string, err error) (parsed Element, _ error) {
	if e == nil && err == nil {
		return Element{}, nil
	}
	parsed.Annotation = annotation
	if err == nil && !jsonempty.Is(e.Bandwidth) {
		if parsed.Limits, err = ParseBandwidth(e.Bandwidth); err != nil {
			err = fmt.Errorf("network %.300q: bandwidth: %w", e.Name, err)
		}
	}
	if err == nil && !jsonempty.Is(e.IPAMClaim) {
		var request AddressRequest
		if err = request.setIPAMClaim(e.IPAMClaim); err != nil {
			err = fmt.Errorf("network %.300q: ipam-claim-reference: %w", e.Name, err)
		}
		parsed.IPAMClaim = request.IPAMClaim
	}
	if err != nil {
		return Element{}, Errorf(CodeInvalidAnnotation, "annotation %s: %w", annotation, err)
	}
	return parsed, nil
}

// Complete adds the claim and the limits of an element. Limits that the runtime passes take precedence: they are of the
// same element.
func (r *Requested) Complete(e Element) {
	r.Limits = r.Limits.over(e.Limits)
	if e.IPAMClaim != "" {
		r.Options.IPAMClaim = e.IPAMClaim
		r.Options.PersistentIPs = false // the pod refers to a claim itself
	}
}
