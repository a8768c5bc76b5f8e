package scripts_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weftnet/weft/test/netns"
)

// metaPlugins is the package path of the CNI project's chained plugins.
const metaPlugins = "github.com/containernetworking/plugins/plugins/meta/"

// newest maps names of programs to packages of the module test/chain.
var newest = map[string]string{
	"bandwidth": metaPlugins + "bandwidth",
	"firewall":  metaPlugins + "firewall",
	"portmap":   metaPlugins + "portmap",
	"sbr":       metaPlugins + "sbr",
	"tuning":    metaPlugins + "tuning",
	"cnitool":   "github.com/containernetworking/cni/cnitool",
	"multus":    "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus",
}

// buildTime is the timeout of Multus' first build on a busy machine.
const buildTime = 10 * time.Minute

// building serialises builds of different scripts.
var building sync.Mutex

// useNewest builds programs of the module test/chain for a script, which finds them before the distribution's. It skips
// the script where they cannot be built, for example without a network, unless they are required.
func (s *stage) useNewest(ts *testscript.TestScript, names []string) {
	building.Lock()
	defer building.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	dir := ts.MkAbs("newest")
	cmd := exec.CommandContext(ctx, "go", "build", "-C", s.chain, "-o", dir+"/")
	for _, name := range names {
		cmd.Args = append(cmd.Args, newest[name])
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.missing(fmt.Sprintf("the programs %s of the module test/chain are needed: %v\n%s", strings.Join(names, ", "),
			err, out))
	}
	s.newest = dir
}

// missing skips the script because third-party programs are missing, and fails it if they are required.
func (s *stage) missing(text string) {
	if slices.Contains(strings.Split(os.Getenv("WEFT_REQUIRE"), ","), "plugins") {
		s.t.Fatal(text)
	}
	s.t.Skip(text)
}

// cnitoolCommand: cnitool VERB VERSION [NAME] runs cnitool with weft-cni and that version of CNI in the node's
// namespace.
func cnitoolCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		usage(ts, "cnitool VERB VERSION [NAME]")
	}
	s := on(ts)
	dir := ts.MkAbs("conf-" + args[1])
	conf := fmt.Sprintf(
		`{"cniVersion": %q, "name": "weft", "plugins": [{"type": "weft-cni", "socket": %q, "deleteQueue": %q}]}`,
		args[1], s.node.Socket(), filepath.Join(s.node.State(), "delete-queue"))
	ts.Check(os.MkdirAll(dir, 0o700))
	ts.Check(os.WriteFile(filepath.Join(dir, "weft.conflist"), []byte(conf), 0o600))
	call := []string{args[0], "weft"}
	if len(args) == 3 {
		call = append(call, s.sandbox(ts, args[2]).path)
	}
	cmd := exec.Command(filepath.Join(s.newest, "cnitool"), call...)
	cmd.Env = append(os.Environ(), "NETCONFPATH="+dir, "CNI_PATH="+s.programs())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	var out []byte
	err := netns.Do(s.home, func() (err error) {
		out, err = cmd.Output()
		return err
	})
	_, _ = ts.Stdout().Write(out)
	_, _ = ts.Stderr().Write(stderr.Bytes())
	if err == nil && args[0] == "add" {
		s.sandbox(ts, args[2]).remember(out)
	}
	check(ts, neg, err)
}
