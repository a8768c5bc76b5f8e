package packets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

// rate is the throughput of a way with packets of one size.
type rate struct {
	packets float64       // that arrived, per second
	cost    time.Duration // the worker's processor time per packet; 0 without a worker
}

func (r rate) gigabits(size int) float64 { return r.packets * float64(size) * 8 / 1e9 }

// compare measures a testpmd that sends to another one directly, and one that sends to itself through the dataplane.
func (r *run) compare(ctx context.Context) (err error) {
	direct, err := r.direct(ctx)
	if err != nil {
		return fmt.Errorf("testpmd to testpmd: %w", err)
	}
	w := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() { err = errors.Join(err, w.Flush()) }()
	fmt.Fprint(w, "testpmd\t64 B Mpps\tGbit/s\tns/packet\tof direct\t512 B\t\t\t\t1500 B\t\t\t\t\n")
	row(w, "txonly to rxonly, direct", direct, direct)
	for i, routed := range []bool{false, true} {
		name := []string{"io, vswitch L2", "flowgen, vswitch L3"}[i]
		rates, err := r.through(ctx, name, routed)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		row(w, name, rates, direct)
		if !routed {
			r.verdicts.add("L2, 1500 B: share of the direct rate", atLeast(0.4), rates[2].packets/direct[2].packets,
				"%.2f")
		}
	}
	return nil
}

func row(w *tabwriter.Writer, name string, rates, direct []rate) {
	fmt.Fprintf(w, "%s\t", name)
	for i, r := range rates {
		fmt.Fprintf(w, "%.2f\t%.1f\t%d\t%.2f\t", r.packets/1e6, r.gigabits(sizes[i]), r.cost.Nanoseconds(),
			r.packets/direct[i].packets)
	}
	fmt.Fprintln(w)
}

// direct measures a testpmd that sends to another, each on its own processor.
func (r *run) direct(ctx context.Context) (rates []rate, err error) {
	options := "id=0,socket=" + filepath.Join(r.dir, "direct.sock")
	server, err := startTestpmd(ctx, r.testpmd, role{name: "server", processor: workerProcessor, dir: r.dir,
		ports: []string{"role=server," + options}, arguments: []string{"--forward-mode=rxonly", "--auto-start"}})
	if err != nil {
		return nil, err
	}
	client, err := startTestpmd(ctx, r.testpmd, role{name: "client", processor: testerProcessor, dir: r.dir,
		ports: []string{"role=client," + options}, arguments: []string{"--forward-mode=txonly"}})
	defer func() {
		server.stop() // first, because it may crash after the client
		if client != nil {
			client.stop()
		}
	}()
	if err != nil {
		return nil, err
	}
	for _, size := range sizes {
		if err := client.do("stop", fmt.Sprintf("set txpkts %d", size), "start"); err != nil {
			return nil, err
		}
		best, err := r.rounds(ctx, server, nil)
		if err != nil {
			return nil, err
		}
		rates = append(rates, best)
	}
	return rates, nil
}

// modes are testpmd's forwarding modes for a bridge and for a router. Its flow generator always sends between the same
// two MACs, which a bridge cannot forward; tx_first sends proper addresses and circulates the packets, but a router
// changes them.
var modes = map[bool]struct {
	name, start string
	more        int // bytes that it subtracts for a checksum
}{
	false: {"io", "start tx_first 3", 0}, // three bursts in each direction: rings have space for four
	true:  {"flowgen", "start", 4},
}

// through measures a testpmd that sends both ways through the dataplane.
func (r *run) through(ctx context.Context, name string, routed bool) (rates []rate, err error) {
	w, err := r.dataplane.addMemifPair(ctx, name, 0, routed)
	if err != nil {
		return nil, err
	}
	defer func() {
		if failed := r.dataplane.disconnect(ctx, w); err == nil {
			err = failed
		}
	}()
	mode := modes[routed]
	tester := role{
		name:      "tester",
		processor: testerProcessor,
		dir:       r.dir,
		arguments: []string{"--forward-mode=" + mode.name},
	}
	for i, id := range w.ids {
		tester.ports = append(tester.ports,
			fmt.Sprintf("role=client,id=%d,socket=%s,mac=%s", id, r.dataplane.memifSocket(), peer(id)))
		tester.arguments = append(tester.arguments, fmt.Sprintf("--eth-peer=%d,%s", i, w.next(i)))
	}
	t, err := startTestpmd(ctx, r.testpmd, tester)
	if err != nil {
		return nil, err
	}
	defer t.stop()
	for _, size := range sizes {
		if err := t.do("stop", fmt.Sprintf("set txpkts %d", size+mode.more), mode.start); err != nil {
			return nil, err
		}
		worker, err := r.dataplane.findWorker(ctx)
		if err != nil {
			return nil, err
		}
		rate, err := r.rounds(ctx, t, &worker)
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	return rates, nil
}

// findWorker finds the worker by its processor time, and pins it.
func (d *dataplane) findWorker(ctx context.Context) (thread, error) {
	var err error
	worker, failed := busiest(d.pid(), func() { err = await(ctx, 300*time.Millisecond) })
	if err != nil || failed != nil {
		return worker, errors.Join(err, failed)
	}
	return worker, pinTo(worker.tid, workerProcessor)
}

// splits is the number of parts of a round: in the best of them the machine was idle otherwise.
const splits = 4

// rounds measures the packets that a testpmd receives, once they flow, and returns the best part.
func (r *run) rounds(ctx context.Context, t *testpmd, worker *thread) (rate, error) {
	if err := t.flows(ctx); err != nil {
		return rate{}, fmt.Errorf("%w; the dataplane dropped: %s", err, r.dataplane.drops(ctx))
	}
	var all []rate
	for range splits * r.Rounds {
		one, err := r.round(ctx, t, worker)
		if err != nil {
			return rate{}, err
		}
		all = append(all, one)
	}
	return slices.MaxFunc(all, func(a, b rate) int { return cmp.Compare(a.packets, b.packets) }), nil
}

func (r *run) round(ctx context.Context, t *testpmd, worker *thread) (one rate, err error) {
	var times [2]time.Duration
	var counts [2]traffic
	var at [2]time.Time
	for i := range times {
		if i == 1 {
			if err := await(ctx, r.Duration/splits); err != nil {
				return one, err
			}
		}
		if worker != nil {
			if times[i], err = worker.cpuTime(); err != nil {
				return one, err
			}
		}
		if counts[i], err = t.traffic(); err != nil {
			return one, err
		}
		at[i] = time.Now()
	}
	arrived := counts[1].received - counts[0].received
	return rate{
		float64(arrived) / at[1].Sub(at[0]).Seconds(), (times[1] - times[0]) / time.Duration(max(arrived, 1)),
	}, nil
}
