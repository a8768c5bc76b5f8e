package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/k8s/exec"
	"github.com/weftnet/weft/k8s/fleet"
)

// nodeStatus is the state of a node in the status of a cluster.
type nodeStatus struct {
	Node      string            `json:"node"`
	Version   string            `json:"version,omitempty"`
	Ready     bool              `json:"ready"`
	Dataplane string            `json:"dataplane,omitempty"`
	Pods      uint32            `json:"attachments"`
	Bad       map[string]uint32 `json:"objectsNotInSync,omitempty"` // number by phase
	// the first condition that is not fulfilled, or why the node did not answer
	Problem  string `json:"problem,omitempty"`
	Agent    bool   `json:"agent"` // an agent runs
	Answered bool   `json:"answered"`
}

// clusterState is the status of a cluster.
type clusterState struct {
	Nodes []nodeStatus `json:"nodes"`
	fleet.Summary
}

// clusterStatus prints the state of the cluster on one screen; exit code 1 if a node is not ready.
func (c *client) clusterStatus(ctx context.Context) error {
	agents, nodes, err := c.nodesOf(ctx, choice{all: true})
	if err != nil {
		return err
	}
	state := clusterState{Nodes: make([]nodeStatus, len(nodes))}
	r := remote{client: c, agents: agents, kind: reads, line: []string{"status", "--output=json"}}
	bounded, cancel := r.bounded(ctx)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(nodesAtOnce)
	group.Go(func() error {
		reading, cancel := context.WithTimeout(bounded, c.agent.timeout)
		defer cancel()
		state.Summary = agents.Summary(reading, c.now())
		return nil
	})
	for i := range nodes {
		group.Go(func() error {
			state.Nodes[i] = r.status(bounded, nodes[i])
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := c.show(state, func() { printCluster(&c.printer, state) }); err != nil {
		return err
	}
	return state.verdict()
}

// agentState is the part of weftctl status -o json that the status of a cluster uses.
type agentState struct {
	Version, Dataplane string
	Ready              bool
	Attachments        uint32
	Objects            map[string]uint32
	Conditions         []struct {
		Name, Message string
		Ok            bool
	}
}

// status asks the agent of a node for its state.
func (r *remote) status(ctx context.Context, node fleet.Node) nodeStatus {
	s := nodeStatus{Node: node.Name, Agent: node.Agent != ""}
	a := answer{node: node.Name}
	a.failure = r.run(ctx, node, &exec.Bounded{To: &a.out, Left: maxNodeOutput}, &exec.Bounded{
		To:   &a.err,
		Left: maxNodeErrors,
	})
	var reply agentState
	if !a.answered() {
		s.Problem = a.reason()
		return s
	}
	if err := json.Unmarshal(a.out.Bytes(), &reply); err != nil {
		s.Problem = cmp.Or(a.reason(), "unreadable answer")
		return s
	}
	s.Answered = true
	s.Ready = reply.Ready
	s.Version = reply.Version
	s.Dataplane = reply.Dataplane
	s.Pods = reply.Attachments
	for phase, count := range reply.Objects {
		if !slices.Contains([]string{"InSync", "Observed"}, phase) && count > 0 {
			if s.Bad == nil {
				s.Bad = make(map[string]uint32)
			}
			s.Bad[phase] = count
		}
	}
	for _, condition := range reply.Conditions {
		if !condition.Ok && s.Problem == "" {
			s.Problem = condition.Name + ": " + oneLine(condition.Message)
		}
	}
	return s
}

// verdict returns an error if a node is not ready.
func (s clusterState) verdict() error {
	var bad []string
	for _, n := range s.Nodes {
		if !n.Ready {
			bad = append(bad, n.Node)
		}
	}
	switch {
	case len(bad) == 0:
		return nil
	case len(bad) > 3:
		return fmt.Errorf("%d of %d nodes are not ready", len(bad), len(s.Nodes))
	}
	return errors.New("not ready: " + strings.Join(bad, ", "))
}

// maxListed limits the lines of problems on the screen; the documents have all.
const maxListed = 20

func printCluster(p *printer, s clusterState) {
	g := newGrid("node", "ready", "agent", "dataplane", "pods", "not in sync")
	ready := 0
	versions := make(map[string]bool)
	for _, n := range s.Nodes {
		word := p.bad("no")
		if n.Ready {
			word = p.good("yes")
			ready = ready + 1
		}
		if !n.Answered {
			g.row(p.cut(n.Node, 24), p.bad("?"), "-", "-", "-", "-")
			continue
		}
		versions[n.Version] = true
		if n.Ready && n.Problem == "" && len(n.Bad) == 0 && len(s.Nodes) > maxListed {
			continue // the screen has the nodes with problems
		}
		g.row(p.cut(n.Node, 24), word, p.shortVersion(n.Version), p.cut(orDash(n.Dataplane), 20), n.Pods,
			orDash(inPhases(n.Bad)))
	}
	p.printf("%s, %d ready\n", counted(len(s.Nodes), "node"), ready)
	p.printGrid(g, "")
	p.printf("\n")
	facts := newGrid()
	controller := p.bad(p.cut(oneLine(s.Controller), 66))
	if s.ControllerRunning {
		controller = p.good(p.cut(s.Controller, 66))
	}
	facts.row("controller", controller)
	facts.row("networks", fmt.Sprint(s.Networks))
	facts.row("pools", fmt.Sprint(s.Pools))
	if len(versions) > 1 {
		facts.row("versions", fmt.Sprintf("%d different versions of the agent", len(versions)))
	}
	p.printGrid(facts, "")
	printProblems(p, s)
}

// printProblems prints a line for each problem, and the next command.
func printProblems(p *printer, s clusterState) {
	var texts []string
	for _, n := range s.Nodes {
		switch {
		case n.Problem == "":
		case n.Answered, !n.Agent:
			texts = append(texts, "node "+n.Node+": "+n.Problem)
		default:
			texts = append(texts, "node "+n.Node+" did not answer: "+n.Problem)
		}
	}
	for _, b := range s.Problems {
		texts = append(texts, b.Kind+" "+b.Name+": "+b.Reason)
	}
	if s.Unreadable != "" {
		texts = append(texts, s.Unreadable)
	}
	if len(texts) == 0 {
		return
	}
	p.printf("\nproblems:\n")
	for _, text := range texts[:min(len(texts), maxListed)] {
		p.printf("  %s\n", p.bad(oneLine(text)))
	}
	if len(texts) > maxListed {
		p.printf("  %d more: -o json has all\n", len(texts)-maxListed)
	}
}

// inPhases formats numbers of objects by phase.
func inPhases(numbers map[string]uint32) string {
	var texts []string
	for _, phase := range slices.Sorted(maps.Keys(numbers)) {
		texts = append(texts, fmt.Sprintf("%d %s", numbers[phase], phase))
	}
	return strings.Join(texts, ", ")
}

// shortVersion returns the version without the name of the program and, on a terminal, the commit.
func (p *printer) shortVersion(text string) string {
	text = strings.TrimPrefix(text, "weft ")
	version, _, _ := strings.Cut(text, " ")
	return p.cut(orDash(version), 16)
}

// cut shortens a text to a number of characters, for a screen. With --wide and without a terminal it is complete.
func (p *printer) cut(text string, length int) string {
	letters := []rune(text)
	if len(letters) <= length || p.wide || p.width == 0 {
		return text
	}
	return string(letters[:length-1]) + "…"
}
