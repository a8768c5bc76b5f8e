package scripts_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// everyCommand: every NAME RETVAL adds the sandbox and deletes it, to learn the requests of an ADD. Then the dataplane
// refuses each of them, one at a time: the ADD must fail with code 105 and print one line with the pod and the message;
// nothing must be left over, and an ADD without a refusal must succeed, and its DEL.
func everyCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		usage(ts, "every NAME RETVAL")
	}
	s := on(ts)
	name := args[0]
	p := s.proxied(ts)
	messages, err := s.messagesOf(p, name, "add")
	ts.Check(err)
	snapshotCommand(ts, false, []string{"every"})
	nth := map[string]int{}
	for _, m := range messages {
		nth[m]++
		p.RefuseNth(m, int32(times(ts, args[1])), nth[m])
		line, err := s.refused(name)
		if err != nil {
			ts.Fatalf("refused %s %d: %v", m, nth[m], err)
		}
		if p.Allow(m) == 0 {
			ts.Fatalf("another ADD sent no %s %d", m, nth[m])
		}
		if !strings.Contains(line, "pod shop/"+s.sandboxes[name].pod) || !strings.Contains(line, m) {
			ts.Fatalf("refused %s %d: %q lacks the pod or the message", m, nth[m], line)
		}
		_, _ = fmt.Fprintf(ts.Stdout(), "%s %d: %s\n", m, nth[m], line)
		if err := s.compare("every"); err != nil {
			ts.Fatalf("refused %s %d: %v", m, nth[m], err)
		}
		ts.Check(errors.Join(s.succeed("add", name), s.succeed("del", name), s.compare("every")))
	}
}

// succeed runs weft-cni for a sandbox.
func (s *stage) succeed(verb, name string) error {
	c, err := s.begin(verb, []string{name})
	if err != nil {
		return err
	}
	<-c.done
	if err := errors.Join(c.err, c.wellFormed()); err != nil {
		return fmt.Errorf("%s of %s: %w: %s", verb, name, err, c.out.String())
	}
	return nil
}

// refused runs an ADD that must fail because the dataplane refuses, and returns the error's message.
func (s *stage) refused(name string) (line string, err error) {
	c, err := s.begin("add", []string{name})
	if err != nil {
		return "", err
	}
	<-c.done
	f, _ := c.failure()
	switch err := c.wellFormed(); {
	case c.err == nil:
		return "", errors.New("the ADD succeeded")
	case f.Code != 105:
		return "", fmt.Errorf("code %d, not 105: %s", f.Code, f.Msg)
	default:
		return f.Msg, err
	}
}
