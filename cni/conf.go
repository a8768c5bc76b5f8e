package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agext/levenshtein"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// conf is the plugin object of a network configuration, with what the runtime injects.
type conf struct {
	given
	own
}

// given are the keys that the specification defines.
type given struct {
	types.PluginConf

	RuntimeConfig runtimeConfig   `json:"runtimeConfig"`
	Args          json.RawMessage `json:"args"`

	// DeviceID is where Multus puts it, whether or not the capability deviceID is asked for.
	DeviceID string `json:"deviceID"`

	Valid valid `json:"cni.dev/valid-attachments"`
}

// valid lists the attachments that a GC keeps. A missing key does not mean that none is valid, but null does: CRI-O sends it for a
// network without pods.
type valid struct {
	given bool
	list  []types.GCAttachment
}

// UnmarshalJSON is called for null too.
func (v *valid) UnmarshalJSON(b []byte) error {
	v.given = true
	return json.Unmarshal(b, &v.list)
}

// own are Weft's keys. As an IPAM plugin it finds them in the object ipam: the rest is the other plugin's.
type own struct {
	Socket      string   `json:"socket"`
	Mode        string   `json:"mode"`
	Timeout     duration `json:"timeout"`     // of an ADD
	DialTimeout duration `json:"dialTimeout"` // for an agent that does not listen, in an ADD
	DeleteQueue string   `json:"deleteQueue"`
	LogLevel    string   `json:"logLevel"`
	LogFile     string   `json:"logFile"` // "" = no log

	// Of mode delegate: what the interface is. Left out, it is one of pods' main interfaces.
	Network       string          `json:"network"`       // of Weft's
	InterfaceType string          `json:"interfaceType"` // tap, veth or memif
	Options       json.RawMessage `json:"options"`       // as in the annotation contivpp.io/custom-if-options

	// Of weft-ipam.
	Routes []*types.Route `json:"routes"` // what the other plugin is to route by the interface
	Pool   string         `json:"pool"`   // that addresses come from
	Pools  []string       `json:"pools"`  // the same, where there are several: at most one address a family is given
}

// runtimeConfig holds the capabilities of the CNI conventions.
type runtimeConfig struct {
	IPs         []string           `json:"ips"`
	MAC         string             `json:"mac"`
	DeviceID    string             `json:"deviceID"`
	Infiniband  json.RawMessage    `json:"infinibandGUID"`
	Annotations *map[string]string `json:"io.kubernetes.cri.pod-annotations"`

	// Capabilities that Weft does not implement.
	Ports      json.RawMessage `json:"portMappings"`
	Bandwidth  json.RawMessage `json:"bandwidth"`
	DNS        json.RawMessage `json:"dns"`
	IPRanges   json.RawMessage `json:"ipRanges"`
	Aliases    json.RawMessage `json:"aliases"`
	CgroupPath json.RawMessage `json:"cgroupPath"`
}

// unserved returns an error if the runtime requests a capability that Weft does not implement. Ignoring it would start a pod without, for
// example, its bandwidth limit.
func (r *runtimeConfig) unserved() error {
	for _, asked := range []struct {
		capability string
		value      json.RawMessage
		instead    string
	}{
		{"infinibandGUID", r.Infiniband, "Weft has no InfiniBand interfaces"},
		{"portMappings", r.Ports, "put the plugin portmap behind weft-cni"},
		{"bandwidth", r.Bandwidth, "weft-cni limits no bandwidth"},
		{"dns", r.DNS, "weft-cni sets no resolver"},
		{"ipRanges", r.IPRanges, "ranges are those of Weft's pools"},
		{"aliases", r.Aliases, "weft-cni gives no aliases"},
		{"cgroupPath", r.CgroupPath, "weft-cni uses no cgroup"},
	} {
		if !slices.Contains([]string{"", "null", "{}", "[]", `""`}, string(asked.value)) {
			return types.NewError(types.ErrInvalidNetworkConfig,
				fmt.Sprintf("capability %s: %s; remove it from the capabilities of weft-cni", asked.capability, asked.instead), "")
		}
	}
	return nil
}

