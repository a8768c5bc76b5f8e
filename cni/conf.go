package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agext/levenshtein"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/weftnet/weft/internal/jsonempty"
	"github.com/weftnet/weft/internal/jsonerror"
)

// conf is the plugin object of a network configuration, with the keys that the runtime injects.
type conf struct {
	specConf
	weftConf
}

// specConf has the keys that the CNI specification defines.
type specConf struct {
	types.PluginConf

	RuntimeConfig runtimeConfig   `json:"runtimeConfig"`
	Args          json.RawMessage `json:"args"`

	// DeviceID is set by Multus, with or without the capability deviceID.
	DeviceID string `json:"deviceID"`

	Valid validAttachments `json:"cni.dev/valid-attachments"`
}

// validAttachments lists the attachments that a GC keeps. null is an empty list, which CRI-O sends for a network
// without pods; a missing key is not.
type validAttachments struct {
	present bool
	list    []types.GCAttachment
}

// UnmarshalJSON is called for null too.
func (v *validAttachments) UnmarshalJSON(b []byte) error {
	v.present = true
	return json.Unmarshal(b, &v.list)
}

// weftConf has Weft's keys. weft-ipam has them in the object ipam.
type weftConf struct {
	nodeSettings // must be the node's

	Mode        string   `json:"mode"`
	Timeout     duration `json:"timeout"`     // of an ADD
	DialTimeout duration `json:"dialTimeout"` // for an agent that does not listen, in an ADD

	// For mode delegate. Without them the interface is like a pod's main interface.
	Network       string          `json:"network"`       // a network of Weft
	InterfaceType string          `json:"interfaceType"` // tap, veth or memif
	Options       json.RawMessage `json:"options"`       // as in the annotation contivpp.io/custom-if-options

	// For weft-ipam.
	Routes []*types.Route `json:"routes"` // for the interface of the other plugin
	Pool   string         `json:"pool"`   // to allocate addresses from
	Pools  []string       `json:"pools"`  // several pools; at most one address per family is allocated
}

// runtimeConfig holds the capabilities of the CNI conventions.
type runtimeConfig struct {
	IPs         []string           `json:"ips"`
	MAC         string             `json:"mac"`
	DeviceID    string             `json:"deviceID"`
	Bandwidth   json.RawMessage    `json:"bandwidth"`
	Infiniband  json.RawMessage    `json:"infinibandGUID"`
	Annotations *map[string]string `json:"io.kubernetes.cri.pod-annotations"`

	// Capabilities that Weft does not implement.
	Ports      json.RawMessage `json:"portMappings"`
	DNS        json.RawMessage `json:"dns"`
	IPRanges   json.RawMessage `json:"ipRanges"`
	Aliases    json.RawMessage `json:"aliases"`
	CgroupPath json.RawMessage `json:"cgroupPath"`
}

// validateCapabilities returns an error if the runtime requests a capability that Weft does not implement. Ignoring it
// would start a pod without, for example, its port of the node.
func (r *runtimeConfig) validateCapabilities() error {
	for _, requested := range []struct {
		capability string
		value      json.RawMessage
		reason     string
	}{
		{"infinibandGUID", r.Infiniband, "Weft has no InfiniBand interfaces"},
		{"portMappings", r.Ports, "put the plugin portmap behind weft-cni"},
		{"dns", r.DNS, "weft-cni does not configure a resolver"},
		{"ipRanges", r.IPRanges, "the pools of Weft define the ranges"},
		{"aliases", r.Aliases, "weft-cni does not configure aliases"},
		{"cgroupPath", r.CgroupPath, "weft-cni does not use cgroups"},
	} {
		if !jsonempty.Is(requested.value) {
			return errorf(types.ErrInvalidNetworkConfig,
				"capability %s: %s; remove it from the capabilities of weft-cni", requested.capability,
				requested.reason)
		}
	}
	return nil
}

// The keys of a plugin object. The specification also reserves the prefix reserved.
var (
	ownKeys = []string{
		"socket", "mode", "timeout", "dialTimeout", "deleteQueue", "logLevel", "logFile", "network", "interfaceType",
		"options",
	}
	specKeys = []string{
		"cniVersion", "cniVersions", "name", "type", "disableCheck", "disableGC", "loadOnlyInlinedPlugins",
		"capabilities", "runtimeConfig", "args", "prevResult", "ipam", "ipMasq", "dns",
		"deviceID", "pciBusID", // of Multus, in no specification
	}
)

