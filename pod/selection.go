package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// AnnotationNetworks selects networks by their NetworkAttachmentDefinitions, as the multi-net specification of the Network
// Plumbing Working Group says (version 1.3, section 4.1.2).
const AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"

// Selection is one network that a pod selects: a definition, and what the pod asks of the interface.
type Selection struct {
	Namespace string // of the definition
	Name      string // of the definition
	Interface string // in the pod
	Asked     Asked
}

// Asked holds the requested addresses, at most one of each family, and the requested MAC.
type Asked struct {
	IPs []netip.Prefix // as in InterfaceOptions
	MAC string
}

// or is what is asked for here, and for the rest what others ask for.
func (a Asked) or(other Asked) Asked {
	if len(a.IPs) == 0 {
		a.IPs = other.IPs
	}
	if a.MAC == "" {
		a.MAC = other.MAC
	}
	return a
}

// Definition names the selection's definition: namespace/name.
func (s Selection) Definition() string { return s.Namespace + "/" + s.Name }

// Selections reads which networks a pod of that namespace selects, in their order. Interfaces without a name are called
// net1, net2 and so on, by their place in the list. Its errors have code 103 and name the item.
func Selections(annotations map[string]string, namespace string) ([]Selection, error) {
	text, err := list(annotations, AnnotationNetworks)
	if text == "" || err != nil {
		return nil, err
	}
	read := shortSelections
	if strings.HasPrefix(text, "[") {
		read = longSelections
	}
	selections, err := read(text)
	if err != nil {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %w", AnnotationNetworks, err)
	}
	if len(selections) > MaxCustomInterfaces {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %d networks, at most %d are possible", AnnotationNetworks, len(selections), MaxCustomInterfaces)
	}
	for i := range selections {
		s := &selections[i]
		if s.Namespace == "" {
			s.Namespace = namespace
		}
		if s.Interface == "" {
			s.Interface = "net" + strconv.Itoa(i+1)
		}
		if why := s.wrong(); why != "" {
			return nil, Errorf(CodeInvalidAnnotation, "annotation %s: network %.300q: %s", AnnotationNetworks, s.Definition(), why)
		}
	}
	return selections, nil
}

// wrong says what cannot be about a selection; "" is nothing.
func (s Selection) wrong() string {
	switch {
	case !IsLabel(s.Namespace):
		return "its namespace is no name of a namespace"
	case !isSubdomain(s.Name):
		return "its name is no name of a NetworkAttachmentDefinition"
	case !IsLinkName(s.Interface):
		return fmt.Sprintf("interface %.80q: the name must be one of a Linux interface: 1 to 15 bytes, no slash, colon or blank, not lo, all or default", s.Interface)
	}
	return ""
}

// isSubdomain reports whether s is a DNS subdomain (RFC 1123): labels with dots between them.
func isSubdomain(s string) bool {
	return len(s) <= 253 && !slices.ContainsFunc(strings.Split(s, "."), func(label string) bool { return !IsLabel(label) })
}

// shortSelections reads [namespace/]name[@interface], comma separated.
func shortSelections(text string) ([]Selection, error) {
	var selections []Selection
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		network, name, named := strings.Cut(item, "@")
		namespace, plain, whole := strings.Cut(network, "/")
		if !whole {
			namespace, plain = "", network
		}
		if plain == "" || whole && namespace == "" || named && name == "" {
			return nil, fmt.Errorf("item %.300q: expected name, namespace/name or namespace/name@interface", item)
		}
		selections = append(selections, Selection{Namespace: namespace, Name: plain, Interface: name})
	}
	return selections, nil
}

