package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	k8sclient "github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/fleet"
)

// fleetFlags choose the nodes on which a command runs, and how a run reaches the API server.
type fleetFlags struct {
	nodes                          []string
	all                            bool
	namespace, kubeconfig, context string
	nodeTimeout                    time.Duration
	endWithInput                   bool
}

// fleetFlagNames are not passed on to the nodes.
var fleetFlagNames = []string{
	"node", "all-nodes", "weft-namespace", "kubeconfig", "context", "node-timeout", "socket", "output",
	"end-with-input",
}

func (f *fleetFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.nodes, "node", nil,
		"run on this node of the cluster, through the API server; can be repeated")
	flags.BoolVar(&f.all, "all-nodes", false, "run on all nodes of the cluster, through the API server")
	flags.StringVar(&f.namespace, "weft-namespace", fleet.Namespace, "namespace of the agents")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "",
		"kubeconfig file; default: environment variable KUBECONFIG, ~/.kube/config, else the pod's service account")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig; default: its current context")
	flags.DurationVar(&f.nodeTimeout, "node-timeout", 0,
		"timeout of each node; default: 30s, and 3m for commands that change state")
	flags.BoolVar(&f.endWithInput, "end-with-input", false, "end when the standard input ends")
	_ = flags.MarkHidden("end-with-input") // exists
}

// The classes of commands, for runs on other nodes.
type class int

const (
	changes class = iota // changes state: needs an explicit choice of nodes; the class of unknown commands
	reads                // only reads
	here                 // needs no agent, or chooses the nodes itself: runs where it was started
	streams              // reads, and its output is a stream of bytes or lines without end
)

// classes are the classes of commands by path. A subcommand without an entry has the class of its parent.
var classes = map[string]class{
	"status": reads, "attachments": reads, "events": reads, "event": reads, "transactions": reads, "transaction": reads,
	"objects": reads, "why": reads, "addresses": reads, "devices": reads, "policy": reads, "counters": reads,
	"settings": reads, "pod": reads,
	"plan": reads, "diff": reads, "graph": reads, "dataplane": reads, "upgrade": reads,
	"trace": streams, "capture": streams, "bundle": streams, "profile": streams,
	"audit": changes, "quarantine": changes, "quarantine list": reads, "resync": changes, "configure": changes,
	"gc": changes, "log-level": changes,
	"addresses check": here, "addresses blocks": here, "lint": here, "install": here, "check": here, "probe": here,
	"completion": here, "help": here,
	"__complete": here, "__completeNoDesc": here, "ui": here, "schema": here,
}

// podCommands are the commands with a first argument that may be NAMESPACE/NAME of a pod. The pod's node then runs the
// command.
var podCommands = []string{
	"pod", "attachments", "trace", "capture", "diff", "graph", "quarantine release",
	"dataplane interfaces", "dataplane memifs", "dataplane drops", "dataplane fib", "dataplane bridges",
	"dataplane neighbours",
}

// inputFiles are the commands that read a file of the operator, with the index of its argument. "-" is the standard
// input. Commands with a flag --file read that one.
var inputFiles = map[string]int{"configure": 1}

// pathOf returns the path of a command without the name of the program.
func pathOf(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath()+" ", " ")
	if cmd.Root().Annotations[cobra.CommandDisplayNameAnnotation] != "" { // two words
		_, path, _ = strings.Cut(path, " ")
	}
	return strings.TrimSpace(path)
}

// classOf returns the class of a command with its flags.
func classOf(cmd *cobra.Command) class {
	for path := pathOf(cmd); path != ""; path = path[:max(strings.LastIndexByte(path, ' '), 0)] {
		kind, known := classes[path]
		switch {
		case !known:
		case kind == reads && isSet(cmd, "follow"):
			return streams
		case kind == changes && isSet(cmd, "dry-run"):
			return reads
		default:
			return kind
		}
	}
	return changes
}

func isSet(cmd *cobra.Command, flag string) bool {
	f := cmd.Flags().Lookup(flag)
	return f != nil && f.Value.String() == "true"
}

// route makes all commands below cmd run on the chosen nodes.
func (c *client) route(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		c.route(sub)
	}
	local := cmd.RunE
	if local == nil || !cmd.HasParent() {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		choice, err := c.choose(cmd, args)
		switch {
		case err != nil:
			return err
		case choice.local:
			return local(cmd, args)
		case pathOf(cmd) == "status" && choice.all:
			return c.clusterStatus(cmd.Context())
		}
		return c.runOnNodes(cmd, args, choice)
	}
}

