package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weftnet/weft/internal/jsonempty"
	"github.com/weftnet/weft/internal/jsonerror"
)

// AnnotationNetworks selects NetworkAttachmentDefinitions (multi-network specification 1.3 of the Network Plumbing
// Working Group, section 4.1.2).
const AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"

// Selection is a NetworkAttachmentDefinition that a pod selects, with requests for the interface.
type Selection struct {
	Namespace string // of the definition
	Name      string // of the definition
	Interface string // in the pod
	AddressRequest
	Gateway Gateway // next hop of the default route of the pod; zero: the selection does not name one
	Limits  Limits  // they precede the limits of the definition
}

// MaxDefinition is the maximum size in bytes of the configuration in a NetworkAttachmentDefinition.
const MaxDefinition = maxAnnotation

// Definition returns namespace/name of the definition.
func (s Selection) Definition() string { return s.Namespace + "/" + s.Name }

// Selections returns the selections of a pod of the namespace, in their order. Interfaces without a name are called
// net1, net2 and so on by their position. Its errors have code 103 and name the item.
func Selections(annotations map[string]string, namespace string) ([]Selection, error) {
	text, err := annotationText(annotations, AnnotationNetworks)
	if text == "" || err != nil {
		return nil, err
	}
	parse := shortSelections
	if strings.HasPrefix(text, "[") {
		parse = longSelections
	}
	selections, err := parse(text)
	if err != nil {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %w", AnnotationNetworks, err)
	}
	if len(selections) > MaxCustomInterfaces {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %d networks, at most %d are possible",
			AnnotationNetworks, len(selections), MaxCustomInterfaces)
	}
	for i := range selections {
		s := &selections[i]
		if s.Namespace == "" {
			s.Namespace = namespace
		}
		if s.Interface == "" {
			s.Interface = "net" + strconv.Itoa(i+1)
		}
		if err := s.validate(); err != nil {
			return nil, Errorf(CodeInvalidAnnotation, "annotation %s: network %.300q: %w", AnnotationNetworks,
				s.Definition(), err)
		}
	}
	return selections, nil
}

func (s Selection) validate() error {
	switch {
	case !IsLabel(s.Namespace):
		return errors.New("invalid name of a namespace")
	case !isSubdomain(s.Name):
		return errors.New("invalid name of a NetworkAttachmentDefinition")
	case !IsLinkName(s.Interface):
		return fmt.Errorf("interface %.80q: %s", s.Interface, invalidLinkName)
	}
	return nil
}

// isSubdomain reports whether s is a DNS subdomain (RFC 1123): labels separated by dots.
func isSubdomain(s string) bool {
	return len(s) <= 253 &&
		!slices.ContainsFunc(strings.Split(s, "."), func(label string) bool { return !IsLabel(label) })
}

// shortSelections parses a comma-separated list of [namespace/]name[@interface].
func shortSelections(text string) ([]Selection, error) {
	var selections []Selection
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		network, name, named := strings.Cut(item, "@")
		namespace, plain, whole := strings.Cut(network, "/")
		if !whole {
			namespace = ""
			plain = network
		}
		if plain == "" || whole && namespace == "" || named && name == "" {
			return nil, fmt.Errorf("item %.300q: expected name, namespace/name or namespace/name@interface", item)
		}
		selections = append(selections, Selection{Namespace: namespace, Name: plain, Interface: name})
	}
	return selections, nil
}

// longSelections parses a JSON list of objects.
func longSelections(text string) ([]Selection, error) {
	var items []json.RawMessage
	if err := json.Unmarshal([]byte(text), &items); err != nil {
		return nil, fmt.Errorf("expected a JSON list of objects: %w", jsonerror.Plain(err))
	}
	var selections []Selection
	for i, item := range items {
		s, err := longSelection(item)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		selections = append(selections, s)
	}
	return selections, nil
}

func longSelection(item json.RawMessage) (s Selection, err error) {
	keys, err := members(item)
	if err != nil {
		return s, err
	}
	var args AddressRequest
	for _, key := range keys {
		why := unsupportedKeys[key.name]
		set, known := selectionKeys[key.name]
		switch {
		case why == "" && !known:
			return s, fmt.Errorf("%.80q: unknown key; known are %s", key.name,
				strings.Join(sortedKeys(selectionKeys), ", "))
		case jsonempty.Is(key.value):
			continue
		case why != "":
			return s, fmt.Errorf("%s: %s", key.name, why)
		}
		if err := set(&s, &args, key.value); err != nil {
			return s, fmt.Errorf("%s: %w", key.name, err)
		}
	}
	if s.Name == "" {
		return s, errors.New("name: the name of a NetworkAttachmentDefinition is required")
	}
	s.AddressRequest = s.or(args)
	return s, nil
}

// unsupportedKeys are keys of the specification that Weft rejects, with the reason.
var unsupportedKeys = map[string]string{
	"infiniband-guid": "Weft has no InfiniBand interfaces",
	"portMappings":    "only main interfaces support ports of the node: use hostPort",
}

