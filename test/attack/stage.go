package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

const (
	// settling is how long resources of the attacker may take to go away.
	settling = time.Minute
	// memifs is the number of devices of the node.
	memifs = 8
	// wide is a layer 2 network of the attacker, the victims and other pods.
	wide = "wide"
)

// stage is a node with two victims: pods whose connection is measured.
type stage struct {
	*node.Node
	runtime  *node.Runtime
	settings settings
	victims  [2]*node.Pod
	addrs    [2]netip.Prefix // of their main interfaces
	others   int             // number of pods that were added and deleted
	attacker *attacker
	target   target
}

// result is the outcome of an attack.
type result struct {
	before, during, after  ping.Loss
	slowestAdd, slowestDel time.Duration
	violations             []string
}

func (r *result) reportf(format string, args ...any) {
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

// onNode makes an attack on a new node. An error means that the attack could not be made.
func (a attack) onNode(ctx context.Context, s settings) (r result, err error) {
	st, err := newStage(ctx, s)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err = errors.Join(st.placeDataplane(), st.addVictims(ctx)); err != nil {
		return r, err
	}
	clean, err := leftovers.Steady(ctx, st.places(), settling)
	if err != nil {
		return r, err
	}
	if r, err = st.attack(ctx, a); err != nil || len(r.violations) > 0 {
		return r, err
	}
	left, err := leftovers.Settle(ctx, st.places(), clean, settling)
	if lines := left.Since(clean); err == nil && len(lines) > 0 {
		r.reportf("left over: %s", strings.Join(lines, ", "))
	}
	return r, err
}

// newStage makes a node with a running agent, without victims.
func newStage(ctx context.Context, s settings) (*stage, error) {
	n, err := node.New(s.programs, node.Options{
		CoolDown: 50 * time.Millisecond, Memifs: memifs, Embedded: true,
		Networks: []node.Network{{Name: wide, Type: "L2", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.6.0.0/16")}}},
	})
	if err != nil {
		return nil, err
	}
	st := &stage{Node: n, settings: s}
	if st.runtime, err = n.Runtime(io.Discard); err == nil {
		err = n.StartAgent(ctx)
	}
	if err != nil {
		if s.verbose {
			fmt.Fprint(os.Stderr, n.LogTails(200))
		}
		return nil, errors.Join(err, n.Close())
	}
	return st, nil
}

// places lists all places where a pod could leave something.
func (s *stage) places() leftovers.Places {
	return leftovers.Places{
		Namespaces:  map[string]string{"node": ""},
		Directories: s.Watched(),
		Agent:       s.Socket(),
		Dataplane:   s.DataplaneSocket(),
	}
}

// addVictims adds the victims; each has an interface on the attacker's layer 2 network.
func (s *stage) addVictims(ctx context.Context) error {
	for i := range s.victims {
		p, err := s.NewPod(fmt.Sprint("victim", i))
		if err != nil {
			return err
		}
		p.Annotations = map[string]string{"contivpp.io/custom-if": "x0/tap/" + wide}
		result, err := s.runtime.Add(ctx, p)
		if err != nil {
			return err
		}
		links, err := node.Links(result)
		if err != nil {
			return err
		}
		s.victims[i] = p
		s.addrs[i] = links[0].Addresses[0]
	}
	return nil
}

// addAttacker adds the attacker's pods, of which the first attacks. The grant of a memif has one queue and rings of
// 1024. Pods with a failed ADD are returned, too.
func (s *stage) addAttacker(ctx context.Context, a attack) (pods []*node.Pod, err error) {
	p, err := s.NewPod("attacker")
	if err != nil {
		return nil, err
	}
	pods = append(pods, p)
	p.Annotations = map[string]string{"contivpp.io/custom-if": a.interfaces}
	s.target = target{Attack: a.name, Netns: p.Netns, Neighbour: s.addrs[0]}
	if strings.Contains(a.interfaces, "/memif") {
		containers, err := s.Admit(ctx, p, kubelettest.Container{Name: "vnf", Limit: 1})
		if err != nil {
			return pods, err
		}
		s.target.Socket = filepath.Join(containers[0].Mounts[0].GetHostPath(), "memif.sock")
		s.target.Secret = containers[0].Envs[memif.SecretVariable]
	}
	result, err := s.runtime.Add(ctx, p)
	if err != nil {
		return pods, err
	}
	links, err := node.Links(result)
	if err != nil {
		return pods, err
	}
	if len(links) > 1 && len(links[1].Addresses) > 0 {
		s.target.Address = links[1].Addresses[0].Addr()
	}
	for i := range a.members {
		more, err := s.NewPod(fmt.Sprint("member", i))
		if err != nil {
			return pods, err
		}
		pods = append(pods, more)
		more.Annotations = map[string]string{"contivpp.io/custom-if": crowd}
		if _, err := s.runtime.Add(ctx, more); err != nil {
			return pods, err
		}
	}
	return pods, nil
}

// crowd is the annotation of a pod with many interfaces on the layer 2 network.
var crowd = func() string {
	var all []string
	for i := range 14 {
		all = append(all, fmt.Sprintf("x%d/tap/%s", i, wide))
	}
	return strings.Join(all, ",")
}()

// attack measures the victims before, during and after an attack, and the duration of ADDs and DELs during it.
func (s *stage) attack(ctx context.Context, a attack) (r result, err error) {
	pods, err := s.addAttacker(ctx, a)
	if err != nil {
		return r, err
	}
	quiet := result{}
	if r.before, err = s.streamAmidCalls(ctx, s.settings.quiet, &quiet); err != nil {
		return r, err
	}
	if len(quiet.violations) > 0 {
		return r, fmt.Errorf("before the attack: %s", strings.Join(quiet.violations, "; "))
	}
	agent := s.AgentPID()
	dataplane := s.DataplanePID()
	if s.attacker, err = start(ctx, s.target); err != nil {
		return r, err
	}
	defer s.attacker.end()
	if a.restart {
		if err = errors.Join(s.KillDataplane(), s.AwaitReady(ctx), s.placeDataplane()); err != nil {
			return r, err
		}
		dataplane = s.DataplanePID()
	}
	if r.during, err = s.streamAmidCalls(ctx, s.settings.attack, &r); err != nil {
		return r, err
	}
	s.verdict(ctx, a, &r)
	if now := s.DataplanePID(); now != dataplane {
		r.reportf("the dataplane ended")
	}
	if now := s.AgentPID(); now != agent {
		r.reportf("the agent ended")
	}
	for i, p := range pods { // the attacker first; it is still attacking
		if problem := s.timed(ctx, &r.slowestDel, func(ctx context.Context) error {
			return s.runtime.Del(ctx, p)
		}); problem != nil {
			r.reportf("DEL of the attacker's pod %d: %v", i, problem)
		}
		s.Forget(p)
	}
	if problem := s.addAndDelete(ctx, &r); problem != nil {
		r.reportf("after the DEL of the attacker's pod: %v", problem)
	}
	s.attacker.end()
	if len(r.violations) > 0 {
		return r, nil
	}
	if r.after, err = s.stream(ctx, s.settings.quiet); err == nil && r.after.Answered < r.after.Sent {
		r.reportf("after the attack the victims lose %d of %d packets", r.after.Sent-r.after.Answered, r.after.Sent)
	}
	return r, errors.Join(err, s.removeAll(pods))
}

// verdict reports the violations that are visible during the attack.
func (s *stage) verdict(ctx context.Context, a attack, r *result) {
	if most := max(10*r.before.Median, 20*time.Millisecond); s.settings.long && r.during.Median > most {
		r.reportf("the median of the victims' round-trip times is above %s", most)
	}
	if lost := r.during.Sent - r.during.Answered; lost*100 > r.during.Sent {
		r.reportf("%d of %d packets of the victims are lost", lost, r.during.Sent)
	}
	if s.settings.verbose {
		fmt.Fprintf(os.Stderr, "%s: output of the attacker: %q\n", a.name, s.attacker.lines())
	}
	if a.verify == nil {
		return
	}
	if problem := a.verify(ctx, s); problem != nil {
		r.reportf("%v", problem)
	}
}

func (s *stage) removeAll(pods []*node.Pod) (err error) {
	for _, p := range pods {
		err = errors.Join(err, p.Remove())
	}
	return err
}

// streamAmidCalls measures the victims while other pods are added and deleted, before an attack as well as during it,
// so that the attack is the only difference.
func (s *stage) streamAmidCalls(ctx context.Context, duration time.Duration, r *result) (ping.Loss, error) {
	worked := make(chan error, 1)
	during, stop := context.WithCancel(ctx)
	go func() { worked <- s.addAndDeletePods(during, r) }()
	loss, err := s.stream(ctx, duration)
	stop()
	if problem := <-worked; problem != nil {
		r.reportf("%v", problem)
	}
	return loss, err
}

// placeDataplane pins the dataplane's workers to the last processor if the settings say so.
func (s *stage) placeDataplane() error {
	if !s.settings.dedicated {
		return nil
	}
	return giveLastProcessor(s.DataplanePID())
}

// stream pings from one victim to the other every millisecond.
func (s *stage) stream(ctx context.Context, duration time.Duration) (ping.Loss, error) {
	to := s.addrs[1].Addr()
	p, err := ping.Open(s.victims[0].Netns, to)
	if err != nil {
		return ping.Loss{}, err
	}
	defer p.Close()
	during, stop := context.WithTimeout(ctx, duration)
	defer stop()
	return p.Stream(during, to, time.Millisecond)
}

// addAndDeletePods adds and deletes pods until ctx ends.
func (s *stage) addAndDeletePods(ctx context.Context, r *result) error {
	for ctx.Err() == nil {
		if err := s.addAndDelete(context.WithoutCancel(ctx), r); err != nil {
			return err
		}
	}
	return nil
}

// addAndDelete adds another pod and deletes it.
func (s *stage) addAndDelete(ctx context.Context, r *result) error {
	s.others++
	p, err := s.NewPod(fmt.Sprint("other", s.others))
	if err != nil {
		return err
	}
	err = s.timed(ctx, &r.slowestAdd, func(ctx context.Context) error { _, err := s.runtime.Add(ctx, p); return err })
	if err != nil {
		return fmt.Errorf("ADD of another pod: %w", err)
	}
	if err := s.timed(ctx, &r.slowestDel, func(ctx context.Context) error {
		return s.runtime.Del(ctx, p)
	}); err != nil {
		return fmt.Errorf("DEL of another pod: %w", err)
	}
	return p.Remove()
}

// timed runs an operation and returns an error if it takes longer than the deadline.
func (s *stage) timed(ctx context.Context, slowest *time.Duration, operation func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*s.settings.deadline) // longer than the deadline, to measure the duration
	defer cancel()
	begun := time.Now()
	err := operation(ctx)
	took := time.Since(begun)
	*slowest = max(*slowest, took)
	if err == nil && took > s.settings.deadline {
		err = fmt.Errorf("took %s, more than the deadline", took)
	}
	return err
}

// threads returns the number of the dataplane's threads.
func (s *stage) threads() (n int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.DataplanePID()))
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(status, []byte("\nThreads:"))
	_, err = fmt.Sscan(string(rest), &n)
	return n, err
}
