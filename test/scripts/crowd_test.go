package scripts_test

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// crowdCommand:
//
//	crowd sandbox N     make the sandboxes crowd1 to crowdN
//	crowd add|del N     run ADD or DEL of all of them concurrently; each must succeed
//	crowd begin N       start ADD of all of them without waiting
//	crowd end N         wait for these ADDs; each must succeed
//	crowd race N        run ADD and DEL of all of them concurrently; each must end, and the DELs must succeed
func crowdCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		usage(ts, "crowd sandbox|add|del N")
	}
	s := on(ts)
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	if args[0] == "sandbox" {
		for i := range n {
			ts.Check(s.makeSandbox(member(i), member(i)))
		}
		return
	}
	switch args[0] {
	case "begin":
		for i := range n {
			// a start may take long on a busy machine
			s.calls[member(i)], err = s.begin("add", []string{member(i), "dialTimeout=10s"})
			ts.Check(err)
		}
	case "end":
		var calls []*call
		for i := range n {
			calls = append(calls, s.calls[member(i)])
			delete(s.calls, member(i))
		}
		ts.Check(all(calls))
	case "race":
		ts.Check(s.race(n))
	default:
		calls, err := s.beginAll(args[0], n)
		ts.Check(errors.Join(err, all(calls)))
	}
}

func (s *stage) beginAll(verb string, n int) (calls []*call, err error) {
	for i := range n {
		c, err := s.begin(verb, []string{member(i)})
		if err != nil {
			return calls, err
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// all waits for calls, which must all succeed.
func all(calls []*call) error {
	var errs []error
	for _, c := range calls {
		<-c.done
		if err := errors.Join(c.err, c.wellFormed()); err != nil {
			errs = append(errs, fmt.Errorf("%s of %s: %w: %s", c.verb, c.sandbox.name, err, c.out.String()))
		}
	}
	return errors.Join(errs...)
}

func (s *stage) race(n int) error {
	adds, err := s.beginAll("add", n)
	if err != nil {
		return err
	}
	dels, err := s.beginAll("del", n)
	if err != nil {
		return err
	}
	err = all(dels)
	for _, c := range adds {
		<-c.done
		err = errors.Join(err, c.wellFormed())
	}
	return err
}

func member(i int) string { return fmt.Sprintf("crowd%d", i+1) }
