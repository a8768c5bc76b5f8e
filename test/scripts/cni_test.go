package scripts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cniCommand runs weft-cni as a runtime does. The script's stdout is the output of weft-cni.
//
//	cni add|del|check NAME [KEY=VALUE...]
//	cni status [KEY=VALUE...]
//	cni gc NAME... [KEY=VALUE...]         only the named sandboxes are valid
//	cni gc --unlisted                     without a list of valid attachments
//	cni begin add|del NAME [KEY=VALUE...] start a call without waiting
//	cni end NAME                          wait for that call
//	cni end-anyhow NAME                   the same, with any result
//	cni kill NAME                         kill it, as a runtime does after a timeout, and wait for its end
//
// A KEY that begins with CNI_ is an environment variable, any other a member of the configuration. CHECK and DEL get
// the result of the ADD as prevResult. For every verb stdout must be one JSON document or, after a success without a
// result, empty; the message of an error is one line.
func cniCommand(ts *testscript.TestScript, neg bool, args []string) {
	s := on(ts)
	var c *call
	var err error
	switch {
	case len(args) == 2 && args[0] == "kill" && s.calls[args[1]] != nil:
		c = s.calls[args[1]]
		delete(s.calls, args[1])
		ts.Check(c.process.Kill())
		<-c.done
		return
	case len(args) == 2 && strings.HasPrefix(args[0], "end"):
		if c = s.calls[args[1]]; c == nil {
			ts.Fatalf("sandbox %s has no running call", args[1])
		}
		delete(s.calls, args[1])
	case len(args) > 2 && args[0] == "begin":
		c, err = s.begin(args[1], args[2:])
		ts.Check(err)
		s.calls[args[2]] = c
		return
	case len(args) > 0:
		c, err = s.begin(args[0], args[1:])
		ts.Check(err)
	default:
		usage(ts, "cni add|del|check|status|gc|begin|end|kill ...")
	}
	<-c.done
	_, _ = ts.Stdout().Write(c.out.Bytes())
	_, _ = ts.Stderr().Write(c.stderr.Bytes())
	ts.Check(c.wellFormed())
	if args[0] != "end-anyhow" {
		check(ts, neg, c.err)
	}
}

// call is a run of weft-cni.
type call struct {
	verb        string
	sandbox     *sandbox // nil for STATUS and GC
	process     *os.Process
	out, stderr bytes.Buffer
	err         error
	done        chan struct{} // closed when it ends
}

// begin starts a run. names are names of sandboxes, followed by settings.
func (s *stage) begin(verb string, args []string) (*call, error) {
	var names []string
	conf := s.conf()
	env := map[string]string{"CNI_COMMAND": strings.ToUpper(verb), "CNI_PATH": s.programs()}
	c := &call{verb: verb, done: make(chan struct{})}
	for _, a := range args {
		if key, _, isSetting := strings.Cut(a, "="); !isSetting {
			names = append(names, key)
		}
	}
	if err := s.fill(c, conf, env, names); err != nil {
		return nil, err
	}
	for _, a := range args {
		key, value, isSetting := strings.Cut(a, "=")
		switch {
		case isSetting && strings.HasPrefix(key, "CNI_"):
			env[key] = value
		case isSetting && value == "":
			delete(conf, key)
		case isSetting:
			conf[key] = value
		}
	}
	return c, s.run(c, conf, env)
}

// conf returns the plugin's configuration, as libcni makes it from a list.
func (s *stage) conf() map[string]any {
	return map[string]any{
		"cniVersion": "1.1.0", "name": "weft", "type": "weft-cni",
		"socket": s.node.Socket(), "deleteQueue": filepath.Join(s.node.State(), "delete-queue"),
		"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{}},
	}
}

// fill adds the environment and the result that the verb needs.
func (s *stage) fill(c *call, conf map[string]any, env map[string]string, names []string) error {
	switch {
	case c.verb == "status" && len(names) == 0:
		return nil
	case c.verb == "gc":
		return s.fillValid(conf, names)
	case len(names) != 1:
		return fmt.Errorf("cni %s needs the name of one sandbox", c.verb)
	}
	b := s.sandboxes[names[0]]
	if b == nil {
		return fmt.Errorf("unknown sandbox %s", names[0])
	}
	c.sandbox = b
	env["CNI_CONTAINERID"], env["CNI_NETNS"], env["CNI_IFNAME"], env["CNI_ARGS"] = b.id, b.path, "eth0", b.environment()
	if result := b.result(); c.verb != "add" && result != nil {
		conf["prevResult"] = json.RawMessage(result)
	}
	return nil
}

func (s *stage) fillValid(conf map[string]any, names []string) error {
	if len(names) == 1 && names[0] == "--unlisted" {
		return nil
	}
	valid := []map[string]string{}
	for _, name := range names {
		b := s.sandboxes[name]
		if b == nil {
			return fmt.Errorf("unknown sandbox %s", name)
		}
		valid = append(valid, map[string]string{"containerID": b.id, "ifname": "eth0"})
	}
	conf["cni.dev/valid-attachments"] = valid
	return nil
}

func (s *stage) run(c *call, conf map[string]any, env map[string]string) error {
	stdin, err := json.Marshal(conf)
	if err != nil {
		return err
	}
	cmd := exec.Command(s.node.Program("weft-cni"))
	cmd.Env = os.Environ()
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Stdout = &c.out
	cmd.Stderr = &c.stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	c.process = cmd.Process
	go func() {
		defer close(c.done)
		if c.err = cmd.Wait(); c.err == nil && c.verb == "add" {
			c.sandbox.remember(c.out.Bytes())
		}
	}()
	return nil
}

// failure is the error that weft-cni prints for the runtime.
type failure struct {
	Code uint
	Msg  string
}

// wellFormed checks the output of weft-cni against the rules of the specification.
func (c *call) wellFormed() error {
	if c.err == nil && c.verb != "add" {
		if c.out.Len() > 0 {
			return fmt.Errorf("%s succeeded and printed %q", c.verb, c.out.String())
		}
		return nil
	}
	f, err := c.failure()
	switch {
	case err != nil:
		return fmt.Errorf("stdout is not one JSON document: %w", err)
	case c.err == nil:
		return nil
	case f.Code == 0 || f.Msg == "":
		return errors.New("the error has no code or no message")
	case strings.ContainsAny(f.Msg, "\n\r"):
		return errors.New("the message has more than one line")
	case c.verb == "del" && strings.Contains(strings.ToLower(c.out.String()), "not found"):
		return errors.New("runtimes interpret this error of a DEL as success")
	}
	return nil
}

func (c *call) failure() (f failure, err error) {
	err = json.Unmarshal(c.out.Bytes(), &f)
	return f, err
}

// endCalls waits for calls that the script began and did not end.
func (s *stage) endCalls() error {
	for _, c := range s.calls {
		<-c.done
	}
	return nil
}
