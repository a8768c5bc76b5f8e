package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/k8s/exec"
	"github.com/weftnet/weft/k8s/fleet"
)

// nodesAtOnce limits the nodes that run a command at the same time, because each is a connection through the API
// server.
const nodesAtOnce = 32

// maxNodeOutput limits the output of one node in a merged answer.
const maxNodeOutput = 64 << 20

// maxNodeErrors limits the error output of one node, which is kept until the command ends.
const maxNodeErrors = 1 << 20

// answer is the answer of one node.
type answer struct {
	node     string
	out, err bytes.Buffer
	failure  error // nil, [exec.ExitError] of weftctl, or why the node did not answer
}

// answered reports whether weftctl ran on the node.
func (a *answer) answered() bool {
	return a.failure == nil || errors.As(a.failure, new(exec.ExitError))
}

// reason returns the error of a node in one line; "": none.
func (a *answer) reason() string {
	if a.failure == nil {
		return ""
	}
	if a.answered() {
		lines := strings.Split(strings.TrimSpace(a.err.String()), "\n")
		if last := strings.TrimPrefix(lines[len(lines)-1], "weftctl: "); last != "" {
			return oneLine(last)
		}
	}
	return oneLine(a.failure.Error())
}

// runOnNodes runs a command on the chosen nodes and prints their answers. The output of a single named node is passed
// through unchanged.
func (c *client) runOnNodes(cmd *cobra.Command, args []string, where choice) error {
	kind := classOf(cmd)
	if c.fleet.nodeTimeout < 0 {
		return usageError{fmt.Errorf("--node-timeout %s: must be positive", c.fleet.nodeTimeout)}
	}
	if slices.Contains(wholeFiles, pathOf(cmd)) && !cmd.Flags().Changed("write") {
		return usageError{fmt.Errorf("%s on another node needs --write FILE, or - for the standard output", cmd.Name())}
	}
	args, input, err := readInput(cmd, args)
	if err != nil {
		return err
	}
	agents, nodes, err := c.nodesOf(cmd.Context(), where)
	if err != nil {
		return err
	}
	r := remote{client: c, agents: agents, kind: kind, input: input}
	if !where.all && len(nodes) == 1 {
		r.line = arguments(cmd, args, c.format)
		return r.passThrough(cmd, nodes[0])
	}
	if cmd.Flags().Changed("write") {
		return usageError{
			fmt.Errorf("%s --write: the files of several nodes cannot be merged: choose one node with --node",
				cmd.Name()),
		}
	}
	format := c.format
	if format != "table" && format != "name" {
		format = "json"
	}
	r.line = arguments(cmd, args, format)
	if kind == streams && format == "name" {
		return usageError{
			errors.New("-o name: the names of several nodes cannot be told apart: choose one node with --node"),
		}
	}
	if kind == streams {
		return r.follow(cmd.Context(), nodes)
	}
	return r.merge(cmd.Context(), nodes)
}

// readInput reads the file of the operator that a command line names, and returns the command line with "-" in its
// place.
func readInput(cmd *cobra.Command, args []string) ([]string, []byte, error) {
	if f := cmd.Flags().Lookup("file"); f != nil && f.Changed && f.Value.Type() == "string" {
		document, err := readDocument(cmd.InOrStdin(), f.Value.String())
		if err == nil {
			err = f.Value.Set("-")
		}
		return args, document, err
	}
	i, has := inputFiles[pathOf(cmd)]
	if !has || i >= len(args) {
		return args, nil, nil
	}
	document, err := readDocument(cmd.InOrStdin(), args[i])
	if err != nil {
		return nil, nil, err
	}
	args = slices.Clone(args)
	args[i] = "-"
	return args, document, nil
}

// remote runs one command line on nodes.
type remote struct {
	*client
	agents *fleet.Fleet
	kind   class
	line   []string
	input  []byte // standard input of the command; nil: none
}

// bounded returns a context that ends when the whole command, on any number of nodes, has taken too long. Streams are
// not bounded.
func (r *remote) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	budget := budgetRequests * r.timeoutOfNode(r.kind)
	if budget == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, budget, budgetError{budget})
}

// budgetError means that a command has used its time, so that a node could not end.
type budgetError struct{ budget time.Duration }

// Error names the flag for more time.
func (e budgetError) Error() string {
	return fmt.Sprintf("the whole command has taken %s; choose fewer nodes, or set a longer --node-timeout", e.budget)
}

