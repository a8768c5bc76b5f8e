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
//	crowd add|del N     run ADD or DEL of all of them at once; each must succeed
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
	var errs []error
	var calls []*call
	for i := range n {
		c, err := s.begin(args[0], []string{member(i)})
		ts.Check(err)
		calls = append(calls, c)
	}
	for i, c := range calls {
		<-c.done
		if err := errors.Join(c.err, c.wellFormed()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %s", member(i), err, c.out.String()))
		}
	}
	ts.Check(errors.Join(errs...))
}

func member(i int) string { return fmt.Sprintf("crowd%d", i+1) }
