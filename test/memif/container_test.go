package memif_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
)

// program is a running program of a container.
type program struct {
	*exec.Cmd
	out   *output
	ended chan struct{}
}

// output collects a program's output.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// inContainer is the path of the program in a container.
const inContainer = "/run/program"

// start runs a program as root in a container of the pod.
func (l *lab) start(p *node.Pod, c kubelettest.Container, command ...string) *program {
	l.Helper()
	return l.startAs(nil, p, c, command...)
}

// startAs runs a program of Weft or of the machine as a user in a container of the pod: with the environment of
// Allocate and nothing else, in the pod's network namespace, and in a file system where only the container's mounts
// belong to Weft.
func (l *lab) startAs(user *syscall.Credential, p *node.Pod, c kubelettest.Container, command ...string) *program {
	l.Helper()
	r := &program{Cmd: exec.Command(inContainer, command[1:]...), out: &output{}, ended: make(chan struct{})}
	r.Env = []string{}
	r.Dir = "/"
	r.Stdout = r.out
	r.Stderr = r.out
	r.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	for key, value := range c.Envs {
		r.Env = append(r.Env, key+"="+value)
	}
	path := command[0]
	if !filepath.IsAbs(path) {
		path = l.Program(path)
	}
	l.try(netns.Do(p.Netns, func() error { return errors.Join(l.enter(c, path), r.Start()) }))
	go func() { defer close(r.ended); _ = r.Wait() }()
	l.Cleanup(r.end)
	return r
}

// enter moves the calling thread, and processes that it starts, into the file system of a container.
func (l *lab) enter(c kubelettest.Container, program string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("run", "/run", "tmpfs", 0, "mode=0755"),
		unix.Mount("shm", "/dev/shm", "tmpfs", 0, "mode=1777"))
	for _, m := range c.Mounts {
		err = errors.Join(err, os.MkdirAll(m.GetContainerPath(), 0o755),
			bind(m.GetHostPath(), m.GetContainerPath(), m.GetReadOnly()))
	}
	err = errors.Join(err, os.WriteFile(inContainer, nil, 0o755), bind(program, inContainer, true))
	return errors.Join(err, unix.Mount("hidden", l.Dir, "tmpfs", 0, "mode=0755"))
}

func bind(from, to string, readOnly bool) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil || !readOnly {
		return err
	}
	var has unix.Statfs_t
	if err := unix.Statfs(to, &has); err != nil {
		return err
	}
	kept := uintptr(has.Flags) &
		(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
	return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|kept, "")
}

// end kills the program and waits for it.
func (p *program) end() {
	_ = p.Process.Kill()
	<-p.ended
}

// awaitOutput waits until the program's output contains text.
func (l *lab) awaitOutput(p *program, text string) { l.Helper(); l.awaitOutputTimes(p, 1, text) }

// awaitOutputTimes waits until the program's output contains text the given number of times.
func (l *lab) awaitOutputTimes(p *program, times int, text string) {
	l.Helper()
	l.eventually(func() error {
		if n := strings.Count(p.out.String(), text); n < times {
			return errors.New("the output lacks " + text + ": " + p.out.String())
		}
		return nil
	})
}

// with returns a container with another value of an environment variable.
func with(c kubelettest.Container, key, value string) kubelettest.Container {
	envs := map[string]string{key: value}
	for k, v := range c.Envs {
		if k != key {
			envs[k] = v
		}
	}
	c.Envs = envs
	return c
}

// directory returns the directory of a container's allocation on the node.
func directory(c kubelettest.Container) string { return c.Mounts[0].GetHostPath() }

// inDirectory returns the path of a file in the directory of a container's allocation on the node.
func inDirectory(c kubelettest.Container, name string) string {
	return filepath.Join(directory(c), name)
}
