package scripts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/rogpeppe/go-internal/testscript"
)

// runtimeCommand makes a runtime's calls through libcni, with the installed list.
//
//	runtime add|check|del VERSION NAME   with a list of only that version
//	runtime status|gc VERSION [NAME...]  GC keeps the named sandboxes
//	runtime version                      print the version that libcni selects from the installed list
//
// It prints the result of an ADD in the list's version.
func runtimeCommand(ts *testscript.TestScript, neg bool, args []string) {
	s := on(ts)
	if len(args) == 1 && args[0] == "version" {
		list, err := s.list("")
		ts.Check(err)
		_, _ = fmt.Fprintln(ts.Stdout(), list.CNIVersion)
		return
	}
	if len(args) < 2 {
		usage(ts, "runtime VERB VERSION [NAME...]")
	}
	result, err := s.execute(ts, args[0], args[1], args[2:])
	if err != nil {
		_, _ = fmt.Fprintln(ts.Stderr(), err)
	}
	if err == nil && result != nil {
		err = result.PrintTo(ts.Stdout())
	}
	check(ts, neg, err)
}

// list returns the installed configuration or, with a version, the same for a runtime that supports only that version.
func (s *stage) list(only string) (*libcni.NetworkConfigList, error) {
	raw, err := s.node.Conflist()
	if err != nil {
		return nil, err
	}
	if only != "" {
		var keys map[string]any
		if err := json.Unmarshal(raw, &keys); err != nil {
			return nil, err
		}
		keys["cniVersion"] = only
		delete(keys, "cniVersions")
		if raw, err = json.Marshal(keys); err != nil {
			return nil, err
		}
	}
	return libcni.NetworkConfFromBytes(raw)
}

func (s *stage) execute(ts *testscript.TestScript, verb, version string, names []string) (types.Result, error) {
	list, err := s.list(version)
	if err != nil {
		return nil, err
	}
	cni := s.libcni(ts)
	ctx := context.Background()
	switch {
	case verb == "status":
		return nil, cni.GetStatusNetworkList(ctx, list)
	case verb == "gc":
		args := &libcni.GCArgs{}
		for _, name := range names {
			args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{
				ContainerID: s.sandbox(ts, name).id,
				IfName:      "eth0",
			})
		}
		return nil, cni.GCNetworkList(ctx, list, args)
	case len(names) != 1:
		return nil, errUsage
	}
	b := s.sandbox(ts, names[0])
	switch verb {
	case "add":
		result, err := cni.AddNetworkList(ctx, list, b.conf())
		if err != nil {
			return nil, err
		}
		var printed bytes.Buffer
		err = result.PrintTo(&printed)
		b.remember(printed.Bytes())
		return result, err
	case "check":
		return nil, cni.CheckNetworkList(ctx, list, b.conf())
	case "del":
		return nil, cni.DelNetworkList(ctx, list, b.conf())
	}
	return nil, errUsage
}

func (s *stage) libcni(ts *testscript.TestScript) *libcni.CNIConfig {
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: ts.Stderr()}, PluginDecoder: version.PluginDecoder{}}
	return libcni.NewCNIConfigWithCacheDir([]string{s.programs()}, ts.MkAbs("cache"), exec)
}
