package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// siege is a node on which runtimes make random calls while its programs are killed and stopped, and a hostile pod attacks. A model
// says what there has to be in the end.
type siege struct {
	*stage
	set     settings
	random  *rand.Rand // of the seed: what happens; when it does is the machine's
	callers sync.RWMutex

	mu        sync.Mutex
	harm      []string
	breaks    []interval // in which calls may fail and packets may be lost
	calls     map[string]int
	failed    int // calls that were told so, in breaks
	lost      int // packets, in breaks
	sent      int
	breaking  map[string]int
	attacking map[string]int
	living    map[string]*node.Pod // by container: what the model says
}

// interval is a time in which a program was not there, or stood still; the zero end is not known yet.
type interval struct {
	from, to  time.Time
	dataplane bool // it was the dataplane, so that packets may be lost
}

const (
	runtimes = 4 // that make calls at the same time
	// recovery is what is allowed after a break: tables of the kernel and of the dataplane fill again.
	recovery = 3 * time.Second
)

// besiege makes so many calls, and says what happened. The seed is printed first.
func besiege(ctx context.Context, out io.Writer, set settings, calls int, seed uint64) (err error) {
	fmt.Fprintf(out, "siege: %d calls, seed %d\n", calls, seed)
	n, err := node.New(set.programs, node.Options{
		CoolDown: 50 * time.Millisecond, Memifs: memifs, Embedded: true, Networks: networks(),
	})
	if err != nil {
		return err
	}
	s := &siege{
		stage: &stage{Node: n, deadline: time.Minute}, set: set, random: rand.New(rand.NewPCG(seed, 0)),
		calls: map[string]int{}, breaking: map[string]int{}, attacking: map[string]int{}, living: map[string]*node.Pod{},
	}
	defer func() {
		if err != nil && set.verbose {
			log, _ := os.ReadFile(n.AgentLog())
			fmt.Fprintf(out, "the end of the agent's log:\n%s\n", log[max(0, len(log)-20000):])
		}
		err = errors.Join(err, n.Close())
	}()
	if s.runtime, err = n.Runtime(io.Discard); err == nil {
		err = n.StartAgent(ctx)
	}
	if err != nil {
		return err
	}
	places := leftovers.Places{
		Namespaces: map[string]string{"node": ""}, Directories: n.Watched(), Agent: n.Socket(), Dataplane: n.DataplaneSocket(),
	}
	clean, err := leftovers.Steady(ctx, places, settling)
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
	if err = s.run(ctx, calls); err != nil {
		return err
	}
	fmt.Fprintf(out, "siege: %s; calls %v, %d of them failed in breaks; breaks %v; attacks %v; victims sent %d packets, %d lost in breaks\n",
		time.Since(begun).Round(time.Second), s.calls, s.failed, s.breaking, s.attacking, s.sent, s.lost)
	if err = s.judge(ctx); err != nil {
		return err
	}
	for _, p := range s.living {
		if err := errors.Join(s.runtime.Del(ctx, p), p.Remove()); err != nil {
			return err
		}
	}
	left, err := leftovers.Settle(ctx, places, clean, settling)
	if lines := left.Since(clean); err == nil && len(lines) > 0 {
		s.add("left are %s", strings.Join(lines, ", "))
	}
	if err == nil && len(s.harm) > 0 {
		err = fmt.Errorf("siege with seed %d: %s", seed, strings.Join(s.harm, "; "))
	}
	return err
}

func (s *siege) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.harm = append(s.harm, fmt.Sprintf(format, args...))
}

// run makes the calls, breaks the programs, attacks, and has the victims ping each other meanwhile.
func (s *siege) run(ctx context.Context, calls int) error {
	besieged, stop := context.WithCancel(ctx)
	defer stop()
	var disturbers, callers sync.WaitGroup
	var broken, attacked, watched error
	seeds := [3]uint64{s.random.Uint64(), s.random.Uint64(), s.random.Uint64()}
	disturbers.Go(func() { broken = s.breakPrograms(besieged, rand.New(rand.NewPCG(seeds[0], 0))) })
	disturbers.Go(func() { attacked = s.attackOn(besieged, rand.New(rand.NewPCG(seeds[1], 0))) })
	disturbers.Go(func() { watched = s.watch(besieged) })
	for i := range runtimes {
		random := rand.New(rand.NewPCG(seeds[2], uint64(i)))
		callers.Go(func() { s.call(ctx, i, calls/runtimes, random) })
	}
	callers.Wait()
	stop()
	disturbers.Wait()
	return errors.Join(broken, attacked, watched, ctx.Err())
}

// during reports whether a break, of the dataplane or of any program, overlaps with the time from then on.
func (s *siege) during(from time.Time, dataplane bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.breaks, func(b interval) bool {
		return (b.dataplane || !dataplane) && (b.to.IsZero() || from.Before(b.to.Add(recovery)))
	})
}

