package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

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
			return nil // somebody else's
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
