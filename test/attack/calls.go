package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weftnet/weft/test/node"
)

// runCalls makes random calls as one runtime.
func (s *siege) runCalls(ctx context.Context, number, calls int, random *rand.Rand) {
	var mine []*node.Pod
	for i := 0; i < calls && ctx.Err() == nil; i++ {
		what := []string{
			"add", "add", "add", "del", "del", "add again", "del again", "check", "gc", "status",
			"del without namespace", "bad add",
		}[random.IntN(12)]
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
			s.callAgain(what, p)
		}
	}
}

// kinds are values of the pods' annotation.
var kinds = []string{"", "x0/tap/" + wide, "x0/veth/" + wide + ",x1/tap/stub", "x0/veth/stub"}

// addOne adds a pod. It deletes a pod with a failed ADD, as runtimes do.
func (s *siege) addOne(name string, random *rand.Rand) *node.Pod {
	p, err := s.NewPod(name)
	if err != nil {
		s.reportf("%v", err)
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
		s.reportf("DEL after a failed ADD: %v", err)
	}
	return nil
}

func (s *siege) mayFail(what string, begun time.Time, err error) {
	if !s.during(begun, false) {
		s.reportf("%s failed, although no program was killed or suspended: %v", what, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed++
}

// delOne deletes a pod; late: after its namespace.
func (s *siege) delOne(p *node.Pod, late bool) {
	s.callers.RLock()
	defer s.callers.RUnlock()
	s.mu.Lock()
	delete(s.living, p.ContainerID)
	s.mu.Unlock()
	if late {
		if err := p.Remove(); err != nil {
			s.reportf("%v", err)
		}
	}
	if err := s.del(p); err != nil {
		s.reportf("DEL: %v", err)
	}
}

// badAdd makes an ADD that has to fail, and its DEL.
func (s *siege) badAdd(name string) {
	p, err := s.NewPod(name)
	if err != nil {
		s.reportf("%v", err)
		return
	}
	p.Annotations = map[string]string{"contivpp.io/custom-if": "x0/tap/" + wide + ",x1/tap/nowhere"}
	s.callers.RLock()
	defer s.callers.RUnlock()
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.deadline)
	defer cancel()
	if _, err := s.runtime.Add(ctx, p); err == nil {
		s.reportf("an ADD with a network that does not exist succeeded")
	}
	if err := s.del(p); err != nil {
		s.reportf("DEL after a refused ADD: %v", err)
	}
}

// callAgain makes a call that does not change the wanted state.
func (s *siege) callAgain(what string, p *node.Pod) {
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.deadline)
	defer cancel()
	if what == "gc" { // excludes ADD and DEL, so that the list of attachments is complete
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
