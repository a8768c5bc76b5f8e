package packets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	vpptest "github.com/weftnet/weft/test/dataplane"
)

const versusMethod = `
The same scenarios on each dataplane, on one core, in turn: pairs of memifs in one bridge domain (L2) or with a table each (L3), all
loaded both ways by clients of this process, which the dataplane limits if "ring full" is near 1. ns/packet is the time of the
dataplane's thread by the packets that arrived, the least of up to %d rounds of %s. Latency is that of bursts of %d packets, sent until the
last has arrived, at half the lower top rate of both dataplanes. With rules each memif has an ACL for the packets that it receives, and the
last rule permits them; with sessions only the first packet of a flow is compared with the rules, otherwise each one.
`

// Numbers of starts of each dataplane per scenario, and parameters of the measurements per start.
const (
	versusStarts = 2
	versusRounds = 100
	versusRound  = 20 * time.Millisecond
	// versusPatience bounds the rounds of a start on a busy machine.
	versusPatience = 6 * time.Second
	versusSlots    = 1024 // ring size, the default of VPP and DPDK
)

// scenario is a condition of the comparison.
type scenario struct {
	routed       bool
	size, memifs int
	rules        int // of an ACL of each memif; 0 = no ACL
	sessions     bool
}

// String returns the scenario's name in the table.
func (s scenario) String() string {
	layer := "L2"
	if s.routed {
		layer = "L3"
	}
	name := fmt.Sprintf("%s %d B, %d memifs", layer, s.size, s.memifs)
	switch {
	case s.rules == 0:
		return name
	case s.sessions:
		return fmt.Sprintf("%s, %d rules, sessions", name, s.rules)
	default:
		return fmt.Sprintf("%s, %d rules", name, s.rules)
	}
}

// scenarios have at least two memifs: packets from one arrive on another.
func scenarios() (all []scenario) {
	for _, memifs := range []int{2, 10, 100} {
		all = append(all, scenario{size: 64, memifs: memifs}, scenario{routed: true, size: 64, memifs: memifs},
			scenario{size: 1500, memifs: memifs})
	}
	return all
}

// policyScenarios have ACLs as network policies have them.
func policyScenarios() []scenario {
	routed := scenario{routed: true, size: 64, memifs: 2}
	all := []scenario{routed}
	for _, sessions := range []bool{true, false} {
		for _, rules := range []int{10, 1000, 10000} {
			s := routed
			s.rules = rules
			s.sessions = sessions
			all = append(all, s)
		}
	}
	return all
}

// contestant is a dataplane of the comparison.
type contestant struct {
	name    string
	version string // set after its start
	start   func(ctx context.Context, dir string) (*dataplane, error)
}

// outcome is the result of a contestant in a scenario.
type outcome struct {
	top    load // the round with the least cost
	delays paced
}

// contestants returns weft-vswitch, and VPP if WEFT_VPP is set.
func (r *run) contestants() []*contestant {
	all := []*contestant{{name: "vswitch", start: func(ctx context.Context, dir string) (*dataplane, error) {
		return startVSwitch(ctx, filepath.Join(r.Programs, "weft-vswitch"), dir)
	}}}
	if vpptest.Prefix() != "" {
		all = append(all, &contestant{name: "VPP", start: startVPP})
	}
	return all
}

// versus compares the dataplanes in scenarios.
func (r *run) versus(ctx context.Context, scenarios []scenario) error {
	all := r.contestants()
	fmt.Fprintf(r.Out, versusMethod, versusStarts*versusRounds, versusRound, paceBurst)
	if len(all) == 1 {
		fmt.Fprintf(r.Out, "bench: no VPP to compare with: %s is not set\n", vpptest.PrefixVariable)
	}
	fmt.Fprintf(r.Out, "%-42s %-9s %9s %7s %9s %8s %8s %9s %7s %13s %7s\n",
		"scenario", "dataplane", "ns/packet", "Mpps", "ring full", "at Mpps", "p50 us", "p99 us", "lost",
		"ratio of cost", "of p50")
	for _, s := range scenarios {
		outcomes, err := r.contest(ctx, s, all)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		r.reportContest(s, all, outcomes)
	}
	for _, c := range all {
		fmt.Fprintf(r.Out, "%s: version %s\n", c.name, c.version)
	}
	return nil
}

// contest measures the contestants in turns.
func (r *run) contest(ctx context.Context, s scenario, all []*contestant) ([]outcome, error) {
	outcomes := make([]outcome, len(all))
	for range versusStarts {
		for i, c := range all {
			err := r.session(ctx, c, s, func(f *fleet, worker thread) error {
				return f.top(ctx, s.size, worker, &outcomes[i].top)
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	half := outcomes[0].top.rate().packets / 2
	for _, o := range outcomes {
		half = min(half, o.top.rate().packets/2)
	}
	for i, c := range all {
		err := r.session(ctx, c, s, func(f *fleet, _ thread) error {
			outcomes[i].delays = f.pace(s.size, half, r.Duration)
			return ctx.Err()
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return outcomes, nil
}

// reportContest prints each scenario when it is done, because all together take minutes.
func (r *run) reportContest(s scenario, all []*contestant, outcomes []outcome) {
	for i, o := range outcomes {
		d := o.delays
		fmt.Fprintf(r.Out, "%-42s %-9s %9.1f %7.2f %9.2f %8.2f %8.2f %9.2f %7d ", s, all[i].name, o.top.cost(),
			o.top.rate().packets/1e6, o.top.full(),
			float64(d.sent)/d.took.Seconds()/1e6, micro(d.share(50)), micro(d.share(99)), d.lost())
		if i == 0 {
			fmt.Fprintln(r.Out)
			continue
		}
		ours := outcomes[0]
		cost := ours.top.cost() / o.top.cost()
		latency := micro(ours.delays.share(50)) / micro(d.share(50))
		fmt.Fprintf(r.Out, "%13.2f %7.2f\n", cost, latency)
		r.verdicts.add(fmt.Sprintf("%s: cost a packet, of VPP's", s), atMost(1), cost, "%.2f")
		r.verdicts.add(fmt.Sprintf("%s: latency p50 at half rate, of VPP's", s), atMost(1), latency, "%.2f")
	}
}

// session starts a dataplane with clients for one measurement; no other dataplane runs, so that none shares the
// processor.
func (r *run) session(ctx context.Context, c *contestant, s scenario, measure func(*fleet, thread) error) (err error) {
	dir, err := os.MkdirTemp(r.dir, "dp")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	d, err := c.start(ctx, dir)
	if err != nil {
		return err
	}
	c.version = d.version
	defer func() { err = errors.Join(err, d.stop(), os.RemoveAll(dir)) }()
	f := &fleet{}
	defer f.close()
	for i := range s.memifs / 2 {
		w, err := d.addMemifPair(ctx, "", uint32(2*i), s.routed)
		if err == nil && s.rules > 0 {
			err = d.restrict(ctx, w, s)
		}
		if err != nil {
			return err
		}
		l, err := d.pair(ctx, w, versusSlots)
		if err != nil {
			return err
		}
		f.links = append(f.links, l)
		f.wires = append(f.wires, w)
	}
	return pinned(testerProcessor, func() error {
		if err := f.fill(s.size); err != nil {
			return err
		}
		worker, err := busiest(d.pid(), func() { f.saturate(s.size, 300*time.Millisecond) })
		if err != nil {
			return err
		}
		if err := pinTo(worker.tid, workerProcessor); err != nil {
			return err
		}
		return measure(f, worker)
	})
}
