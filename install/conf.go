package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// list is a network configuration list of the CNI specification.
type list struct {
	CNIVersion  string   `json:"cniVersion"`
	CNIVersions []string `json:"cniVersions,omitempty"`
	Name        string   `json:"name"`
	Plugins     []any    `json:"plugins"`
}

// object is Weft's entry in a list.
type object struct {
	Type         string          `json:"type"`
	Mode         string          `json:"mode"`
	Socket       string          `json:"socket,omitempty"`
	DeleteQueue  string          `json:"deleteQueue,omitempty"`
	LogLevel     string          `json:"logLevel,omitempty"`
	LogFile      string          `json:"logFile,omitempty"`
	Capabilities map[string]bool `json:"capabilities"`
}

// chainedPlugin is the entry of a plugin that follows Weft.
type chainedPlugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

// capabilitiesOf are the capabilities that the plugins after Weft need.
var capabilitiesOf = map[string]map[string]bool{
	"portmap": {"portMappings": true},
	"tuning":  {"mac": true},
}

// network is the name of Weft's own list.
const network = "weft"

// The newest version of the specification that old runtimes know, and the first version with STATUS.
const (
	lastOld    = "1.0.0"
	withStatus = "1.1.0"
)

func (i *installer) object() object {
	capabilities := map[string]bool{"io.kubernetes.cri.pod-annotations": true, "deviceID": true}
	if i.Mode != Chained { // there another plugin gives the main interface its addresses and MAC
		capabilities["ips"] = true
		capabilities["mac"] = true
	}
	if i.Mode == Delegate { // for NetworkAttachmentDefinitions, which have no settings of the node
		return object{Type: program, Mode: i.Mode, Capabilities: capabilities}
	}
	level := i.LogLevel
	if i.LogFile == "" {
		level = "" // there is no log
	}
	return object{
		Type: program, Mode: i.Mode, Socket: i.Socket, DeleteQueue: i.DeleteQueue,
		LogLevel: level, LogFile: i.LogFile, Capabilities: capabilities,
	}
}

// ensureConf writes the configuration if it is missing and the agent serves pods.
func (i *installer) ensureConf(ctx context.Context) error {
	switch {
	case i.Mode == Primary:
		return i.ensureOwnConf(ctx)
	case i.Extend != "":
		return i.ensureExtended(ctx)
	}
	return nil
}

func (i *installer) ensureOwnConf(ctx context.Context) error {
	path := i.conf()
	if _, err := os.Lstat(path); err == nil && i.placed[path] && hasContent(path, i.own) {
		return i.setAside(ctx)
	}
	own, err := i.compose(ctx)
	if err != nil {
		return err
	}
	f := file{path: path, content: own, mode: 0o600}
	i.warnOfOthers()
	if i.isKept(f) {
		i.own = own
		return i.setAside(ctx)
	}
	if err := i.checkStatus(ctx, network); err != nil {
		return err
	}
	if err := i.put(ctx, f, nil); err != nil {
		return err
	}
	i.own = own
	i.log.Info("configuration installed", "file", path)
	return i.setAside(ctx)
}

// compose returns Weft's own list. It offers only CNI versions that all plugins of the list support.
func (i *installer) compose(ctx context.Context) ([]byte, error) {
	l := list{Name: network, Plugins: []any{i.object()}}
	versions := i.Versions
	for _, name := range i.Behind {
		common, err := i.commonVersions(ctx, name, versions)
		if err != nil {
			if i.isNew(name, err.Error()) {
				i.log.Warn("plugin omitted from the chain", "plugin", i.binary(name), "err", err)
			}
			continue
		}
		versions = common
		l.Plugins = append(l.Plugins, chainedPlugin{Type: name, Capabilities: capabilitiesOf[name]})
	}
	if !slices.Contains(versions, withStatus) && i.isNew("versions", strings.Join(versions, " ")) {
		i.log.Warn("runtimes will not call STATUS: a plugin of the chain does not support CNI "+withStatus, "versions",
			versions)
	}
	l.CNIVersion, l.CNIVersions = offer(versions)
	return render(l)
}

// commonVersions returns the versions that another plugin supports too.
func (i *installer) commonVersions(ctx context.Context, name string, versions []string) ([]string, error) {
	supported, err := plugin{i.binary(name)}.versions(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("it is not installed")
	}
	if err != nil {
		return nil, fmt.Errorf("get its CNI versions: %w", err)
	}
	return intersect(versions, supported)
}

// intersect returns the versions that are also supported, in the order of versions.
func intersect(versions, supported []string) ([]string, error) {
	common := slices.DeleteFunc(slices.Clone(versions), func(v string) bool { return !slices.Contains(supported, v) })
	if len(common) == 0 {
		return nil, fmt.Errorf("it supports none of the CNI versions %s, only %.100s", strings.Join(versions, ", "),
			strings.Join(supported, ", "))
	}
	return common, nil
}

// offer returns cniVersion, for runtimes that do not read cniVersions, and cniVersions.
func offer(versions []string) (single string, all []string) {
	all = slices.Clone(versions)
	slices.Sort(all) // each number has one digit
	single = all[0]
	for _, v := range all {
		if v <= lastOld {
			single = v
		}
	}
	if len(all) == 1 {
		return single, nil
	}
	return single, all
}

// checkStatus calls STATUS of the installed plugin with its future configuration.
func (i *installer) checkStatus(ctx context.Context, network string) error {
	raw, err := json.Marshal(struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		object
	}{withStatus, network, i.object()})
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	err = plugin{i.binary(program)}.status(ctx, i.BinDir, raw)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*cniError](err); ok && !e.isPermanent() {
		return temporary{fmt.Errorf("the agent does not serve pods: %w", err)}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return temporary{err} // the program was just removed
	}
	return fmt.Errorf("call STATUS of weft-cni: %w", err)
}

func render(v any) ([]byte, error) {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	return append(raw, '\n'), nil
}

// printObject prints the object that the operator must add if the installer writes no configuration.
func (i *installer) printObject() {
	if i.target() != "" {
		return
	}
	heading := "Append this object to the plugins of the other CNI, or use --extend FILE:"
	conf := any(i.object())
	if i.Mode == Delegate {
		heading = "For the config of a NetworkAttachmentDefinition:"
		conf = list{CNIVersion: lastOld, Name: network, Plugins: []any{i.object()}}
	}
	raw, err := render(conf)
	if err != nil {
		i.log.Error("configuration not printed", "err", err)
		return
	}
	_, _ = fmt.Fprintf(i.out, "%s\n%s", heading, raw) // output is best effort
}