// selectionKeys are the parsers of a selection's keys. The request in cni-args goes to args.
var selectionKeys = map[string]func(s *Selection, args *AddressRequest, raw json.RawMessage) error{
	"name": func(s *Selection, _ *AddressRequest, raw json.RawMessage) error { return parseString(&s.Name, raw) },
	"namespace": func(s *Selection, _ *AddressRequest, raw json.RawMessage) error {
		return parseString(&s.Namespace, raw)
	},
	"interface": func(s *Selection, _ *AddressRequest, raw json.RawMessage) error {
		return parseString(&s.Interface, raw)
	},
	"ips":           func(s *Selection, _ *AddressRequest, raw json.RawMessage) error { return s.setIPs(raw) },
	"mac":           func(s *Selection, _ *AddressRequest, raw json.RawMessage) error { return s.setMAC(raw) },
	"default-route": func(s *Selection, _ *AddressRequest, raw json.RawMessage) error { return s.setGateway(raw) },
	"ipam-claim-reference": func(s *Selection, _ *AddressRequest, raw json.RawMessage) error {
		return s.setIPAMClaim(raw)
	},
	"bandwidth": func(s *Selection, _ *AddressRequest, raw json.RawMessage) (err error) {
		s.Limits, err = ParseBandwidth(raw)
		return err
	},
	"gateway":  func(s *Selection, _ *AddressRequest, raw json.RawMessage) error { return s.setGateway(raw) },
	"cni-args": func(_ *Selection, args *AddressRequest, raw json.RawMessage) error { return args.setArgs(raw) },
}

// setGateway parses a list of routers, at most one of each family: default-route, and gateway, its former name.
func (s *Selection) setGateway(raw json.RawMessage) error {
	prefixes, err := parsePrefixes(raw)
	if err != nil {
		return err
	}
	var g Gateway
	for _, p := range prefixes {
		if !p.IsSingleIP() || !isHost(p.Addr()) {
			return fmt.Errorf("%s is not the address of a router", p)
		}
		g.Addresses = append(g.Addresses, p.Addr())
	}
	slices.SortFunc(g.Addresses, netip.Addr.Compare)
	if !s.Gateway.IsZero() && s.Gateway.String() != g.String() {
		return fmt.Errorf("default-route and gateway name different routers, %s and %s", s.Gateway, g)
	}
	s.Gateway = g
	return nil
}

func parseString(text *string, raw json.RawMessage) error {
	if json.Unmarshal(raw, text) != nil || *text == "" {
		return fmt.Errorf("expected a string, not %.300q", raw)
	}
	return nil
}

// setArgs parses the conventional arguments ips and mac of CNI and ignores others.
func (a *AddressRequest) setArgs(raw json.RawMessage) error {
	keys, err := members(raw)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if jsonempty.Is(key.value) {
			continue
		}
		switch key.name {
		case "ips":
			err = errors.Join(err, a.setIPs(key.value))
		case "mac":
			err = errors.Join(err, a.setMAC(key.value))
		}
	}
	return err
}

// PluginType is the type of Weft's plugin in a CNI configuration.
const PluginType = "weft-cni"

// ErrOtherPlugin is the error of a configuration of another plugin.
var ErrOtherPlugin = errors.New("not a configuration of type " + PluginType)

// Definition is the configuration of interfaces in a NetworkAttachmentDefinition of Weft.
type Definition struct {
	Network string // "default", "stub", or a custom network's name
	Type    string // tap, veth or memif; "": the type of main interfaces
	Options InterfaceOptions
	Args    AddressRequest // of the key args

	// PassesLimits is true if Multus passes the limits of a selection to the plugin: the capability bandwidth.
	PassesLimits bool
}

// definitionKeys are the parsers of the keys that configure interfaces.
var definitionKeys = map[string]func(d *Definition, raw json.RawMessage) error{
	"network": func(d *Definition, raw json.RawMessage) error {
		if json.Unmarshal(raw, &d.Network) != nil || !IsLabel(d.Network) {
			return fmt.Errorf("expected default, stub or the name of a custom network, not %.300q", raw)
		}
		return nil
	},
	"interfaceType": func(d *Definition, raw json.RawMessage) error {
		if json.Unmarshal(raw, &d.Type) != nil || !IsInterfaceType(d.Type) {
			return fmt.Errorf("expected tap, veth or memif, not %.300q", raw)
		}
		return nil
	},
	"options": func(d *Definition, raw json.RawMessage) (err error) {
		d.Options, err = parseOptions(raw)
		return err
	},
	"args": func(d *Definition, raw json.RawMessage) error {
		var args struct {
			CNI json.RawMessage `json:"cni"`
		}
		if json.Unmarshal(raw, &args) != nil || args.CNI == nil {
			return nil // for other components
		}
		return d.Args.setArgs(args.CNI)
	},
}

