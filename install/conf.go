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

func (o *Options) object() object {
	capabilities := map[string]bool{"io.kubernetes.cri.pod-annotations": true, "deviceID": true}
	if o.Mode != Chained { // there another plugin gives the main interface its addresses and MAC
		capabilities["ips"] = true
		capabilities["mac"] = true
	}
	if o.Mode == Delegate { // for NetworkAttachmentDefinitions, which have no settings of the node
		return object{Type: program, Mode: o.Mode, Capabilities: capabilities}
	}
	level := o.LogLevel
	if o.LogFile == "" {
		level = "" // there is no log
	}
	return object{
		Type: program, Mode: o.Mode, Socket: o.Socket, DeleteQueue: o.DeleteQueue,
		LogLevel: level, LogFile: o.LogFile, Capabilities: capabilities,
	}
}

// ownList is Weft's own list, which the installer writes in mode primary.
type ownList struct {
	*Options
	log   *notices
	files *files

	composed []byte // content as it was last composed
}

// ensure writes the list if it is missing and the agent serves pods.
func (l *ownList) ensure(ctx context.Context) error {
	path := l.conf()
	if _, err := os.Lstat(path); err == nil && l.files.placed[path] && hasContent(path, l.composed) {
		return l.setAside(ctx)
	}
	own, err := l.compose(ctx)
	if err != nil {
		return err
	}
	f := file{path: path, content: own, mode: 0o600}
	l.log.warnOfOthers(path)
	if l.files.isKept(f) {
		l.composed = own
		return l.setAside(ctx)
	}
	if err := l.checkStatus(ctx, network); err != nil {
		return err
	}
	if err := l.files.put(ctx, f, nil); err != nil {
		return err
	}
	l.composed = own
	l.log.Info("configuration installed", "file", path)
	return l.setAside(ctx)
}

// compose returns Weft's own list. It offers only CNI versions that all plugins of the list support.
func (l *ownList) compose(ctx context.Context) ([]byte, error) {
	out := list{Name: network, Plugins: []any{l.object()}}
	versions := l.Versions
	for _, name := range l.Behind {
		common, err := l.commonVersions(ctx, name, versions)
		if err != nil {
			if l.log.isNew(name, err.Error()) {
				l.log.Warn("plugin omitted from the chain", "plugin", l.binary(name), "err", err)
			}
			continue
		}
		versions = common
		out.Plugins = append(out.Plugins, chainedPlugin{Type: name, Capabilities: capabilitiesOf[name]})
	}
	if !slices.Contains(versions, withStatus) && l.log.isNew("versions", strings.Join(versions, " ")) {
		l.log.Warn("runtimes will not call STATUS: a plugin of the chain does not support CNI "+withStatus, "versions",
			versions)
	}
	out.CNIVersion, out.CNIVersions = offer(versions)
	return render(out)
}

// commonVersions returns the versions that another plugin supports too.
func (l *ownList) commonVersions(ctx context.Context, name string, versions []string) ([]string, error) {
	supported, err := plugin{l.binary(name)}.versions(ctx)
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
func (o *Options) checkStatus(ctx context.Context, network string) error {
	raw, err := json.Marshal(struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		object
	}{withStatus, network, o.object()})
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	err = plugin{o.binary(program)}.status(ctx, o.BinDir, raw)
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
