// Command mutants tests whether tests guard the promises of the product. It applies one mutation of list.txt at a time,
// runs the tests of the package that owns the promise, and prints the mutations that no test notices.
//
// Time kills no mutation: tests get four times the time that they take without it and a minute more. If they exceed
// that, they run again without the mutation, which tells a mutation that makes them hang from a machine that became
// slow.
//
// The sources do not change. Exit code 1: a mutation survived, does not apply any more or does not compile.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	root := flags.String("root", ".", "`directory` of the repository")
	list := flags.String("list", "test/mutants/list.txt", "`file` with the mutations, below the root")
	only := flags.String("only", "", "`text` that the file or the promise of the mutations contains")
	percent := flags.Int("percent", 100, "share of the mutations to try, chosen at random")
	seed := flags.String("seed", fmt.Sprint(time.Now().UnixNano()), "`text` that seeds the choice")
	jobs := flags.Int("jobs", 2, "number of concurrent mutations")
	grace := flags.Duration("grace", 2*time.Minute,
		"`time` that tests with a mutation may take in addition to four times their time without it")
	within := flags.Duration("within", 24*time.Hour, "`time` after which no other mutation starts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	top, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(top, *list))
	if err != nil {
		return err
	}
	all, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", *list, err)
	}
	scratch, err := os.MkdirTemp("", "weft-mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	chosen := choose(all, *only, *percent, *seed)
	fmt.Fprintf(out, "mutants: %d of %d mutations, seed %s\n", len(chosen), len(all), *seed)
	t := trial{tree: tree{root: top, scratch: scratch}, out: out, end: time.Now().Add(*within), grace: *grace}
	return t.try(ctx, chosen, *jobs)
}

// choose selects the mutations with the text, and then a share of them at random.
func choose(all []*mutation, only string, percent int, seed string) []*mutation {
	var chosen []*mutation
	for _, m := range all {
		if strings.Contains(m.String(), only) {
			chosen = append(chosen, m)
		}
	}
	if percent < 100 {
		random := rand.New(rand.NewChaCha8(sha256.Sum256([]byte(seed))))
		random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:(len(chosen)*percent+99)/100]
	}
	return chosen
}

// trial tries mutations and counts the results.
type trial struct {
	tree
	out   io.Writer
	end   time.Time // when no other mutation starts
	grace time.Duration

	measured map[string]func(context.Context) time.Duration // by package, the time of its tests without a mutation

	mu     sync.Mutex
	counts map[outcome]int
	left   int
	errs   []error
}

func (t *trial) try(ctx context.Context, mutations []*mutation, jobs int) error {
	if len(mutations) == 0 {
		return errors.New("no mutation to try")
	}
	defer t.sweep(mutations)()
	var group errgroup.Group
	group.SetLimit(jobs)
	patterns := make(map[string][]string) // by package
	for _, m := range mutations {
		patterns[m.test] = append(patterns[m.test], m.run)
	}
	t.counts = make(map[outcome]int)
	t.measured = make(map[string]func(context.Context) time.Duration)
	for dir, patterns := range patterns {
		var once sync.Once
		var took time.Duration
		t.measured[dir] = func(ctx context.Context) time.Duration {
			once.Do(func() { took = t.unmutated(ctx, dir, patterns) })
			return took
		}
	}
	for _, m := range mutations {
		group.Go(func() error { t.one(ctx, m); return nil })
	}
	_ = group.Wait()
	fmt.Fprintf(t.out, "mutants: %d killed, %d survived, %d hang, %d undecided, %d errors\n",
		t.counts[killed], t.counts[survived], t.counts[hangs], t.counts[undecided], len(t.errs))
	if t.left > 0 {
		fmt.Fprintf(t.out, "mutants: %d were not tried, because of the time limit\n", t.left)
	}
	if n := t.counts[survived]; n > 0 {
		t.errs = append(t.errs, fmt.Errorf("%d mutations survived: no test guards these promises", n))
	}
	return errors.Join(t.errs...)
}

// sweep returns a function that removes files of failed property tests that did not exist before: mutations caused the
// failures.
func (t *trial) sweep(mutations []*mutation) func() {
	missing := make(map[string]bool)
	for _, m := range mutations {
		kept := filepath.Join(t.root, m.test, "testdata", "rapid")
		if _, err := os.Lstat(kept); errors.Is(err, fs.ErrNotExist) {
			missing[kept] = true
		}
	}
	return func() {
		for kept := range missing {
			if err := os.RemoveAll(kept); err != nil {
				fmt.Fprintln(t.out, "mutants: left behind:", err)
			}
		}
	}
}

// one tries one mutation.
func (t *trial) one(ctx context.Context, m *mutation) {
	start := time.Now()
	if start.After(t.end) || ctx.Err() != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.left++
		return
	}
	limit := patience*t.measured[m.test](ctx) + t.grace
	what, err := t.decide(ctx, m, limit)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.errs = append(t.errs, err)
	}
	t.counts[what]++
	fmt.Fprintf(t.out, "%-9s %5.1fs  %s\n", what, time.Since(start).Seconds(), m)
}

// unmutated runs the tests of a package without a mutation, and returns their time.
func (t *trial) unmutated(ctx context.Context, dir string, patterns []string) time.Duration {
	pattern := strings.Join(patterns, "|")
	for _, p := range patterns {
		if p == "" {
			pattern = "" // all of them
		}
	}
	took, err := t.measure(ctx, dir, pattern)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.errs = append(t.errs, err)
	}
	return took
}
