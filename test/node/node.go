// Package node provides a Kubernetes node for tests: the agent with its dataplane, a container runtime, and pods'
// sandboxes.
package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/netns"
)

// HostLink is the name of the node's link to the dataplane.
const HostLink = "weft0"

// Name is the name of the node in a cluster.
const Name = "n1"

// Node is one node. All its files are in Dir.
type Node struct {
	Dir       string // short: paths of sockets have at most 107 bytes
	programs  string // directory of weft-agent, weft-cni, weft-vswitch and weftctl
	options   Options
	agent     *process
	vpp       *vpp       // nil = weft-vswitch is the dataplane
	vswitches []*Vswitch // started by the test
	aborted   bool       // Close keeps the logs

	Kubelet *kubelettest.Kubelet // nil = the node has no devices
}

// New makes a node without running processes. programs is the directory of the built programs.
func New(programs string, o Options) (*Node, error) {
	programs, err := filepath.Abs(programs)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"weft-agent", "weft-cni", "weft-vswitch", "weftctl"} {
		if _, err := os.Stat(filepath.Join(programs, name)); err != nil {
			return nil, fmt.Errorf("find the programs: %w: run make build", err)
		}
	}
	// The dataplane outlives the agent; its next parent can end it and wait for its end.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the parent of orphans: %w", err)
	}
	// The node is private: its configuration has its paths, and not the directory of the programs.
	if err := os.Setenv("WEFT_CNI_PATHS", "configuration"); err != nil {
		return nil, fmt.Errorf("allow the paths of the configuration: %w", err)
	}
	dir, err := os.MkdirTemp("", "weft-")
	if err != nil {
		return nil, fmt.Errorf("make the node's directory: %w", err)
	}
	n := &Node{Dir: dir, programs: programs, options: o}
	for _, sub := range []string{n.run(), n.etc(), n.State(), n.cache(), n.Pods()} {
		if err := os.Mkdir(sub, 0o700); err != nil {
			return nil, fmt.Errorf("make the node's directory: %w", err)
		}
	}
	if err := n.prepareVPP(); err != nil {
		return nil, err
	}
	if o.Memifs > 0 {
		if err := n.startKubelet(); err != nil {
			return nil, err
		}
	}
	return n, n.writeConfig()
}

// Close ends agent and dataplane and removes the node's directory, unless the node was aborted.
func (n *Node) Close() error {
	errs := []error{n.StopAgent()}
	for _, v := range slices.Backward(n.vswitches) { // a standby before the active one
		errs = append(errs, v.End(syscall.SIGTERM))
	}
	errs = append(errs, n.endDataplane(syscall.SIGTERM))
	if n.Kubelet != nil {
		errs = append(errs, n.Kubelet.Stop())
	}
	pods, err := os.ReadDir(n.Pods())
	if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, p := range pods {
		errs = append(errs, netns.Remove(filepath.Join(n.Pods(), p.Name())))
	}
	if !n.aborted {
		errs = append(errs, os.RemoveAll(n.Dir))
	}
	return errors.Join(errs...)
}

// Program returns the path of a built program.
func (n *Node) Program(name string) string { return filepath.Join(n.programs, name) }

// Socket returns the path of the agent's socket.
func (n *Node) Socket() string { return filepath.Join(n.run(), "agent.sock") }

// DataplaneSocket returns the path of the dataplane's API socket.
func (n *Node) DataplaneSocket() string {
	if n.vpp != nil {
		return n.vpp.Socket()
	}
	return filepath.Join(n.run(), "vswitch-api.sock")
}

// State returns the directory of the state file and of the queue of DELs.
func (n *Node) State() string { return filepath.Join(n.Dir, "state") }

// Watched returns the directories in which a pod could leave a file.
func (n *Node) Watched() []string { return []string{n.run(), n.State(), n.Pods()} }

// RunDir returns the directory of the sockets.
func (n *Node) RunDir() string { return n.run() }

func (n *Node) run() string { return filepath.Join(n.Dir, "run") }
func (n *Node) etc() string { return filepath.Join(n.Dir, "etc") }

// DeviceInfo returns the directory of device information files.
func (n *Node) DeviceInfo() string { return filepath.Join(n.Dir, "devinfo") }

// Memifs returns the directory of the allocations' directories.
func (n *Node) Memifs() string { return filepath.Join(n.run(), "memif") }

// Pods returns the directory of the pods' network namespaces.
func (n *Node) Pods() string { return filepath.Join(n.Dir, "pods") }

func (n *Node) cache() string   { return filepath.Join(n.Dir, "cache") }
func (n *Node) kubelet() string { return filepath.Join(n.Dir, "kubelet") }

// Config returns the path of the agent's configuration file, in a directory of its own, because the agent watches the
// directory.
func (n *Node) Config() string { return filepath.Join(n.etc(), "agent.yaml") }

// AgentLog returns the path of the agent's log.
func (n *Node) AgentLog() string { return filepath.Join(n.Dir, "agent.log") }

// DataplaneLog returns the path of the dataplane's log.
func (n *Node) DataplaneLog() string {
	if n.vpp != nil {
		return n.vpp.Log()
	}
	return filepath.Join(n.Dir, "vswitch.log")
}

// LogTails returns the last lines of the agent's and the dataplane's log, and of more files. It skips missing files.
func (n *Node) LogTails(lines int, more ...string) string {
	var text strings.Builder
	for _, path := range append([]string{n.AgentLog(), n.DataplaneLog()}, more...) {
		if content, err := os.ReadFile(path); err == nil {
			all := strings.Split(strings.TrimSpace(string(content)), "\n")
			fmt.Fprintf(&text, "\n--- end of %s\n%s\n", path, strings.Join(all[max(0, len(all)-lines):], "\n"))
		}
	}
	return text.String()
}