// choice says where a command runs.
type choice struct {
	local  bool
	all    bool
	nodes  []string
	ns, in string // the pod on the node that runs the command
}

// choose decides where a command runs: by --node and --all-nodes, else on this node; kubectl weft has no own node and
// chooses the node of the pod in the command line, else all nodes.
func (c *client) choose(cmd *cobra.Command, args []string) (choice, error) {
	kind := classOf(cmd)
	if kind == here {
		return choice{local: true}, nil
	}
	f := c.fleet
	socket := cmd.Flags().Changed("socket")
	chosen := len(f.nodes) > 0 || f.all
	switch {
	case len(f.nodes) > 0 && f.all:
		return choice{}, usageError{errors.New("--node and --all-nodes exclude each other")}
	case chosen && socket:
		return choice{}, usageError{
			errors.New("--socket names an agent of this machine: it excludes --node and --all-nodes"),
		}
	case slices.Contains(f.nodes, ""), cmd.Flags().Changed("node") && len(f.nodes) == 0:
		return choice{}, usageError{errors.New("--node: the name is empty")}
	case chosen:
		return choice{nodes: f.nodes, all: f.all}, nil
	case !c.plugin || socket:
		return choice{local: true}, nil
	}
	if namespace, name, ok := podOf(cmd, args); ok {
		return choice{ns: namespace, in: name}, nil
	}
	if kind == changes {
		return choice{}, usageError{
			fmt.Errorf("%s changes the state of nodes: choose them with --node NAME or --all-nodes", pathOf(cmd)),
		}
	}
	return choice{all: true}, nil
}

// podOf returns the pod that a command line names.
func podOf(cmd *cobra.Command, args []string) (namespace, name string, ok bool) {
	text := ""
	if slices.Contains(podCommands, pathOf(cmd)) && len(args) > 0 {
		text = args[0]
	}
	if f := cmd.Flags().Lookup("pod"); f != nil && f.Changed {
		text = f.Value.String()
	}
	namespace, name, ok = strings.Cut(text, "/")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}

// arguments returns the command line for a node: the command with its flags, without those that choose nodes.
func arguments(cmd *cobra.Command, args []string, format string) []string {
	line := strings.Fields(pathOf(cmd))
	cmd.Flags().Visit(func(f *pflag.Flag) {
		isQualified := len(args) > 0 || cmd.Flags().Changed("pod") // the name of the pod has the namespace
		if slices.Contains(fleetFlagNames, f.Name) || f.Name == "namespace" && isQualified {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			line = append(line, "--"+f.Name+"="+v)
		}
	})
	line = append(line, "--output="+format)
	if len(args) > 0 {
		line = append(append(line, "--"), args...)
	}
	return line
}

// cluster returns access to the API server.
func (c *client) cluster() (*k8sclient.Client, error) {
	connection, err := k8sclient.OperatorContext(c.fleet.kubeconfig, c.fleet.context)
	if err != nil {
		return nil, err
	}
	return k8sclient.New(connection)
}

// nodesOf reads the nodes of a choice from the API server.
func (c *client) nodesOf(ctx context.Context, where choice) (*fleet.Fleet, []fleet.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, c.agent.timeout)
	defer cancel()
	api, err := c.cluster()
	if err != nil {
		return nil, nil, err
	}
	agents := fleet.New(api, c.fleet.namespace)
	if where.in != "" {
		node, err := agents.NodeOf(ctx, where.ns, where.in)
		if err != nil {
			return nil, nil, err
		}
		where.nodes = []string{node}
	}
	nodes, err := agents.Nodes(ctx)
	if err == nil && !where.all {
		nodes, err = fleet.Choose(nodes, where.nodes)
	}
	if err == nil && len(nodes) == 0 {
		err = errors.New("the cluster has no nodes")
	}
	return agents, nodes, err
}

// timeoutOfNode returns the timeout of a command on one node; 0 for streams.
func (c *client) timeoutOfNode(kind class) time.Duration {
	usual := 30 * time.Second
	switch kind {
	case streams:
		return c.fleet.nodeTimeout
	case changes:
		usual = 3 * time.Minute
	}
	return cmp.Or(c.fleet.nodeTimeout, max(usual, c.agent.timeout+10*time.Second))
}
