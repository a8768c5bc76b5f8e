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

	"k8s.io/apimachinery/pkg/util/wait"
)

// plugin is the path of a CNI plugin.
type plugin struct{ path string }

// runLimit bounds one run of a plugin, which usually takes milliseconds.
const runLimit = 10 * time.Second

// cniError is the error document of the CNI specification.
type cniError struct {
	Code    int    `json:"code"`
	Msg     string `json:"msg"`
	Details string `json:"details"`
}

// Error returns the document as one line without its code.
func (e *cniError) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + " (" + e.Details + ")"
}

// isPermanent reports whether a retry fails too, because the environment or the configuration is invalid.
func (e *cniError) isPermanent() bool { return e.Code >= 1 && e.Code <= 7 && e.Code != 5 }

// build returns the output of --version.
func (p plugin) build(ctx context.Context) (string, error) {
	out, err := p.run(ctx, nil, nil, "--version")
	return strings.TrimSpace(string(out)), err
}

// versions returns the CNI versions that the plugin supports.
func (p plugin) versions(ctx context.Context) ([]string, error) {
	out, err := p.run(ctx, []string{"CNI_COMMAND=VERSION"}, []byte(`{"cniVersion":"1.0.0"}`))
	if err != nil {
		return nil, err
	}
	versions := versionsIn(out)
	if len(versions) == 0 {
		return nil, fmt.Errorf("%s: the answer %.60q to VERSION has no versions", p.path, out)
	}
	return versions, nil
}

// versionsIn returns the versions of a plugin's answer to VERSION, none if the answer is invalid.
func versionsIn(answer []byte) []string {
	var a struct {
		SupportedVersions []string `json:"supportedVersions"`
	}
	if json.Unmarshal(answer, &a) != nil {
		return nil
	}
	return a.SupportedVersions
}

// status calls STATUS. It returns nil if the plugin can serve an ADD with the configuration.
func (p plugin) status(ctx context.Context, binDir string, conf []byte) error {
	_, err := p.run(ctx, []string{"CNI_COMMAND=STATUS", "CNI_PATH=" + binDir}, conf)
	return err
}

// run runs the plugin with PATH and env as its only environment.
func (p plugin) run(ctx context.Context, env []string, stdin []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	var out, errs bytes.Buffer
	var err error
	// A process that was forked while the draft was written has the draft open until its exec.
	_ = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		cmd := exec.CommandContext(ctx, p.path, args...)
		cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, env...)
		cmd.Stdin = bytes.NewReader(stdin)
		cmd.Stdout = &out
		cmd.Stderr = &errs
		cmd.WaitDelay = time.Second
		err = cmd.Run()
		return !errors.Is(err, syscall.ETXTBSY), nil
	})
	if err != nil {
		return nil, p.explain(err, out.Bytes(), errs.String())
	}
	return out.Bytes(), nil
}

// explain returns the error document of the plugin, or else the first line of its standard error.
func (p plugin) explain(err error, out []byte, stderr string) error {
	var e cniError
	if json.Unmarshal(out, &e) == nil && e.Code != 0 {
		return &e
	}
	if text, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n"); text != "" {
		return fmt.Errorf("%s: %w: %.200s", p.path, err, text)
	}
	return fmt.Errorf("%s: %w", p.path, err)
}
