package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// plugin is the path of a CNI plugin.
type plugin struct{ path string }

// runLimit bounds one run of a plugin; a sound one needs milliseconds.
const runLimit = 10 * time.Second

// refusal is the error document of the CNI specification.
type refusal struct {
	Code    int    `json:"code"`
	Msg     string `json:"msg"`
	Details string `json:"details"`
}

// Error is the document in one line, without its code.
func (r *refusal) Error() string {
	if r.Details == "" {
		return r.Msg
	}
	return r.Msg + " (" + r.Details + ")"
}

// isFinal reports whether asking again would be answered in the same way: environment or configuration are wrong.
func (r *refusal) isFinal() bool { return r.Code >= 1 && r.Code <= 7 && r.Code != 5 }

// version is what the program says of its build.
func (p plugin) version(ctx context.Context) (string, error) {
	out, err := p.run(ctx, nil, nil, "--version")
	return strings.TrimSpace(string(out)), err
}

// speaks are the versions of CNI that the plugin understands.
func (p plugin) speaks(ctx context.Context) ([]string, error) {
	out, err := p.run(ctx, []string{"CNI_COMMAND=VERSION"}, []byte(`{"cniVersion":"1.0.0"}`))
	if err != nil {
		return nil, err
	}
	versions := versionsIn(out)
	if len(versions) == 0 {
		return nil, fmt.Errorf("%s answers VERSION with %.60q, which names no versions", p.path, out)
	}
	return versions, nil
}

// versionsIn returns the versions in a plugin's answer to VERSION; none if the answer is invalid.
func versionsIn(answer []byte) []string {
	var a struct {
		SupportedVersions []string `json:"supportedVersions"`
	}
	if json.Unmarshal(answer, &a) != nil {
		return nil
	}
	return a.SupportedVersions
}

// status asks whether the plugin would serve an ADD with this configuration.
func (p plugin) status(ctx context.Context, binDir string, conf []byte) error {
	_, err := p.run(ctx, []string{"CNI_COMMAND=STATUS", "CNI_PATH=" + binDir}, conf)
	return err
}

// run starts the plugin with nothing of our environment but what is given.
func (p plugin) run(ctx context.Context, env []string, stdin []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	for {
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(ctx, p.path, args...)
		cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, env...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
		cmd.WaitDelay = time.Second
		err := cmd.Run()
		if err == nil {
			return out.Bytes(), nil
		}
		if !errors.Is(err, syscall.ETXTBSY) {
			return nil, p.explain(err, out.Bytes(), errs.String())
		}
		// A process that was forked while the draft was written still has it open, until it executes.
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// explain finds what the plugin itself said of its failure.
func (p plugin) explain(err error, out []byte, stderr string) error {
	var r refusal
	if json.Unmarshal(out, &r) == nil && r.Code != 0 {
		return &r
	}
	if text, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n"); text != "" {
		return fmt.Errorf("%s: %w: %.200s", p.path, err, text)
	}
	return fmt.Errorf("%s: %w", p.path, err)
}
