package scripts_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weftnet/weft/test/refuse"
)

// crashCommand: crash NAME add|del kills the agent during the verb and starts it again, once before and once after the
// dataplane executes each message of the verb. Each time the verb must end, a DEL must succeed, and nothing must be
// left over.
func crashCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		usage(ts, "crash NAME add|del")
	}
	s := on(ts)
	name := args[0]
	verb := args[1]
	messages, err := s.messagesOf(s.proxied(ts), name, verb)
	ts.Check(err)
	messages = slices.Compact(messages)
	snapshotCommand(ts, false, []string{"crash"})
	for _, m := range messages {
		for fate, spoil := range map[string]func(string, int){"hung": s.proxy.Hang, "done": s.proxy.Lose} {
			if err := s.crash(crash{name, verb, m, spoil}); err != nil {
				ts.Fatalf("%s %s, agent killed with %s %s: %v", verb, name, m, fate, err)
			}
			_, _ = fmt.Fprintf(ts.Stdout(), "%s %s\n", m, fate)
		}
	}
}

// messagesOf returns the messages that a verb sends and that can be answered only once: one entry per request, sorted.
func (s *stage) messagesOf(p *refuse.Proxy, name, verb string) ([]string, error) {
	p.Asked()
	err := s.succeed("add", name)
	messages := p.Asked()
	err = errors.Join(err, s.succeed("del", name))
	if verb == "del" {
		messages = p.Asked()
	}
	messages = slices.DeleteFunc(messages, func(m string) bool {
		return strings.HasSuffix(m, "_dump") || m == "control_ping"
	})
	if err == nil && len(messages) == 0 {
		err = fmt.Errorf("the %s sends no request to the dataplane", verb)
	}
	slices.Sort(messages) // messages of one level are unordered
	return messages, err
}

// crash is the point at which the agent is killed.
type crash struct {
	name, verb, message string
	spoil               func(message string, times int)
}

func (s *stage) crash(c crash) error {
	if c.verb == "del" {
		if err := s.succeed("add", c.name); err != nil {
			return err
		}
	}
	c.spoil(c.message, 1)
	under, err := s.begin(c.verb, []string{c.name})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := errors.Join(s.proxy.Met(ctx, c.message), s.node.KillAgent()); err != nil {
		return err
	}
	s.proxy.Allow(c.message)
	err = s.startAgent(ctx)
	<-under.done
	if err := errors.Join(err, under.wellFormed()); err != nil {
		return err
	}
	if c.verb == "add" && under.err == nil {
		err = s.succeed("check", c.name)
	}
	return errors.Join(err, s.succeed("del", c.name), s.compare("crash"))
}
