package scripts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/peers"
)

// pluginsCommand executes lists of plugins, Weft's and third-party ones, through libcni, in the node's network
// namespace.
//
//	plugins need NAME...                  skip the script unless these plugins are installed (iproute2 has a bridge, too)
//	plugins add|check|del LIST NAME [KEY=VALUE...]
//	plugins newest NAME...                build these programs of the module test/chain for this script
//	plugins gc LIST NAME...               only the named sandboxes are valid
//	plugins gc LIST null                  no sandbox is valid (the list is null)
//	plugins pairs LIST NAME               ADD, CHECK, a resync, CHECK and DEL with the first plugin of the list and any two others behind
//	                                      it, in both orders
//
// LIST is a file with a configuration; $VARIABLES of the script are expanded. A KEY is an annotation of the pod,
// portMappings with the value HOSTPORT:CONTAINERPORT, bandwidth with the bits of ingress, its burst, egress and its
// burst, or CNI_IFNAME (default eth0).
func pluginsCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		usage(ts, "plugins need|add|check|del|gc ...")
	}
	s := on(ts)
	switch args[0] {
	case "need":
		s.need(args[1:])
		return
	case "newest":
		s.useNewest(ts, args[1:])
		return
	}
	list, err := libcni.ConfListFromBytes([]byte(os.Expand(ts.ReadFile(args[1]), ts.Getenv)))
	ts.Check(err)
	var result types.Result
	err = netns.Do(s.home, func() error {
		if args[0] == "pairs" {
			return s.executePairs(ts, list, args)
		}
		result, err = s.executeList(ts, list, args)
		return err
	})
	if err != nil {
		_, _ = fmt.Fprintln(ts.Stderr(), err)
	} else if result != nil {
		err = result.PrintTo(ts.Stdout())
	}
	check(ts, neg, err)
}

func (s *stage) executeList(
	ts *testscript.TestScript, list *libcni.NetworkConfigList, args []string,
) (types.Result, error) {
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: ts.Stderr()}, PluginDecoder: version.PluginDecoder{}}
	cni := libcni.NewCNIConfigWithCacheDir([]string{s.programs(), s.ipam(ts), s.newest, pluginsDir()},
		ts.MkAbs("cache"), exec)
	ctx := context.Background()
	verb := args[0]
	if verb == "gc" {
		valid := &libcni.GCArgs{}
		for _, name := range slices.DeleteFunc(args[2:], func(name string) bool { return name == "null" }) {
			valid.ValidAttachments = append(valid.ValidAttachments, types.GCAttachment{
				ContainerID: s.sandbox(ts, name).id,
				IfName:      "eth0",
			})
		}
		return nil, cni.GCNetworkList(ctx, list, valid)
	}
	if len(args) < 3 {
		return nil, errUsage
	}
	b := s.sandbox(ts, args[2])
	conf := b.conf()
	if err := settings(conf, args[3:]); err != nil {
		return nil, err
	}
	switch verb {
	case "add":
		result, err := cni.AddNetworkList(ctx, list, conf)
		var printed bytes.Buffer
		if err == nil && result.PrintTo(&printed) == nil {
			b.remember(printed.Bytes())
		}
		return result, err
	case "check":
		return nil, cni.CheckNetworkList(ctx, list, conf)
	case "del":
		return nil, cni.DelNetworkList(ctx, list, conf)
	}
	return nil, errUsage
}

// executePairs executes the first plugin of the list followed by each ordered pair of the others.
func (s *stage) executePairs(ts *testscript.TestScript, list *libcni.NetworkConfigList, args []string) error {
	all := list.Plugins
	for i, one := range all {
		for j, other := range all {
			if i == 0 || j == 0 || i == j {
				continue
			}
			pair := *list
			pair.Plugins = []*libcni.PluginConfig{all[0], one, other}
			if err := s.executePair(ts, &pair, args[2]); err != nil {
				return fmt.Errorf("%s, then %s: %w", one.Network.Type, other.Network.Type, err)
			}
		}
	}
	return nil
}