// run runs the command line on a node.
func (r *remote) run(ctx context.Context, node fleet.Node, out, failures io.Writer) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	timeout := r.timeoutOfNode(r.kind)
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	s := exec.Streams{Out: out, Err: failures}
	line := r.line
	switch {
	case r.input != nil:
		s.In = bytes.NewReader(r.input)
	case r.kind == streams: // a program that waits would not see that the connection has ended
		hold, end := io.Pipe()
		defer end.Close()
		s.In = hold
		line = append([]string{"--end-with-input"}, line...)
	}
	err := r.agents.Weftctl(ctx, node, line, s)
	if used, is := errors.AsType[budgetError](context.Cause(ctx)); err != nil && is {
		return used
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s; set a longer --node-timeout", timeout)
	}
	return err
}

// wholeFiles are the commands with a file that is of no use before it is complete. The file of other commands grows.
var wholeFiles = []string{"bundle", "profile"}

// passThrough runs the command on one node, with its output and its exit code.
func (r *remote) passThrough(cmd *cobra.Command, node fleet.Node) (err error) {
	a := answer{node: node.Name}
	out := r.out
	grows := !slices.Contains(wholeFiles, pathOf(cmd))
	if path, index := r.outputFile(cmd); path != "" {
		r.line[index] = "--write=-"
		f, failed := createFile(path, grows)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, f.finish(grows || a.answered())) }()
		out = f
	}
	if isTerminal(out) {
		screen := &screen{to: out}
		defer screen.flush()
		out = screen
	}
	a.failure = r.run(cmd.Context(), node, out, &exec.Bounded{To: &a.err, Left: maxNodeErrors})
	text := strings.TrimSpace(a.err.String())
	switch {
	case r.kind == streams && grows && ended(cmd.Context()): // an interrupt ends a stream
		return nil
	case errors.As(a.failure, new(exec.OutputError)):
		return a.failure
	case !a.answered():
		return fmt.Errorf("node %s did not answer: %s", node.Name, a.reason())
	case a.failure == nil && text != "":
		fmt.Fprintln(r.err, printable(text))
	case a.failure != nil:
		if i := strings.LastIndexByte(text, '\n'); i >= 0 {
			fmt.Fprintln(r.err, printable(text[:i]))
		}
		return withCode(a.failure, fmt.Errorf("node %s: %s", node.Name, a.reason()))
	}
	return nil
}

// ended reports whether a context has ended.
func ended(ctx context.Context) bool { return ctx.Err() != nil }

// withCode marks the error of a command line that the node's weftctl rejected, so that the exit code is the same.
func withCode(failure, err error) error {
	if exit, ok := errors.AsType[exec.ExitError](failure); ok && exit.Code == exitUsage {
		return usageError{err}
	}
	return err
}

// outputFile returns the file of the flag --write, and the index of this flag in the command line. The file is written
// where the command was started.
func (r *remote) outputFile(cmd *cobra.Command) (string, int) {
	f := cmd.Flags().Lookup("write")
	if f == nil || !f.Changed || f.Value.String() == "-" {
		return "", 0
	}
	return f.Value.String(), slices.Index(r.line, "--write="+f.Value.String())
}

