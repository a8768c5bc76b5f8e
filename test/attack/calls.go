package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weftnet/weft/test/node"
)

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
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.deadline)
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
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.deadline)
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
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.deadline)
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
