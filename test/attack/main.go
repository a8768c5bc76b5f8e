// Command attack runs hostile pods on a private node, one attack at a time. It prints the effect on a pair of other
// pods, on ADD and DEL, and on Weft's programs; an attack that has an effect is an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weftnet/weft/test/netns"
)

// settings are the settings of a run.
type settings struct {
	programs string        // directory of the programs that are attacked
	against  string        // directory of another version's programs, attacked first; "" = none
	only     []string      // names of attacks; none = all
	long     bool          // include attacks that disturb the machine, and checks that depend on its speed
	quiet    time.Duration // duration of the measurement before and after each attack
	attack   time.Duration // duration of each attack
	deadline time.Duration // of ADDs and DELs during an attack
	calls    int           // number of calls in the siege
	seed     uint64        // of the siege
	verbose  bool          // print the attackers' output
	// dedicated pins the dataplane to the machine's last processor, and all other processes to the others.
	dedicated bool
}

func main() {
	if isAttacker() {
		beAttacker()
		return
	}
	programs := flag.String("programs", "bin", "directory of weft-agent, weft-cni, weft-vswitch and weftctl")
	against := flag.String("against", "", "directory of another version's programs, which are attacked first")
	only := flag.String("only", "", "comma-separated names of attacks; default: all")
	attack := flag.Duration("for", 10*time.Second, "duration of each attack")
	calls := flag.Int("siege", 0,
		"instead of the attacks, make this number of random runtime calls while programs are killed and a pod attacks")
	seed := flag.Uint64("seed", rand.Uint64(), "seed of the siege; default: random")
	verbose := flag.Bool("v", false, "print the attackers' output")
	dedicated := flag.Bool("dedicated", false,
		"pin the dataplane to the machine's last processor, and all other processes to the others")
	flag.Parse()
	if err := netns.Enter(); err != nil {
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := settings{
		programs: *programs,
		against:  *against,
		long:     true,
		quiet:    5 * time.Second,
		attack:   *attack,
		deadline: 2 * time.Second,
		calls:    *calls, seed: *seed, verbose: *verbose, dedicated: *dedicated,
	}
	if *only != "" {
		s.only = strings.Split(*only, ",")
	}
	if s.dedicated {
		if err := leaveLastProcessor(); err != nil {
			fail(err)
		}
	}
	do := run
	if s.calls > 0 {
		do = runSiege
	}
	if err := do(ctx, os.Stdout, s); err != nil {
		stop()
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "attack:", err)
	os.Exit(1)
}

// run makes all attacks on each version and prints a table for each.
func run(ctx context.Context, out io.Writer, s settings) error {
	chosen, err := s.choose()
	if err != nil {
		return err
	}
	if s.against != "" {
		fmt.Fprintf(out, "\nthe programs in %s\n\n", s.against)
		other := s
		other.programs = s.against
		if _, err := runAll(ctx, out, other, chosen); err != nil {
			return err
		}
		fmt.Fprintf(out, "\nthe programs in %s\n\n", s.programs)
	}
	succeeded, err := runAll(ctx, out, s, chosen)
	if err == nil && len(succeeded) > 0 {
		err = fmt.Errorf("%d of %d attacks succeeded: %s", len(succeeded), len(chosen), strings.Join(succeeded, ", "))
	}
	return err
}

func (s settings) choose() ([]attack, error) {
	chosen := slices.DeleteFunc(attacks(), func(a attack) bool {
		return len(s.only) > 0 && !slices.Contains(s.only, a.name) || a.long && !s.long
	})
	for _, name := range s.only {
		if !slices.ContainsFunc(chosen, func(a attack) bool { return a.name == name }) {
			return nil, fmt.Errorf("unknown attack %q", name)
		}
	}
	return chosen, nil
}

// runAll makes each attack on a new node, because a successful attack damages its node.
func runAll(ctx context.Context, out io.Writer, s settings, chosen []attack) (succeeded []string, err error) {
	fmt.Fprintf(out, "%-16s %-9s %9s %9s %9s %9s %6s %8s %8s  %s\n",
		"attack", "finding", "median", "p99", "attacked", "p99", "lost", "ADD", "DEL", "verdict")
	for _, a := range chosen {
		r, err := a.onNode(ctx, s)
		if ctx.Err() != nil {
			return succeeded, errors.New("interrupted; the node is removed")
		}
		if err != nil {
			return succeeded, fmt.Errorf("%s: %w", a.name, err)
		}
		verdict := "failed"
		if len(r.violations) > 0 {
			verdict = "SUCCEEDED: " + strings.Join(r.violations, "; ")
			succeeded = append(succeeded, a.name)
		}
		fmt.Fprintf(out, "%-16s %-9s %9s %9s %9s %9s %6d %8s %8s  %s\n", a.name, a.finding,
			micro(r.before.Median), micro(r.before.P99), micro(r.during.Median), micro(r.during.P99),
			r.during.Sent-r.during.Answered,
			r.slowestAdd.Round(time.Millisecond), r.slowestDel.Round(time.Millisecond), verdict)
	}
	return succeeded, nil
}

func micro(d time.Duration) string { return d.Round(time.Microsecond).String() }