func (s *stage) executePair(ts *testscript.TestScript, list *libcni.NetworkConfigList, name string) error {
	if _, err := s.executeList(ts, list, []string{"add", "", name}); err != nil {
		return errors.Join(err, s.repeat(ts, list, name, "del"))
	}
	before, err := look(s.sandbox(ts, name))
	if err == nil {
		err = s.repeat(ts, list, name, "check")
	}
	if err == nil {
		_, err = s.node.Weftctl(context.Background(), "resync", "downstream")
	}
	after, lost := look(s.sandbox(ts, name))
	if !slices.Equal(before, after) {
		lost = fmt.Errorf("after a resync: %q, after the ADD: %q", after, before)
	}
	return errors.Join(err, lost, s.repeat(ts, list, name, "check", "del"))
}

func (s *stage) repeat(
	ts *testscript.TestScript, list *libcni.NetworkConfigList, name string, verbs ...string,
) (err error) {
	for _, verb := range verbs {
		_, e := s.executeList(ts, list, []string{verb, "", name})
		err = errors.Join(err, e)
	}
	return err
}

// settings are the pod's annotations and the interface name.
func settings(conf *libcni.RuntimeConf, args []string) error {
	annotations := map[string]string{}
	capabilities := map[string]any{}
	for _, a := range args {
		key, value, isSetting := strings.Cut(a, "=")
		switch {
		case isSetting && key == "CNI_IFNAME":
			conf.IfName = value
		case isSetting && key == "portMappings":
			var host, container int
			if _, err := fmt.Sscanf(value, "%d:%d", &host, &container); err != nil {
				return err
			}
			capabilities[key] = []map[string]any{{"hostPort": host, "containerPort": container, "protocol": "tcp"}}
		case isSetting && key == "bandwidth":
			var in, inBurst, out, outBurst int
			if _, err := fmt.Sscanf(value, "%d,%d,%d,%d", &in, &inBurst, &out, &outBurst); err != nil {
				return err
			}
			capabilities[key] = map[string]int{
				"ingressRate": in, "ingressBurst": inBurst, "egressRate": out, "egressBurst": outBurst,
			}
		case isSetting && strings.Contains(key, "/"):
			annotations[key] = dataplane.CustomInterfaces(value)
		default:
			return errors.New("missing annotation: KEY=VALUE")
		}
	}
	capabilities["io.kubernetes.cri.pod-annotations"] = annotations
	conf.CapabilityArgs = capabilities
	return nil
}

// ipam returns a directory with the symbolic link weft-ipam to weft-cni.
func (s *stage) ipam(ts *testscript.TestScript) string {
	dir := ts.MkAbs("ipam")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		ts.Fatalf("%v", err)
	}
	err := os.Symlink(s.node.Program("weft-cni"), filepath.Join(dir, "weft-ipam"))
	if err != nil && !errors.Is(err, os.ErrExist) {
		ts.Fatalf("%v", err)
	}
	return dir
}

// need skips a script if programs are missing, unless they are required.
func (s *stage) need(names []string) {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(pluginsDir(), name)); err == nil {
			continue
		}
		s.missing(fmt.Sprintf(
			"program %s is missing: install the Debian package containernetworking-plugins, or set %s to its directory",
			name, peers.PluginsVariable))
	}
}

// pluginsDir returns the directory of third-party plugins; "" = none.
func pluginsDir() string {
	found, err := peers.FindPlugins()
	if err != nil {
		return ""
	}
	return found.Dir
}

// enterSearch sets PATH for the programs that plugins execute.
func enterSearch() error {
	if found, err := peers.FindPlugins(); err == nil {
		return os.Setenv("PATH", found.Search)
	}
	return nil // scripts that need plugins skip
}