// breakPrograms kills and stops agent and dataplane until ctx ends. After each time the node recovers.
func (s *siege) breakPrograms(ctx context.Context, random *rand.Rand) error {
	for {
		pause(ctx, time.Duration(1+random.IntN(5))*time.Second)
		if ctx.Err() != nil {
			return nil
		}
		ways := []struct {
			name string
			do   func() error
		}{
			{"kill agent", func() error { return errors.Join(s.KillAgent(), s.BeginAgent()) }},
			{"kill dataplane", s.KillDataplane},
			{"kill both", func() error { return errors.Join(s.KillDataplane(), s.KillAgent(), s.BeginAgent()) }},
			{"stop agent", func() error { return standStill(s.AgentPID(), time.Duration(random.IntN(2000))*time.Millisecond) }},
			{"stop dataplane", func() error { return standStill(s.DataplanePID(), time.Duration(random.IntN(1000))*time.Millisecond) }},
		}
		way := ways[random.IntN(len(ways))]
		s.mu.Lock()
		s.breaking[way.name]++
		s.breaks = append(s.breaks, interval{from: time.Now(), dataplane: !strings.HasSuffix(way.name, "agent")})
		s.mu.Unlock()
		// A break that has begun is finished.
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

// standStill stops a process for a while.
func standStill(pid int, d time.Duration) error {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	<-time.After(d)
	return unix.Kill(pid, unix.SIGCONT)
}

// attackOn has a pod attack in one way after the other. The pod comes and goes, too.
func (s *siege) attackOn(ctx context.Context, random *rand.Rand) error {
	ways := slices.DeleteFunc(attacks(), func(a attack) bool { return a.long || a.judge != nil && a.name == "cni" })
	for ctx.Err() == nil {
		a := ways[random.IntN(len(ways))]
		a.members = 0
		pods, err := s.addAttacker(context.WithoutCancel(ctx), a)
		var attacker *attacker
		if err == nil {
			attacker, err = start(ctx, s.orders)
		}
		if err == nil {
			s.mu.Lock()
			s.attacking[a.name]++
			s.mu.Unlock()
			pause(ctx, time.Duration(random.IntN(3000))*time.Millisecond)
		}
		if err != nil { // in a break the pod does not come, and attackers may end with the dataplane
			pause(ctx, 100*time.Millisecond)
		}
		for _, p := range pods { // while it attacks
			if err := s.del(p); err != nil {
				s.add("DEL of the attacker: %v", err)
			}
		}
		if attacker != nil {
			attacker.end()
		}
		s.Forget(&node.Pod{Name: "attacker"})
	}
	return nil
}

// del removes a pod, as a runtime does until it succeeds at once: a DEL never fails.
func (s *siege) del(p *node.Pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.deadline)
	defer cancel()
	return errors.Join(s.runtime.Del(ctx, p), p.Remove())
}

// watch pings from a victim to the other. A packet may be lost in a break.
func (s *siege) watch(ctx context.Context) error {
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
		case ctx.Err() != nil:
			return nil
		case err == nil:
		case s.during(begun, true):
			s.lost++
		default:
			s.add("a packet of the victims is lost, and the dataplane was not killed or stopped: %v", err)
		}
		s.sent++
		pause(ctx, 5*time.Millisecond)
	}
	return nil
}

// call makes random calls of one runtime.
func (s *siege) call(ctx context.Context, number, calls int, random *rand.Rand) {
	var mine []*node.Pod
	for i := 0; i < calls && ctx.Err() == nil; i++ {
		what := []string{"add", "add", "add", "del", "del", "add again", "del again", "check", "gc", "status", "del without namespace", "bad add"}[random.IntN(12)]
		if what == "add" && len(mine) >= 5 {
			what = "del"
		}
		var p *node.Pod
		at := 0
		if len(mine) > 0 {
			at = random.IntN(len(mine))
			p = mine[at]
		}
		if p == nil && what != "gc" && what != "status" && what != "bad add" {
			what = "add"
		}
		s.mu.Lock()
		s.calls[what]++
		s.mu.Unlock()
		switch what {
		case "add":
			if p = s.addOne(fmt.Sprintf("r%dp%d", number, i), random); p != nil {
				mine = append(mine, p)
			}
		case "del", "del without namespace":
			s.delOne(p, what == "del without namespace")
			mine = slices.Delete(mine, at, at+1)
		case "del again":
			s.delOne(p, false)
			s.delOne(p, false)
			mine = slices.Delete(mine, at, at+1)
		case "bad add":
			s.badAdd(fmt.Sprintf("r%db%d", number, i))
		default:
			s.look(what, p)
		}
	}
}

// kinds of pods, by their annotation.
var kinds = []string{"", "x0/tap/" + wide, "x0/veth/" + wide + ",x1/tap/stub", "x0/veth/stub"}

