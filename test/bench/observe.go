package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/weftnet/weft/test/node"
)

const (
	observeAddress = "127.0.0.1:9465"
	observeScrapes = time.Second
	observeBlock   = 10   // pods between two restarts of the agent
	observeAim     = 1.05 // ADD's p50 observed / unobserved
)

// measureObserve compares ADDs of an agent that is observed with those of one that is not, on one node: the agent
// restarts after each block of pods with the other flags. Observed: metrics are scraped every second, all objects are
// audited every ten seconds, every request is traced and its spans are exported. Unobserved: none of these. Both keep
// their records of events and transactions and their counters in memory, which cannot be switched off.
func measureObserve(ctx context.Context, b *bench, programs string) error {
	receiver, err := receiveSpans()
	if err != nil {
		return err
	}
	defer receiver.stop()
	observed := []string{
		"--audit=10s", "--http-listen=" + observeAddress, "--tracing-sampling=1", "--tracing-endpoint=" + receiver.url,
	}
	o := node.Options{CoolDown: time.Second, Pools: []node.Pool{pool4, pool6}}
	return withNode(ctx, programs, o, func(n *node.Node) error {
		runtime, err := n.Runtime(os.Stderr)
		if err != nil {
			return err
		}
		on := &contender{name: "observed", node: n, runtime: runtime}
		off := &contender{name: "unobserved", node: n, runtime: runtime}
		scrapes := int64(0)
		for block := 0; len(off.add) < b.pods; block++ {
			stop := scrape(ctx)
			err := measureBlock(ctx, on, fmt.Sprintf("on%d", block), observed)
			scrapes += stop()
			if err == nil {
				err = measureBlock(ctx, off, fmt.Sprintf("off%d", block), []string{"--audit=24h", "--http-listen="})
			}
			if err != nil {
				return err
			}
		}
		if receiver.spans.Load() == 0 || scrapes == 0 {
			return fmt.Errorf("observe: %d spans and %d scrapes", receiver.spans.Load(), scrapes)
		}
		if err := b.report(fmt.Sprintf("dual stack, %d pods, one at a time", len(off.add)), []*contender{
			on, off,
		}); err != nil {
			return err
		}
		ratio := float64(on.add.quantile(0.5)) / float64(off.add.quantile(0.5))
		fmt.Fprintf(b.out, "ADD p50 observed / unobserved: %.3f (aim: at most %.2f); %d spans, %d scrapes\n", ratio,
			observeAim, receiver.spans.Load(), scrapes)
		return nil
	})
}

// measureBlock restarts the agent with flags and measures pods. The first pod warms the agent up and does not count.
func measureBlock(ctx context.Context, c *contender, name string, flags []string) error {
	if err := errors.Join(c.node.StopAgent(), c.node.StartAgent(ctx, flags...)); err != nil {
		return err
	}
	for i := range observeBlock + 1 {
		if err := c.measure(ctx, fmt.Sprintf("%s-%d", name, i)); err != nil {
			return err
		}
		if i == 0 {
			c.add = c.add[:len(c.add)-1]
			c.del = c.del[:len(c.del)-1]
		}
	}
	return nil
}

// scrape scrapes the metrics until stop, which returns the number of scrapes.
func scrape(ctx context.Context) (stop func() int64) {
	ctx, cancel := context.WithCancel(ctx)
	var scraping sync.WaitGroup
	var n int64
	scraping.Go(func() {
		tick := time.NewTicker(observeScrapes)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if scrapeOnce(ctx) == nil {
					n++
				}
			}
		}
	})
	return func() int64 {
		cancel()
		scraping.Wait()
		return n
	}
}

func scrapeOnce(ctx context.Context) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+observeAddress+"/metrics", nil)
	if err != nil {
		return err
	}
	reply, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	_, err = io.Copy(io.Discard, reply.Body)
	return err
}

// spanReceiver counts the spans that it receives by OTLP.
type spanReceiver struct {
	collector.UnimplementedTraceServiceServer

	url   string
	spans atomic.Int64
	stop  func()
}

func receiveSpans() (*spanReceiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &spanReceiver{url: "http://" + listener.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	r.stop = func() { server.Stop(); serving.Wait() }
	return r, nil
}

// Export counts spans.
func (r *spanReceiver) Export(
	_ context.Context, q *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	for _, resource := range q.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			r.spans.Add(int64(len(scope.GetSpans())))
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}