// IPAMPluginType is the type of Weft's IPAM plugin in a CNI configuration.
const IPAMPluginType = "weft-ipam"

// validateIPAM rejects other IPAM plugins. Without a type, or with that of Weft's plugin, the network has the
// addresses, as in weft-cni.
func validateIPAM(raw json.RawMessage) error {
	var ipam struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &ipam); err != nil {
		return jsonerror.Plain(err)
	}
	if ipam.Type != "" && ipam.Type != IPAMPluginType {
		return errors.New("only Multus supports other IPAM plugins: remove it to get addresses of the network")
	}
	return nil
}

// otherKeys are the valid keys that do not configure interfaces: keys of weft-cni and of the CNI specification.
var otherKeys = []string{
	"type", "socket", "mode", "timeout", "dialTimeout", "deleteQueue", "logLevel", "logFile",
	"cniVersion", "cniVersions", "name", "disableCheck", "disableGC", "loadOnlyInlinedPlugins",
	"capabilities", "runtimeConfig", "prevResult", "ipMasq", "dns", "deviceID", "pciBusID",
}

// ParseDefinition parses the configuration of a NetworkAttachmentDefinition: a CNI plugin configuration, or a list with
// one plugin. For another plugin it returns [ErrOtherPlugin].
func ParseDefinition(config string) (Definition, error) {
	d := Definition{Network: DefaultNetwork}
	if len(config) > MaxDefinition {
		return d, fmt.Errorf("%d bytes, at most %d are read", len(config), MaxDefinition)
	}
	keys, err := pluginObject(config)
	if err != nil {
		return d, err
	}
	for _, key := range keys {
		parse, known := definitionKeys[key.name]
		switch {
		case jsonempty.Is(key.value) && (known || key.name == "ipam"):
		case known:
			err = parse(&d, key.value)
		case key.name == "ipam":
			err = validateIPAM(key.value)
		case key.name == "capabilities":
			d.PassesLimits = passesLimits(key.value)
		case !slices.Contains(otherKeys, key.name) && !strings.HasPrefix(key.name, "cni.dev/"):
			err = fmt.Errorf("unknown key; keys of interfaces are %s", strings.Join(sortedKeys(definitionKeys), ", "))
		}
		if err != nil {
			return d, fmt.Errorf("%.80q: %w", key.name, err)
		}
	}
	if err := d.Options.ValidateFor(d.Type); err != nil {
		return d, fmt.Errorf(`"options": %w`, err)
	}
	if err := d.Options.checkPersistent("any"); err != nil { // the pods name the interface
		return d, fmt.Errorf(`"options": %w`, err)
	}
	return d, nil
}

// passesLimits reports whether capabilities have bandwidth. Other values are the runtime's concern.
func passesLimits(raw json.RawMessage) bool {
	var capabilities struct {
		Bandwidth bool `json:"bandwidth"`
	}
	return json.Unmarshal(raw, &capabilities) == nil && capabilities.Bandwidth
}

// pluginObject returns the members of the only plugin of a configuration.
func pluginObject(config string) ([]member, error) {
	keys, err := members([]byte(config))
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(keys, func(m member) bool { return m.name == "plugins" })
	if at < 0 {
		return keys, checkType([]byte(config))
	}
	var plugins []json.RawMessage
	if err := json.Unmarshal(keys[at].value, &plugins); err != nil || len(plugins) == 0 {
		return nil, errors.New(`"plugins": expected a list of plugins`)
	}
	for _, p := range plugins {
		if err := checkType(p); err != nil {
			return nil, err
		}
	}
	if len(plugins) > 1 {
		return nil, errors.New(`"plugins": only Multus supports a chain of several plugins`)
	}
	return members(plugins[0])
}

func checkType(object []byte) error {
	var plugin struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(object, &plugin); err != nil {
		return jsonerror.Plain(err)
	}
	if plugin.Type != PluginType {
		return fmt.Errorf("%w but %.80q", ErrOtherPlugin, plugin.Type)
	}
	return nil
}

// Request returns the interface of a pod that selects the definition.
func (d Definition) Request(s Selection) InterfaceRequest {
	r := InterfaceRequest{
		Name:       s.Interface,
		Type:       d.Type,
		Network:    d.Network,
		Definition: s.Definition(),
		Options:    d.Options,
	}
	r.Options.AddressRequest = s.or(d.Args).or(d.Options.AddressRequest)
	r.Options.Limits = s.Limits.over(d.Options.Limits)
	if !s.Gateway.IsZero() {
		r.Options.Gateway = s.Gateway
	}
	return r
}

// ParseOptions parses the options of one interface, as in a definition; "" has none.
func ParseOptions(text string) (InterfaceOptions, error) {
	switch {
	case text == "":
		return InterfaceOptions{}, nil
	case len(text) > maxAnnotation:
		return InterfaceOptions{}, fmt.Errorf("%d bytes, at most %d are read", len(text), maxAnnotation)
	}
	return parseOptions([]byte(text))
}