// addOne adds a pod. One that fails is deleted, as runtimes do.
func (s *siege) addOne(name string, random *rand.Rand) *node.Pod {
	p, err := s.NewPod(name)
	if err != nil {
		s.add("%v", err)
		return nil
	}
	p.Annotations = map[string]string{"contivpp.io/custom-if": kinds[random.IntN(len(kinds))]}
	s.callers.RLock()
	defer s.callers.RUnlock()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), s.deadline)
	defer cancel()
	if _, err = s.runtime.Add(ctx, p); err == nil {
		s.mu.Lock()
		s.living[p.ContainerID] = p
		s.mu.Unlock()
		return p
	}
	s.mayFail("ADD", begun, err)
	if err := s.del(p); err != nil {
		s.add("DEL after a failed ADD: %v", err)
	}
	return nil
}

func (s *siege) mayFail(what string, begun time.Time, err error) {
	if !s.during(begun, false) {
		s.add("%s failed, and no program was killed or stopped: %v", what, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed++
}

// delOne deletes a pod, after its namespace if that is wanted.
func (s *siege) delOne(p *node.Pod, late bool) {
	s.callers.RLock()
	defer s.callers.RUnlock()
	s.mu.Lock()
	delete(s.living, p.ContainerID)
	s.mu.Unlock()
	if late {
		if err := p.Remove(); err != nil {
			s.add("%v", err)
		}
	}
	if err := s.del(p); err != nil {
		s.add("DEL: %v", err)
	}
}

// badAdd is refused, and leaves nothing.
func (s *siege) badAdd(name string) {
	p, err := s.NewPod(name)
	if err != nil {
		s.add("%v", err)
		return
	}
	p.Annotations = map[string]string{"contivpp.io/custom-if": "x0/tap/" + wide + ",x1/tap/nowhere"}
	s.callers.RLock()
	defer s.callers.RUnlock()
	ctx, cancel := context.WithTimeout(context.Background(), s.deadline)
	defer cancel()
	if _, err := s.runtime.Add(ctx, p); err == nil {
		s.add("an ADD with a network that does not exist succeeded")
	}
	if err := s.del(p); err != nil {
		s.add("DEL after a refused ADD: %v", err)
	}
}

// look makes a call that changes nothing that is wanted.
func (s *siege) look(what string, p *node.Pod) {
	ctx, cancel := context.WithTimeout(context.Background(), s.deadline)
	defer cancel()
	if what == "gc" { // a runtime knows all its attachments then
		s.callers.Lock()
		defer s.callers.Unlock()
	} else {
		s.callers.RLock()
		defer s.callers.RUnlock()
	}
	begun := time.Now()
	var err error
	switch what {
	case "add again":
		_, err = s.runtime.Add(ctx, p)
	case "check":
		err = s.runtime.Check(ctx, p)
	case "status":
		err = s.runtime.Status(ctx)
	case "gc":
		s.mu.Lock()
		living := make([]*node.Pod, 0, len(s.living))
		for _, p := range s.living {
			living = append(living, p)
		}
		s.mu.Unlock()
		err = s.runtime.GC(ctx, living...)
	}
	if err != nil {
		s.mayFail(what, begun, err)
	}
}

// judge compares the node with the model.
func (s *siege) judge(ctx context.Context) error {
	if err := s.AwaitReady(ctx); err != nil {
		return err
	}
	var found struct {
		Attachments []struct {
			Attachment struct{ ContainerID string }
		}
	}
	for deadline := time.Now().Add(settling); ; pause(ctx, 100*time.Millisecond) { // deletes that wait for an agent are made
		if err := s.ask(ctx, &found, "attachments"); err != nil {
			return err
		}
		if len(found.Attachments) == len(s.living) || time.Now().After(deadline) {
			break
		}
	}
	for _, a := range found.Attachments {
		if s.living[a.Attachment.ContainerID] == nil {
			s.add("container %s is attached, and should not be", a.Attachment.ContainerID)
		}
	}
	if len(found.Attachments) != len(s.living) {
		s.add("%d attachments, want %d", len(found.Attachments), len(s.living))
	}
	for _, p := range s.living {
		if err := s.runtime.Check(ctx, p); err != nil {
			s.add("CHECK of %s: %v", p.Name, err)
		}
	}
	var resync struct{ Event uint64 }
	if err := s.ask(ctx, &resync, "resync", "downstream"); err != nil {
		return err
	}
	var log struct {
		Transactions []struct {
			Event uint64
			Ops   []struct{ Verb, Ref, Why string }
		}
	}
	if err := s.ask(ctx, &log, "transactions"); err != nil {
		return err
	}
	for _, txn := range log.Transactions {
		for _, op := range txn.Ops {
			if txn.Event == resync.Event {
				s.add("model and machine differ: %s %s (%s)", op.Verb, op.Ref, op.Why)
			}
		}
	}
	return nil
}

// ask asks the operator's client.
func (s *siege) ask(ctx context.Context, reply any, args ...string) error {
	text, err := s.Weftctl(ctx, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), reply)
}