const reserved = "cni.dev/"

var (
	modes  = []string{"primary", modeChained, modeDelegate}
	levels = []string{"debug", "info", "warn", "error"}
)

const (
	maxTimeout     = 200 * time.Second // kubelet waits four minutes for a sandbox
	maxDialTimeout = 10 * time.Second
	maxSocketPath  = 107 // of the kernel
)

// defaults returns the values of missing keys.
func (n node) defaults() *conf {
	return &conf{weftConf: weftConf{
		nodeSettings: n.nodeSettings,
		Mode:         "primary",
		Timeout:      duration(60 * time.Second),
		DialTimeout:  duration(2 * time.Second),
	}}
}

// parse parses a network configuration.
func (n node) parse(stdin []byte, r role) (*conf, error) {
	if err := scan(stdin); err != nil {
		return nil, errorf(types.ErrInvalidNetworkConfig, "network configuration: %v", err)
	}
	ours, err := r.ownObject(stdin)
	if err != nil {
		return nil, errorf(types.ErrDecodingFailure, "network configuration: %v", err)
	}
	if err := rejectUnknownKeys(ours, r); err != nil {
		return nil, err
	}
	c := n.defaults()
	if err := c.decode(withoutEmpty(stdin), withoutEmpty(ours)); err != nil {
		return nil, errorf(types.ErrDecodingFailure, "network configuration: %v", err)
	}
	err = n.admits(c.nodeSettings) // first: validation looks at the files
	if err == nil {
		err = c.validate()
	}
	if err == nil {
		err = c.validateIPAMType(r)
	}
	if err == nil {
		err = c.validateInterfaceIPAM(r)
	}
	if err != nil {
		return nil, errorf(types.ErrInvalidNetworkConfig, "network configuration: %v", err)
	}
	return c, nil
}

// parseForDel skips invalid keys, and uses defaults for them.
func (n node) parseForDel(stdin []byte, r role) *conf {
	c := n.defaults()
	c.CNIVersion = oldest
	for member := range members(stdin) {
		trial := c.specConf
		if trial.decode(member) == nil {
			c.specConf = trial
		}
	}
	ours, err := r.ownObject(stdin)
	if err != nil {
		return c
	}
	c.applyValid(slices.Collect(members(ours)), n)
	return c
}

// applyValid applies Weft's valid members. It iterates, because some are valid only together with others.
func (c *conf) applyValid(left [][]byte, n node) {
	for {
		rest := slices.DeleteFunc(slices.Clone(left), func(member []byte) bool {
			trial := c.weftConf
			valid := json.Unmarshal(member, &trial) == nil && n.admits(trial.nodeSettings) == nil &&
				trial.validate() == nil
			if valid {
				c.weftConf = trial
			}
			return valid
		})
		if len(rest) == len(left) {
			return
		}
		left = rest
	}
}

// members yields each member of a JSON object as an object of its own. Other JSON values have no members.
func members(object []byte) iter.Seq[[]byte] {
	var keys map[string]json.RawMessage
	_ = json.Unmarshal(object, &keys)
	return func(yield func([]byte) bool) {
		for key, value := range keys {
			member, err := json.Marshal(map[string]json.RawMessage{key: value})
			if err == nil && !yield(member) {
				return
			}
		}
	}
}

// oldest is the version of a configuration without cniVersion (CNI specification).
const oldest = "0.1.0"

func (c *conf) decode(stdin, ours []byte) error {
	if err := c.specConf.decode(stdin); err != nil {
		return err
	}
	return jsonerror.Plain(json.Unmarshal(ours, &c.weftConf))
}

func (c *specConf) decode(b []byte) error {
	if err := json.Unmarshal(b, c); err != nil {
		return jsonerror.Plain(err)
	}
	if c.CNIVersion == "" {
		c.CNIVersion = oldest
	}
	return nil
}

// withoutEmpty omits keys with an empty value, which are the same as missing ones. The list of valid attachments may be
// empty.
func withoutEmpty(object []byte) []byte {
	var keys map[string]json.RawMessage
	if json.Unmarshal(object, &keys) != nil {
		return object // decoding it reports the error
	}
	maps.DeleteFunc(keys, func(key string, value json.RawMessage) bool {
		return !strings.HasPrefix(key, reserved) && jsonempty.Is(value)
	})
	rest, err := json.Marshal(keys)
	if err != nil {
		return object
	}
	return rest
}

