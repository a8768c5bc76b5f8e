package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
)

// memifs is the number of the node's memifs.
const memifs = 4

// responderProgram answers pings in a pod; it is an example of the memif library.
const responderProgram = "icmpresponder"

// memifPod is pod D with its memif.
type memifPod struct {
	container kubelettest.Container
	responder *responder
}

// responder is a program that answers pings on the pod's memifs and prints the state of its connections.
type responder struct {
	cmd   *exec.Cmd
	lines chan string // closed when the program has exited
}

// addD makes kubelet allocate D's devices, and adds D.
func (d *demo) addD(ctx context.Context) error {
	containers, err := d.node.Admit(ctx, d.d.Pod, kubelettest.Container{Name: "responder", Limit: 1})
	if err != nil {
		return err
	}
	d.memif.container = containers[0]
	d.printf("kubelet: %s for container responder", strings.Join(containers[0].Devices, ", "))
	for _, m := range containers[0].Mounts {
		d.printf("mount:   %s -> %s", m.GetHostPath(), m.GetContainerPath())
	}
	d.d.Annotations = map[string]string{customInterfaces: "m1/memif/blue"}
	return d.add(ctx, &d.d)
}

// reachMemif starts the responder, and pings it from other memifs' pods and networks.
func (d *demo) reachMemif(ctx context.Context) (err error) {
	if d.memif.responder, err = d.respond(ctx, nil); err != nil {
		return err
	}
	for _, from := range []*attachedPod{&d.a, &d.b} {
		if err := d.reachMemifBy(ctx, from); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) reachMemifBy(ctx context.Context, from *attachedPod) error {
	for _, address := range d.d.on("m1").Bare() {
		took, err := reach(ctx, from.Netns, "blue0", address)
		if err != nil {
			return fmt.Errorf("%s -> d by memif: %w", from.Name, err)
		}
		d.printf("%s -> d by memif  %-20s answers in %s", from.Name, address, short(took))
	}
	return nil
}

// guardMemif tries connections that must be refused, then kills the responder and starts another one.
func (d *demo) guardMemif(ctx context.Context) (err error) {
	if err := d.refused(ctx, nil, "already connected"); err != nil {
		return err
	}
	d.memif.responder.kill()
	d.printf("the responder was killed")
	if err := d.refused(ctx, map[string]string{"MEMIF_SECRET": "not-what-was-allocated"},
		"incorrect secret"); err != nil {
		return err
	}
	if d.memif.responder, err = d.respond(ctx, nil); err != nil {
		return err
	}
	return d.reachMemifBy(ctx, &d.a)
}

// forgetMemif ends the responder, and makes kubelet forget the pod, as it does after the pod's containers have ended.
func (d *demo) forgetMemif() error {
	if d.memif.responder != nil {
		d.memif.responder.kill()
	}
	if !d.node.Forget(d.d.Pod) {
		return errors.New("kubelet did not know pod D")
	}
	return nil
}

// connecting is the timeout of a responder's connection or refusal.
const connecting = 10 * time.Second

// respond starts a responder in D and waits until it is connected.
func (d *demo) respond(ctx context.Context, changed map[string]string) (*responder, error) {
	r, err := d.startResponder(changed)
	if err != nil {
		return nil, err
	}
	line, err := r.await(ctx, "connected")
	if err != nil {
		r.kill()
		return nil, err
	}
	d.printf("responder: %s", line)
	return r, nil
}

// refused starts a responder in D that must be refused, and expects it to print the reason.
func (d *demo) refused(ctx context.Context, changed map[string]string, why string) error {
	r, err := d.startResponder(changed)
	if err != nil {
		return err
	}
	defer r.kill()
	line, err := r.await(ctx, why)
	if err != nil {
		return err
	}
	d.printf("refused:   %s", line)
	return nil
}

// startResponder starts a responder with the environment of Allocate and with its mounts at their paths on the node.
func (d *demo) startResponder(changed map[string]string) (*responder, error) {
	r := &responder{cmd: exec.Command(d.node.Program(responderProgram)), lines: make(chan string, 100)}
	for key, value := range d.memif.container.Envs {
		for _, m := range d.memif.container.Mounts {
			value = strings.Replace(value, m.GetContainerPath(), m.GetHostPath(), 1)
		}
		if other, is := changed[key]; is {
			value = other
		}
		r.cmd.Env = append(r.cmd.Env, key+"="+value)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.cmd.Stderr = r.cmd.Stdout
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the responder: %w: run make demo, which builds it", err)
	}
	go func() {
		defer close(r.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			r.lines <- s.Text()
		}
		_ = r.cmd.Wait()
	}()
	return r, nil
}

// await waits for a line with text in it.
func (r *responder) await(ctx context.Context, text string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, connecting)
	defer cancel()
	var output []string
	for {
		select {
		case line, runs := <-r.lines:
			if strings.Contains(line, text) {
				return line, nil
			}
			output = append(output, line)
			if !runs {
				return "", fmt.Errorf("the responder exited without printing %q: %q", text, output)
			}
		case <-ctx.Done():
			return "", fmt.Errorf("the responder has not printed %q: %q", text, output)
		}
	}
}

// kill ends the responder with SIGKILL.
func (r *responder) kill() {
	_ = r.cmd.Process.Kill()
	for range r.lines { // until it has exited
	}
}
