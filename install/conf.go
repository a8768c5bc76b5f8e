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
	Socket       string          `json:"socket"`
	DeleteQueue  string          `json:"deleteQueue"`
	LogLevel     string          `json:"logLevel,omitempty"`
	LogFile      string          `json:"logFile,omitempty"`
	Capabilities map[string]bool `json:"capabilities"`
}

// companion is the entry of a plugin behind Weft.
type companion struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

// wants are the capabilities that plugins behind Weft live by.
var wants = map[string]map[string]bool{
	"portmap": {"portMappings": true},
	"tuning":  {"mac": true},
}

// network is the name of Weft's own list.
const network = "weft"

// Versions of the specification with a meaning here: the last that old runtimes know, and the first that has STATUS.
const (
	lastOld    = "1.0.0"
	withStatus = "1.1.0"
)

func (i *installer) object() object {
	// Behind another plugin addresses and MACs that a runtime asks for are that plugin's.
	first := i.Mode != Chained
	capabilities := map[string]bool{"io.kubernetes.cri.pod-annotations": true, "deviceID": true}
	if first {
		capabilities["ips"], capabilities["mac"] = true, true
	}
	level := i.LogLevel
	if i.LogFile == "" {
		level = "" // of a log that is not kept
	}
	return object{
		Type: program, Mode: i.Mode, Socket: i.Socket, DeleteQueue: i.DeleteQueue,
		LogLevel: level, LogFile: i.LogFile, Capabilities: capabilities,
	}
}

// ensureConf writes the configuration if it is missing and the agent would serve what comes of it.
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
	if _, err := os.Lstat(path); err == nil && i.placed[path] && bytesAre(path, i.own) {
		return i.putAside(ctx)
	}
	own, err := i.compose(ctx)
	if err != nil {
		return err
	}
	f := file{path: path, content: own, mode: 0o600}
	i.warnOfNeighbours()
	if i.isLeft(f) {
		i.own = own
		return i.putAside(ctx)
	}
	if err := i.healthy(ctx, network); err != nil {
		return err
	}
	if err := i.put(ctx, f, nil); err != nil {
		return err
	}
	i.own = own
	i.log.Info("configuration installed", "file", path)
	return i.putAside(ctx)
}

// compose makes Weft's own list. All plugins of a list must speak its version, so the oldest of them limits it.
func (i *installer) compose(ctx context.Context) ([]byte, error) {
	l := list{Name: network, Plugins: []any{i.object()}}
	versions := i.Versions
	for _, name := range i.Behind {
		both, err := i.inCommon(ctx, name, versions)
		if err != nil {
			if i.isNew(name, err.Error()) {
				i.log.Warn("a plugin is not put behind Weft", "plugin", i.installed(name), "err", err)
			}
			continue
		}
		versions = both
		l.Plugins = append(l.Plugins, companion{Type: name, Capabilities: wants[name]})
	}
	if !slices.Contains(versions, withStatus) && i.isNew("versions", strings.Join(versions, " ")) {
		i.log.Warn("the runtime will not ask for STATUS: not all plugins speak CNI "+withStatus, "versions", versions)
	}
	l.CNIVersion, l.CNIVersions = offer(versions)
	return render(l)
}

// inCommon are the versions that another plugin speaks too.
func (i *installer) inCommon(ctx context.Context, name string, versions []string) ([]string, error) {
	speaks, err := plugin{i.installed(name)}.speaks(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("there is none")
	}
	if err != nil {
		return nil, fmt.Errorf("it does not answer: %w", err)
	}
	return common(versions, speaks)
}

// common returns the versions of both lists, in the order of the first.
func common(versions, speaks []string) ([]string, error) {
	both := slices.DeleteFunc(slices.Clone(versions), func(v string) bool { return !slices.Contains(speaks, v) })
	if len(both) == 0 {
		return nil, fmt.Errorf("it speaks none of the versions %s, only %.100s", strings.Join(versions, ", "), strings.Join(speaks, ", "))
	}
	return both, nil
}

// offer splits versions into the one for runtimes that know only one, and all of them for those that choose.
func offer(versions []string) (single string, all []string) {
	all = slices.Clone(versions)
	slices.Sort(all) // they have one digit each
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

// healthy asks by the plugin that has just been installed, and by the object that will be its configuration.
func (i *installer) healthy(ctx context.Context, network string) error {
	raw, err := json.Marshal(struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		object
	}{withStatus, network, i.object()})
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	err = plugin{i.installed(program)}.status(ctx, i.BinDir, raw)
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[*refusal](err); ok && !r.isFinal() {
		return notYet{fmt.Errorf("the agent would not serve pods: %w", err)}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return notYet{err} // the program was removed just now
	}
	return fmt.Errorf("ask the agent: %w", err)
}

func render(v any) ([]byte, error) {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return append(raw, '\n'), nil
}

// show says what the operator has to add where the installer writes nothing.
func (i *installer) show() {
	if i.target() != "" {
		return
	}
	var text strings.Builder
	var what any = i.object()
	text.WriteString("Add this object to the end of the plugins of the other CNI, or let --extend FILE do so:\n")
	if i.Mode == Delegate {
		text.Reset()
		text.WriteString("For the config of a NetworkAttachmentDefinition:\n")
		what = list{CNIVersion: lastOld, Name: network, Plugins: []any{i.object()}}
	}
	raw, err := render(what)
	if err != nil {
		i.log.Error("configuration not shown", "err", err)
		return
	}
	_, _ = fmt.Fprintf(i.out, "%s%s", text.String(), raw) // output is best effort
}