// longSelections reads a JSON list of objects.
func longSelections(text string) ([]Selection, error) {
	var items []json.RawMessage
	if err := json.Unmarshal([]byte(text), &items); err != nil {
		return nil, fmt.Errorf("expected a JSON list of objects: %w", err)
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
	var args Asked
	for _, key := range keys {
		if why := notWefts[key.name]; why != "" {
			return s, fmt.Errorf("%s: %s", key.name, why)
		}
		set, known := selectionKeys[key.name]
		if !known {
			return s, fmt.Errorf("%.80q: unknown key; known are %s", key.name, strings.Join(sortedKeys(selectionKeys), ", "))
		}
		if err := set(&s, &args, key.value); err != nil {
			return s, fmt.Errorf("%s: %w", key.name, err)
		}
	}
	if s.Name == "" {
		return s, errors.New("name: the name of a NetworkAttachmentDefinition is needed")
	}
	s.Asked = s.Asked.or(args)
	return s, nil
}

// notWefts are the keys of the specification that Weft has nothing for, with the reason: a pod that needs them is not to
// run without.
var notWefts = map[string]string{
	"infiniband-guid":      "Weft has no InfiniBand interfaces",
	"bandwidth":            "Weft does not shape the traffic of interfaces",
	"portMappings":         "ports of the node lead to main interfaces only: use hostPort",
	"default-route":        "the default route is the main interface's",
	"ipam-claim-reference": "Weft does not know IPAMClaims: ask for ips",
}

// selectionKeys are the keys that a selection can have, and how each is read; what cni-args asks for goes into args.
var selectionKeys = map[string]func(s *Selection, args *Asked, raw json.RawMessage) error{
	"name":      func(s *Selection, _ *Asked, raw json.RawMessage) error { return readText(&s.Name, raw) },
	"namespace": func(s *Selection, _ *Asked, raw json.RawMessage) error { return readText(&s.Namespace, raw) },
	"interface": func(s *Selection, _ *Asked, raw json.RawMessage) error { return readText(&s.Interface, raw) },
	"ips":       func(s *Selection, _ *Asked, raw json.RawMessage) error { return s.Asked.setIPs(raw) },
	"mac":       func(s *Selection, _ *Asked, raw json.RawMessage) error { return s.Asked.setMAC(raw) },
	"cni-args":  func(_ *Selection, args *Asked, raw json.RawMessage) error { return args.setArgs(raw) },
}

func readText(text *string, raw json.RawMessage) error {
	if json.Unmarshal(raw, text) != nil || *text == "" {
		return fmt.Errorf("expected a text, not %.300q", raw)
	}
	return nil
}

func (a *Asked) setIPs(raw json.RawMessage) (err error) {
	a.IPs, err = parsePrefixes(raw)
	return err
}

func (a *Asked) setMAC(raw json.RawMessage) error {
	var o InterfaceOptions
	err := o.setMAC(raw)
	a.MAC = o.MAC
	return err
}

// setArgs reads the conventional arguments of CNI that Weft knows; the rest is not Weft's.
func (a *Asked) setArgs(raw json.RawMessage) error {
	keys, err := members(raw)
	if err != nil {
		return err
	}
	for _, key := range keys {
		switch key.name {
		case "ips":
			err = errors.Join(err, a.setIPs(key.value))
		case "mac":
			err = errors.Join(err, a.setMAC(key.value))
		}
	}
	return err
}

// PluginType is the type of Weft's plugin in a configuration of CNI.
const PluginType = "weft-cni"

// ErrOtherPlugin says that a configuration is not one of Weft's.
var ErrOtherPlugin = errors.New("it is no configuration of type " + PluginType)

// Definition is what a NetworkAttachmentDefinition of Weft's says about the interfaces that are made by it.
type Definition struct {
	Network string // "default", "stub", or a custom network's name
	Type    string // tap, veth or memif; "": that of main interfaces
	Options InterfaceOptions
	Args    Asked // of the configuration's args
}

// definitionKeys are the keys of a definition that say something about interfaces, and how each is read.
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
		d.Options, err = parseOption(raw)
		return err
	},
	"args": func(d *Definition, raw json.RawMessage) error {
		var args struct {
			CNI json.RawMessage `json:"cni"`
		}
		if json.Unmarshal(raw, &args) != nil || args.CNI == nil {
			return nil // of another component
		}
		return d.Args.setArgs(args.CNI)
	},
}