// merge runs the command on the nodes, a limited number at the same time, and prints their answers by node.
func (r *remote) merge(ctx context.Context, nodes []fleet.Node) error {
	answers := make([]answer, len(nodes))
	bounded, cancel := r.bounded(ctx)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(nodesAtOnce)
	for i := range nodes {
		group.Go(func() error {
			a := &answers[i]
			a.node = nodes[i].Name
			out := &exec.Bounded{To: &a.out, Left: maxNodeOutput}
			a.failure = r.run(bounded, nodes[i], out, &exec.Bounded{To: &a.err, Left: maxNodeErrors})
			if out.Cut {
				a.failure = fmt.Errorf("the output is longer than %d MiB: choose this node with --node",
					maxNodeOutput>>20)
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.format == "table" || r.format == "name" {
		r.printAnswers(answers)
	} else if err := r.document(documentOf(answers)); err != nil {
		return err
	}
	return r.conclude(answers)
}

// printAnswers prints the outputs below a heading per node.
func (c *client) printAnswers(answers []answer) {
	first := true
	for i := range answers {
		a := &answers[i]
		if !a.answered() {
			continue
		}
		if !first && c.format == "table" {
			c.printf("\n")
		}
		first = false
		if c.format == "table" {
			c.printf("%s\n", c.coloured("1", "node "+a.node))
		}
		if text := strings.TrimRight(a.out.String(), "\n"); text != "" {
			c.printf("%s\n", printable(text))
		}
	}
}

// nodeAnswer is the answer of a node in a merged document.
type nodeAnswer struct {
	Node   string     `json:"node"`
	Output nodeOutput `json:"output,omitempty"`
	Error  string     `json:"error,omitempty"`
}

// nodeOutput is the document of a command, a list of its documents, or its text if it prints none.
type nodeOutput any

// nodeAnswers is a merged document.
type nodeAnswers struct {
	Nodes []nodeAnswer `json:"nodes"`
}

func documentOf(answers []answer) any {
	all := []nodeAnswer{}
	for i := range answers {
		a := &answers[i]
		all = append(all, nodeAnswer{Node: a.node, Output: parsed(a.out.Bytes()), Error: a.reason()})
	}
	return nodeAnswers{all}
}

// parsed returns the JSON values in an output: none as nil, one as itself, several as a list; other output as a text.
func parsed(output []byte) any {
	values := []json.RawMessage{}
	for d := json.NewDecoder(bytes.NewReader(output)); ; {
		var v json.RawMessage
		err := d.Decode(&v)
		switch {
		case errors.Is(err, io.EOF) && len(values) == 0:
			return nil
		case errors.Is(err, io.EOF) && len(values) == 1:
			return values[0]
		case errors.Is(err, io.EOF):
			return values
		case err != nil:
			return string(output)
		}
		values = append(values, v)
	}
}

// conclude prints the errors of nodes and returns the error of the whole run.
func (c *client) conclude(answers []answer) error {
	var failed, silent []string
	for i := range answers {
		a := &answers[i]
		switch {
		case !a.answered():
			silent = append(silent, a.node)
		case a.failure != nil:
			failed = append(failed, a.node)
			fmt.Fprintf(c.err, "node %s: %s\n", a.node, a.reason())
		case a.err.Len() > 0:
			for line := range strings.Lines(a.err.String()) {
				fmt.Fprintf(c.err, "node %s: %s\n", a.node, oneLine(line))
			}
		}
	}
	for i := range answers {
		if a := &answers[i]; !a.answered() {
			fmt.Fprintf(c.err, "node %s did not answer: %s\n", a.node, a.reason())
		}
	}
	var errs []string
	if len(failed) > 0 {
		errs = append(errs, fmt.Sprintf("the command failed on %d of %s", len(failed), counted(len(answers), "node")))
	}
	if len(silent) > 0 {
		errs = append(errs, fmt.Sprintf("%d of %s did not answer", len(silent), counted(len(answers), "node")))
	}
	if len(errs) > 0 {
		return errors.New(strings.Join(errs, "; "))
	}
	return nil
}

// follow runs a command without end on the nodes, and prints each line with its node when it arrives.
func (r *remote) follow(ctx context.Context, nodes []fleet.Node) error {
	width := 0
	for _, n := range nodes {
		width = max(width, len(n.Name))
	}
	answers := make([]answer, len(nodes))
	var wait sync.WaitGroup
	var mu sync.Mutex // of both outputs
	for i, n := range nodes {
		wait.Go(func() {
			out := &lines{mu: &mu, to: r.out, format: r.lineFormat(n.Name, width)}
			failures := &lines{
				mu: &mu,
				to: r.err,
				format: func(line []byte) []byte {
					return fmt.Appendf(nil, "node %s: %s\n", n.Name, printable(string(line)))
				},
			}
			answers[i].node = n.Name
			answers[i].failure = r.run(ctx, n, out, failures)
			out.flush()
			failures.flush()
		})
	}
	wait.Wait()
	if ended(ctx) {
		return nil
	}
	return r.conclude(answers)
}

// lineFormat returns how a line of a node is printed: as a line of JSON, a YAML document, or with the node's name in
// front.
func (c *client) lineFormat(node string, width int) func([]byte) []byte {
	return func(line []byte) []byte {
		if c.format == "table" {
			return fmt.Appendf(nil, "%-*s  %s\n", width, node, printable(string(line)))
		}
		var b bytes.Buffer
		p := printer{out: &b, format: c.format}
		_ = p.streamed(nodeAnswer{Node: node, Output: parsed(line)}) // into memory
		return b.Bytes()
	}
}
