package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// siege is a node on which runtimes make random calls while programs are killed and suspended and a hostile pod
// attacks. Its model is the set of pods that have to be attached in the end.
type siege struct {
	*stage
	random  *rand.Rand // from the seed: decides what happens; when it happens depends on the machine
	callers sync.RWMutex

	mu         sync.Mutex
	violations []string
	breaks     []interval // in which calls may fail and packets may be lost
	calls      map[string]int
	failed     int // failed calls in breaks
	lost       int // lost packets in breaks
	sent       int
	breaking   map[string]int
	attacking  map[string]int
	living     map[string]*node.Pod // the model, by container
}

// interval is a time during which a program was killed or suspended; a zero end means that it lasts.
type interval struct {
	from, to  time.Time
	dataplane bool // the program is the dataplane, so packets may be lost
}

const (
	runtimes = 4 // number of concurrent callers
	// recovery is the time after a break in which calls may fail: tables of kernel and dataplane fill again.
	recovery = 3 * time.Second
)

// runSiege makes the calls and prints a summary. It prints the seed first.
func runSiege(ctx context.Context, out io.Writer, set settings) (err error) {
	fmt.Fprintf(out, "siege: %d calls, seed %d\n", set.calls, set.seed)
	set.deadline = time.Minute
	st, err := newStage(ctx, set)
	if err != nil {
		return err
	}
	s := &siege{
		stage: st, random: rand.New(rand.NewPCG(set.seed, 0)),
		calls:     map[string]int{},
		breaking:  map[string]int{},
		attacking: map[string]int{},
		living:    map[string]*node.Pod{},
	}
	defer func() {
		if err != nil && set.verbose {
			fmt.Fprint(out, s.LogTails(200))
		}
		err = errors.Join(err, s.Close())
	}()
	clean, err := leftovers.Steady(ctx, s.places(), settling)
	if err != nil {
		return err
	}
	if err = s.addVictims(ctx); err != nil {
		return err
	}
	for _, v := range s.victims {
		s.living[v.ContainerID] = v
	}
	begun := time.Now()
	if err = s.run(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out,
		"siege: %s; calls %v, %d of them failed in breaks; breaks %v; attacks %v; victims sent %d packets, %d lost in breaks\n",
		time.Since(begun).Round(time.Second), s.calls, s.failed, s.breaking, s.attacking, s.sent, s.lost)
	if err = s.compareWithModel(ctx); err != nil {
		return err
	}
	for _, p := range s.living {
		if err := errors.Join(s.runtime.Del(ctx, p), p.Remove()); err != nil {
			return err
		}
	}
	left, err := leftovers.Settle(ctx, s.places(), clean, settling)
	if lines := left.Since(clean); err == nil && len(lines) > 0 {
		s.reportf("left over: %s", strings.Join(lines, ", "))
	}
	if err == nil && len(s.violations) > 0 {
		err = fmt.Errorf("siege with seed %d: %s", set.seed, strings.Join(s.violations, "; "))
	}
	return err
}

func (s *siege) reportf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// run makes the calls, disturbs the programs, attacks, and pings between the victims.
func (s *siege) run(ctx context.Context) error {
	duringSiege, stop := context.WithCancel(ctx)
	defer stop()
	var disturbers, callers sync.WaitGroup
	var broken, watched error
	seeds := [3]uint64{s.random.Uint64(), s.random.Uint64(), s.random.Uint64()}
	disturbers.Go(func() { broken = s.breakPrograms(duringSiege, rand.New(rand.NewPCG(seeds[0], 0))) })
	disturbers.Go(func() { s.runAttackers(duringSiege, rand.New(rand.NewPCG(seeds[1], 0))) })
	disturbers.Go(func() { watched = s.pingVictims(duringSiege) })
	for i := range runtimes {
		random := rand.New(rand.NewPCG(seeds[2], uint64(i)))
		callers.Go(func() { s.runCalls(ctx, i, s.settings.calls/runtimes, random) })
	}
	callers.Wait()
	stop()
	disturbers.Wait()
	return errors.Join(broken, watched, ctx.Err())
}

// during reports whether a break, of the dataplane or of any program, overlaps with the time since from.
func (s *siege) during(from time.Time, dataplane bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.breaks, func(b interval) bool {
		return (b.dataplane || !dataplane) && (b.to.IsZero() || from.Before(b.to.Add(recovery)))
	})
}

