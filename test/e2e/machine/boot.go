package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// variable is the environment variable with the birth of a machine's first process.
const variable = "WEFT_E2E_MACHINE"

// ready is the line of a first process when the machine is set up.
const ready = "ready"

// longAgo is a deadline in the past, which ends a read.
var longAgo = time.Unix(1, 0)

// birth has the parameters of a machine's first process.
type birth struct {
	Name   string
	Disk   string
	Pods   string // directory of the pods' output
	Shared []string
}

// boot starts the machine's first process and waits until mounts and settings are set up.
func (m *Machine) boot(ctx context.Context) (*exec.Cmd, error) {
	parameters, err := json.Marshal(birth{
		Name:   m.Name,
		Disk:   m.disk,
		Pods:   filepath.Join(m.lab.config.Logs, "pods-"+m.Name),
		Shared: m.lab.config.Shared,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the parameters: %w", err)
	}
	log, err := os.OpenFile(m.log("init"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	defer log.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer reader.Close()
	cmd := exec.Command("/proc/self/exe")
	// not os.Setenv: machines boot concurrently
	cmd.Env = append(slices.Clone(m.lab.config.Env), variable+"="+string(parameters))
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{writer}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true,
	}
	err = cmd.Start()
	_ = writer.Close() // the child has its own
	if err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = reader.SetReadDeadline(longAgo) })
	defer stop()
	if word, err := io.ReadAll(reader); err != nil || string(word) != ready {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, errors.Join(errors.New("the first process is not ready"), ctx.Err())
	}
	return cmd, nil
}

// lastWords returns the output of a first process that failed.
func (m *Machine) lastWords() error {
	words, err := os.ReadFile(m.log("init"))
	if err != nil {
		return err
	}
	return errors.New(string(words))
}

// IsInit reports whether this process was started as a machine's first; it must then call Init and exit with the
// result.
func IsInit() bool { return os.Getenv(variable) != "" }

// Init is the main function of a machine's first process: it sets the machine up, reports that, and reaps orphans until
// it is killed.
func Init(complaints io.Writer) (code int) {
	var b birth
	if err := json.Unmarshal([]byte(os.Getenv(variable)), &b); err != nil {
		fmt.Fprintln(complaints, "read the parameters:", err)
		return 1
	}
	children := make(chan os.Signal, 16)
	signal.Notify(children, syscall.SIGCHLD)
	if err := b.setUp(); err != nil {
		fmt.Fprintln(complaints, err)
		return 1
	}
	pipe := os.NewFile(3, "pipe")
	if _, err := pipe.WriteString(ready); err != nil {
		fmt.Fprintln(complaints, "report that the machine is ready:", err)
		return 1
	}
	_ = pipe.Close()
	for range children {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}
	return 0
}

// setUp runs in the machine's new namespaces.
func (b birth) setUp() error {
	if err := b.mountRoot(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(b.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	return writeSettings()
}

func (b birth) root() string { return filepath.Join(b.Disk, "root") }