// otherKeys are those of the plugin's configuration that say nothing about interfaces: how the plugin reaches the agent,
// and what the specification of CNI has for others.
var otherKeys = []string{
	"type", "socket", "mode", "timeout", "dialTimeout", "deleteQueue", "logLevel", "logFile",
	"cniVersion", "cniVersions", "name", "disableCheck", "disableGC", "loadOnlyInlinedPlugins",
	"capabilities", "runtimeConfig", "prevResult", "ipMasq", "dns", "deviceID", "pciBusID",
}

// ParseDefinition reads the configuration of a NetworkAttachmentDefinition: an object of CNI, or a list with one plugin.
// One of another plugin is [ErrOtherPlugin].
func ParseDefinition(config string) (Definition, error) {
	d := Definition{Network: DefaultNetwork}
	if len(config) > maxAnnotation {
		return d, fmt.Errorf("%d bytes, at most %d are read", len(config), maxAnnotation)
	}
	keys, err := pluginObject(config)
	if err != nil {
		return d, err
	}
	for _, key := range keys {
		set, says := definitionKeys[key.name]
		switch {
		case says:
			err = set(&d, key.value)
		case key.name == "ipam":
			err = errors.New("only Multus has another IPAM plugin asked for addresses: leave it out, and the network gives them")
		case !slices.Contains(otherKeys, key.name) && !strings.HasPrefix(key.name, "cni.dev/"):
			known := slices.Sorted(maps.Keys(definitionKeys))
			err = fmt.Errorf("unknown key; of interfaces there are %s", strings.Join(known, ", "))
		}
		if err != nil {
			return d, fmt.Errorf("%.80q: %w", key.name, err)
		}
	}
	return d, d.validate()
}

func (d *Definition) validate() error {
	if err := d.Options.Suit(d.Type); err != nil {
		return fmt.Errorf(`"options": %w`, err)
	}
	return nil
}

// pluginObject gives the members of the one plugin of a configuration.
func pluginObject(config string) ([]member, error) {
	keys, err := members([]byte(config))
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(keys, func(m member) bool { return m.name == "plugins" })
	if at < 0 {
		return keys, isWefts([]byte(config))
	}
	var plugins []json.RawMessage
	if err := json.Unmarshal(keys[at].value, &plugins); err != nil || len(plugins) == 0 {
		return nil, errors.New(`"plugins": expected a list of plugins`)
	}
	for _, p := range plugins {
		if err := isWefts(p); err != nil {
			return nil, err
		}
	}
	if len(plugins) > 1 {
		return nil, errors.New(`"plugins": several are a chain, which only Multus executes`)
	}
	return members(plugins[0])
}

func isWefts(object []byte) error {
	var plugin struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(object, &plugin); err != nil {
		return err
	}
	if plugin.Type != PluginType {
		return fmt.Errorf("%w, but of type %.80q", ErrOtherPlugin, plugin.Type)
	}
	return nil
}

// Request is the interface that a pod gets by selecting the definition.
func (d Definition) Request(s Selection) InterfaceRequest {
	asked := s.Asked.or(d.Args).or(Asked{IPs: d.Options.IPs, MAC: d.Options.MAC})
	r := InterfaceRequest{Name: s.Interface, Type: d.Type, Network: d.Network, Definition: s.Definition(), Options: d.Options}
	r.Options.IPs, r.Options.MAC = asked.IPs, asked.MAC
	return r
}

// ParseOptions reads the options of one interface, as in a definition; "" are none.
func ParseOptions(text string) (InterfaceOptions, error) {
	if text == "" {
		return InterfaceOptions{}, nil
	}
	return parseOption([]byte(text))
}