func rejectUnknownKeys(ours []byte, r role) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(ours, &keys); err != nil {
		return errorf(types.ErrDecodingFailure, "network configuration: %v", jsonerror.Plain(err))
	}
	known := r.keys()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if strings.HasPrefix(key, reserved) || slices.Contains(known, key) {
			continue
		}
		return errorf(types.ErrInvalidNetworkConfig, "network configuration: unknown key %q%s, did you mean %q?", key,
			r.where(), nearest(key, known))
	}
	return nil
}

// nearest returns the known key with the smallest edit distance to key.
func nearest(key string, known []string) string {
	key = strings.ToLower(key)
	return slices.MinFunc(known, func(a, b string) int {
		return levenshtein.Distance(key, strings.ToLower(a), nil) - levenshtein.Distance(key, strings.ToLower(b), nil)
	})
}

func (c *weftConf) validate() error {
	switch {
	case !slices.Contains(modes, c.Mode):
		return fmt.Errorf("invalid mode %q, use one of %s", c.Mode, strings.Join(modes, ", "))
	case c.Timeout <= 0 || time.Duration(c.Timeout) > maxTimeout:
		return fmt.Errorf("timeout %s is not above 0 and at most %s", time.Duration(c.Timeout), maxTimeout)
	case c.DialTimeout <= 0 || time.Duration(c.DialTimeout) > maxDialTimeout:
		return fmt.Errorf("dialTimeout %s is not above 0 and at most %s", time.Duration(c.DialTimeout), maxDialTimeout)
	case c.Mode != modeDelegate && (c.Network != "" || c.InterfaceType != "" || c.Options != nil):
		return fmt.Errorf(
			"network, interfaceType and options need mode delegate: in mode %s pods are on the network default", c.Mode)
	case c.Pool != "" && len(c.Pools) > 0:
		return errors.New("pool and pools are mutually exclusive")
	case slices.Contains(c.Pools, ""):
		return errors.New("pools contains an empty name")
	case slices.Contains(c.Routes, nil):
		return errors.New("routes contains null")
	}
	return c.nodeSettings.validate()
}

// duration has the format of time.ParseDuration.
type duration time.Duration

// UnmarshalJSON rejects a number, because it has no unit.
func (d *duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return errors.New(`invalid duration, use a string like "60s"`)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf(`invalid duration %q, use a string like "60s"`, text)
	}
	*d = duration(parsed)
	return nil
}

// Modes in which another plugin makes the main interface.
const (
	modeChained  = "chained"
	modeDelegate = "delegate"
)

// Limits of a configuration. The list of valid attachments of a large node has tens of kilobytes.
const (
	maxConfBytes = 1 << 20
	maxConfDepth = 32
)

// scan rejects documents that encoding/json accepts: with duplicate keys, too large, or too deeply nested.
func scan(document []byte) error {
	if len(document) > maxConfBytes {
		return fmt.Errorf("more than %d bytes", maxConfBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var open nesting
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) && len(open) == 0 {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if err := open.add(token); err != nil {
			return err
		}
	}
}

// nesting is the stack of objects and arrays around a token.
type nesting []*level

type level struct {
	seen  map[string]bool // the keys so far; nil in an array
	value bool            // the next token is the value of a key
}

func (n *nesting) add(token json.Token) error {
	delimiter, _ := token.(json.Delim)
	if delimiter == '}' || delimiter == ']' {
		*n = (*n)[:len(*n)-1]
		return nil
	}
	if err := n.checkKey(token); err != nil {
		return err
	}
	if delimiter == 0 {
		return nil
	}
	if len(*n) == maxConfDepth {
		return fmt.Errorf("nested deeper than %d", maxConfDepth)
	}
	inner := &level{}
	if delimiter == '{' {
		inner.seen = make(map[string]bool)
	}
	*n = append(*n, inner)
	return nil
}

// checkKey rejects a duplicate key. In an object, keys and values alternate.
func (n *nesting) checkKey(token json.Token) error {
	if len(*n) == 0 {
		return nil
	}
	in := (*n)[len(*n)-1]
	if in.seen == nil {
		return nil
	}
	if in.value {
		in.value = false
		return nil
	}
	key, _ := token.(string)
	if in.seen[key] {
		return fmt.Errorf("key %q is given twice", key)
	}
	in.seen[key] = true
	in.value = true
	return nil
}