// The keys of a plugin object. All that begin with reserved are the specification's too.
var (
	ownKeys  = []string{"socket", "mode", "timeout", "dialTimeout", "deleteQueue", "logLevel", "logFile", "network", "interfaceType", "options"}
	specKeys = []string{
		"cniVersion", "cniVersions", "name", "type", "disableCheck", "disableGC", "loadOnlyInlinedPlugins",
		"capabilities", "runtimeConfig", "args", "prevResult", "ipam", "ipMasq", "dns",
		"deviceID", "pciBusID", // Multus', which no specification has
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
	maxSocketPath  = 107 // the kernel's
)

func defaults() *conf {
	return &conf{own: own{
		Socket:      "/run/weft/agent.sock",
		Mode:        "primary",
		Timeout:     duration(60 * time.Second),
		DialTimeout: duration(2 * time.Second),
		DeleteQueue: "/var/lib/weft/delete-queue",
		LogLevel:    "info",
	}}
}

// parseConf reads the configuration and names what is wrong with it.
func parseConf(stdin []byte, r role) (*conf, error) {
	if err := scan(stdin); err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "network configuration: "+err.Error(), "")
	}
	ours, err := r.ownObject(stdin)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "network configuration: "+err.Error(), "")
	}
	if err := refuseUnknown(ours, r); err != nil {
		return nil, err
	}
	c := defaults()
	if err := c.decode(stdin, ours); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "network configuration: "+err.Error(), "")
	}
	err = c.own.validate()
	if err == nil {
		err = c.foreignIsSound(r)
	}
	if err == nil {
		err = c.foreignIsHeard(r)
	}
	if err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "network configuration: "+err.Error(), "")
	}
	return c, nil
}

// parseConfLeniently takes what it understands, and defaults for the rest.
func parseConfLeniently(stdin []byte, r role) *conf {
	c := defaults()
	c.CNIVersion = oldest
	for one := range members(stdin) {
		trial := c.given
		if trial.decode(one) == nil {
			c.given = trial
		}
	}
	ours, err := r.ownObject(stdin)
	if err != nil {
		return c
	}
	c.takeSound(slices.Collect(members(ours)))
	return c
}

// takeSound takes what is sound of our own members, which come in any order: some are sound only beside others.
func (c *conf) takeSound(left [][]byte) {
	for {
		rest := slices.DeleteFunc(slices.Clone(left), func(one []byte) bool {
			trial := c.own
			sound := json.Unmarshal(one, &trial) == nil && trial.validate() == nil
			if sound {
				c.own = trial
			}
			return sound
		})
		if len(rest) == len(left) {
			return
		}
		left = rest
	}
}

// members gives each member of an object as an object of its own; what is no object has none.
func members(object []byte) iter.Seq[[]byte] {
	var keys map[string]json.RawMessage
	_ = json.Unmarshal(object, &keys) // what has no keys has none to take
	return func(yield func([]byte) bool) {
		for key, value := range keys {
			one, err := json.Marshal(map[string]json.RawMessage{key: value})
			if err == nil && !yield(one) {
				return
			}
		}
	}
}

// oldest is the version of a configuration that names none, as the specification says.
const oldest = "0.1.0"

func (c *conf) decode(stdin, ours []byte) error {
	if err := c.given.decode(stdin); err != nil {
		return err
	}
	return json.Unmarshal(ours, &c.own)
}

func (g *given) decode(b []byte) error {
	if err := json.Unmarshal(b, g); err != nil {
		return err
	}
	if g.CNIVersion == "" {
		g.CNIVersion = oldest
	}
	return nil
}

func refuseUnknown(ours []byte, r role) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(ours, &keys); err != nil {
		return types.NewError(types.ErrDecodingFailure, "network configuration: "+err.Error(), "")
	}
	known := r.keys()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if strings.HasPrefix(key, reserved) || slices.Contains(known, key) {
			continue
		}
		return types.NewError(types.ErrInvalidNetworkConfig,
			fmt.Sprintf("network configuration: unknown key %q%s, did you mean %q?", key, r.where(), nearest(key, known)), "")
	}
	return nil
}

// nearest finds the known key that is most like this one.
func nearest(key string, known []string) string {
	key = strings.ToLower(key)
	return slices.MinFunc(known, func(a, b string) int {
		return levenshtein.Distance(key, strings.ToLower(a), nil) - levenshtein.Distance(key, strings.ToLower(b), nil)
	})
}