// breakPrograms kills and suspends agent and dataplane until ctx ends, and awaits the node's recovery each time.
func (s *siege) breakPrograms(ctx context.Context, random *rand.Rand) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(1+random.IntN(5)) * time.Second):
		}
		ways := []struct {
			name string
			do   func() error
		}{
			{"kill agent", func() error { return errors.Join(s.KillAgent(), s.BeginAgent()) }},
			{"kill dataplane", s.KillDataplane},
			{"kill both", func() error { return errors.Join(s.KillDataplane(), s.KillAgent(), s.BeginAgent()) }},
			{
				"stop agent",
				func() error { return suspend(s.AgentPID(), time.Duration(random.IntN(2000))*time.Millisecond) },
			},
			{
				"stop dataplane",
				func() error { return suspend(s.DataplanePID(), time.Duration(random.IntN(1000))*time.Millisecond) },
			},
		}
		way := ways[random.IntN(len(ways))]
		s.mu.Lock()
		s.breaking[way.name]++
		s.breaks = append(s.breaks, interval{from: time.Now(), dataplane: !strings.HasSuffix(way.name, "agent")})
		s.mu.Unlock()
		// Not cancelled: a break runs to its end.
		err := way.do()
		if err == nil {
			err = s.AwaitReady(context.WithoutCancel(ctx))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		s.mu.Lock()
		s.breaks[len(s.breaks)-1].to = time.Now()
		s.mu.Unlock()
	}
}

// suspend stops a process with SIGSTOP for a time.
func suspend(pid int, d time.Duration) error {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	<-time.After(d)
	return unix.Kill(pid, unix.SIGCONT)
}

// runAttackers adds a pod, attacks from it with a random method, and deletes it, until ctx ends.
func (s *siege) runAttackers(ctx context.Context, random *rand.Rand) {
	ways := slices.DeleteFunc(attacks(), func(a attack) bool { return a.long || a.verify != nil && a.name == "cni" })
	for ctx.Err() == nil {
		a := ways[random.IntN(len(ways))]
		a.members = 0
		pods, err := s.addAttacker(context.WithoutCancel(ctx), a)
		var attacker *attacker
		if err == nil {
			attacker, err = start(ctx, s.target)
		}
		if err == nil {
			s.mu.Lock()
			s.attacking[a.name]++
			s.mu.Unlock()
			pause(ctx, time.Duration(random.IntN(3000))*time.Millisecond)
		}
		if err != nil { // during a break the ADD fails, and attackers may end with the dataplane
			pause(ctx, 100*time.Millisecond)
		}
		for _, p := range pods { // during the attack
			if err := s.del(p); err != nil {
				s.reportf("DEL of the attacker: %v", err)
			}
		}
		if attacker != nil {
			attacker.end()
		}
		s.Forget(&node.Pod{Name: "attacker"})
	}
}

// del deletes a pod with one DEL, which must not fail.
func (s *siege) del(p *node.Pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.deadline)
	defer cancel()
	return errors.Join(s.runtime.Del(ctx, p), p.Remove())
}

// pingVictims pings from one victim to the other. A packet may be lost during a break.
func (s *siege) pingVictims(ctx context.Context) error {
	to := s.addrs[1].Addr()
	p, err := ping.Open(s.victims[0].Netns, to)
	if err != nil {
		return err
	}
	defer p.Close()
	for seq := 0; ctx.Err() == nil; seq++ {
		begun := time.Now()
		once, end := context.WithTimeout(ctx, 2*time.Second)
		_, err := p.Once(once, to, seq%(1<<16))
		end()
		switch {
		case err == nil || ctx.Err() != nil:
		case s.during(begun, true):
			s.lost++
		default:
			s.reportf("a packet of the victims is lost, although the dataplane was not killed or suspended: %v", err)
		}
		s.sent++
		pause(ctx, 5*time.Millisecond)
	}
	return nil
}

// compareWithModel compares the node with the model.
func (s *siege) compareWithModel(ctx context.Context) error {
	if err := s.AwaitReady(ctx); err != nil {
		return err
	}
	var found struct {
		Attachments []struct {
			Attachment struct{ ContainerID string }
		}
	}
	for deadline := time.Now().Add(settling); ; pause(ctx, 100*time.Millisecond) { // queued DELs may be pending
		if err := s.ask(ctx, &found, "attachments"); err != nil {
			return err
		}
		if len(found.Attachments) == len(s.living) || time.Now().After(deadline) {
			break
		}
	}
	for _, a := range found.Attachments {
		if s.living[a.Attachment.ContainerID] == nil {
			s.reportf("container %s is attached after its DEL", a.Attachment.ContainerID)
		}
	}
	if len(found.Attachments) != len(s.living) {
		s.reportf("%d attachments, want %d", len(found.Attachments), len(s.living))
	}
	for _, p := range s.living {
		if err := s.runtime.Check(ctx, p); err != nil {
			s.reportf("CHECK of %s: %v", p.Name, err)
		}
	}
	var resync struct{ Event uint64 }
	if err := s.ask(ctx, &resync, "resync", "downstream"); err != nil {
		return err
	}
	var log struct {
		Transactions []struct {
			Event uint64
			Ops   []struct{ Verb, Ref, Why string } `json:"operations"`
		}
	}
	if err := s.ask(ctx, &log, "transactions"); err != nil {
		return err
	}
	for _, txn := range log.Transactions {
		for _, op := range txn.Ops {
			if txn.Event == resync.Event {
				s.reportf("model and machine differ: %s %s (%s)", op.Verb, op.Ref, op.Why)
			}
		}
	}
	return nil
}

// ask runs weftctl and decodes its output.
func (s *siege) ask(ctx context.Context, reply any, args ...string) error {
	text, err := s.Weftctl(ctx, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), reply)
}