func (c *own) validate() error {
	switch {
	case !filepath.IsAbs(c.Socket) || len(c.Socket) > maxSocketPath:
		return fmt.Errorf("socket %q is not an absolute path of at most %d bytes", c.Socket, maxSocketPath)
	case !slices.Contains(modes, c.Mode):
		return fmt.Errorf("mode %q is none of %s", c.Mode, strings.Join(modes, ", "))
	case c.Timeout <= 0 || time.Duration(c.Timeout) > maxTimeout:
		return fmt.Errorf("timeout %s is not above 0 and at most %s", time.Duration(c.Timeout), maxTimeout)
	case c.DialTimeout <= 0 || time.Duration(c.DialTimeout) > maxDialTimeout:
		return fmt.Errorf("dialTimeout %s is not above 0 and at most %s", time.Duration(c.DialTimeout), maxDialTimeout)
	case !filepath.IsAbs(c.DeleteQueue):
		return fmt.Errorf("deleteQueue %q is not an absolute path", c.DeleteQueue)
	case !slices.Contains(levels, c.LogLevel):
		return fmt.Errorf("logLevel %q is none of %s", c.LogLevel, strings.Join(levels, ", "))
	case c.Mode != modeDelegate && (c.Network != "" || c.InterfaceType != "" || c.Options != nil):
		return fmt.Errorf("network, interfaceType and options are for mode delegate, not for mode %s: pods' main interfaces are on the network default", c.Mode)
	case c.Pool != "" && len(c.Pools) > 0:
		return errors.New("pool and pools exclude each other")
	case slices.Contains(c.Pools, ""):
		return errors.New("pools: one of them has no name")
	case slices.Contains(c.Routes, nil):
		return errors.New("routes: one of them is null")
	case c.LogFile != "" && !filepath.IsAbs(c.LogFile):
		return fmt.Errorf("logFile %q is not an absolute path", c.LogFile)
	}
	return notSpecial(c.LogFile)
}

// duration is written as in Go: "60s".
type duration time.Duration

// UnmarshalJSON reads a text; a bare number has no unit and is refused.
func (d *duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return errors.New(`a duration is a text like "60s"`)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("duration %q: a text like \"60s\" is expected", text)
	}
	*d = duration(parsed)
	return nil
}

// Modes in which Weft does not make the main interface.
const (
	modeChained  = "chained"
	modeDelegate = "delegate"
)

// earlier is what plugins before this one made. Only in a chain is it needed: the main plugin never fails because of it.
func (c *call) earlier() (*types100.Result, error) {
	if c.ipam {
		return nil, nil
	}
	prev, err := c.conf.prevResult()
	switch {
	case c.mode() != modeChained && err != nil:
		c.log.Warn("prevResult left out", "err", err)
	case c.mode() != modeChained:
	case err != nil:
		return nil, types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	case prev == nil:
		return nil, types.NewError(types.ErrInvalidNetworkConfig,
			"mode chained needs prevResult, the result of the plugin before: weft-cni cannot be the first of its list", "")
	}
	return prev, nil
}

// unchanged is prevResult to the letter, where an ADD in a chain had nothing to add: what this library does not know
// of it is passed on as well. It is nil where there is something to add or to convert.
func (c *call) unchanged(answer *weftv1.AddReply) *verbatim {
	if c.mode() != modeChained || len(answer.GetInterfaces())+len(answer.GetIps())+len(answer.GetRoutes()) > 0 {
		return nil
	}
	var conf struct {
		Prev json.RawMessage `json:"prevResult"`
	}
	var prev struct {
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal(c.StdinData, &conf) != nil || json.Unmarshal(conf.Prev, &prev) != nil || prev.CNIVersion != c.conf.CNIVersion {
		return nil
	}
	return &verbatim{conf.Prev, os.Stdout}
}

// verbatim is a document that is printed as it came.
type verbatim struct {
	document []byte
	out      io.Writer
}

// Print prints it.
func (v *verbatim) Print() error {
	if _, err := v.out.Write(v.document); err != nil {
		return fmt.Errorf("print prevResult: %w", err)
	}
	return nil
}

// Bounds of a configuration: a list of valid attachments of a large node has some tens of kilobytes.
const (
	maxConfBytes = 1 << 20
	maxConfDepth = 32
)

// scan refuses what encoding/json would take in silence: keys given twice, of which
// the last would win, and documents of absurd size or depth.
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
		if err := open.take(token); err != nil {
			return err
		}
	}
}

// nesting are the objects and arrays that a token stands in.
type nesting []*level

type level struct {
	seen  map[string]bool // keys so far; nil in an array
	value bool            // the next token is the value of a key
}

func (n *nesting) take(token json.Token) error {
	delimiter, _ := token.(json.Delim)
	if delimiter == '}' || delimiter == ']' {
		*n = (*n)[:len(*n)-1]
		return nil
	}
	if err := n.place(token); err != nil {
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

// place notes a token in what it stands in: in an object, keys and values take turns.
func (n *nesting) place(token json.Token) error {
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
	in.seen[key], in.value = true, true
	return nil
}
