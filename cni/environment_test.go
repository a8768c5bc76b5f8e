package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/cni/cnitest"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// runIn runs the binary with the environment changed by set, and returns the error that it prints. The test fails if
// the plugin does not end.
func runIn(t *testing.T, dir string, set ...string) *types.Error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "weft-cni"))
	cmd.Env = append([]string{
		"CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/blue", "CNI_PATH=/opt/cni/bin",
		PathsVariable + "=" + PathsFromConfiguration,
	}, set...)
	cmd.Stdin = bytes.NewBufferString(fmt.Sprintf(
		`{"cniVersion":"1.1.0","name":"weft","type":"weft-cni","socket":%q,"deleteQueue":%q,"prevResult":{"cniVersion":"1.1.0"}}`,
		filepath.Join(dir, "agent.sock"), filepath.Join(dir, "queue")))
	out, err := cmd.Output()
	if ctx.Err() != nil {
		t.Fatalf("%s: timeout", set)
	}
	if err == nil {
		return nil
	}
	var e types.Error
	if json.Unmarshal(out, &e) != nil {
		t.Fatalf("%s: %v: printed %q, which is not an error", set, err, out)
	}
	return &e
}

// An open of a FIFO blocks until it has a writer.
func TestAFIFOAsNetworkNamespaceDoesNotBlockThePlugin(t *testing.T) {
	dir := t.TempDir()
	new(cnitest.Agent).Listen(t, filepath.Join(dir, "agent.sock"))
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := runIn(t, dir, "CNI_COMMAND=ADD", "CNI_NETNS="+fifo); e == nil || e.Code != 8 ||
		!strings.Contains(e.Msg, "not a network namespace") {
		t.Errorf("ADD: %v", e)
	}
	for _, verb := range []string{"CHECK", "DEL"} { // the agent checks it, or it is not needed
		if e := runIn(t, dir, "CNI_COMMAND="+verb, "CNI_NETNS="+fifo); e != nil {
			t.Errorf("%s: %v", verb, e)
		}
	}
}

// A runtime would retry the DEL forever.
func TestDelWithAnInvalidNameSucceeds(t *testing.T) {
	for name, set := range map[string][]string{
		"a container id that is too long": {"CNI_CONTAINERID=" + strings.Repeat("c", maxID+1)},
		"a container id that CNI rejects": {"CNI_CONTAINERID=../c"},
		"an interface that is not ASCII":  {"CNI_IFNAME=ethé"},
		"an interface with a long name":   {"CNI_IFNAME=a234567890123456"},
		"an interface with a slash":       {"CNI_IFNAME=eth0/1"},
		"a reserved interface name":       {"CNI_IFNAME=default"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, serves := range []bool{false, true} { // also without an agent, where a DEL would be queued
				dir := t.TempDir()
				if serves {
					new(cnitest.Agent).Listen(t, filepath.Join(dir, "agent.sock"))
				}
				if e := runIn(t, dir, append(set, "CNI_COMMAND=DEL")...); e != nil {
					t.Errorf("DEL, agent serves %t: %v", serves, e)
				}
				for _, verb := range []string{"ADD", "CHECK"} {
					if e := runIn(t, dir, append(set, "CNI_COMMAND="+verb)...); e == nil || e.Code != 4 {
						t.Errorf("%s, agent serves %t: %v", verb, serves, e)
					}
				}
			}
		})
	}
	t.Run("an empty name is an error", func(t *testing.T) {
		for _, set := range []string{"CNI_CONTAINERID=", "CNI_IFNAME="} {
			if e := runIn(t, t.TempDir(), "CNI_COMMAND=DEL", set); e == nil || e.Code != 4 {
				t.Errorf("%s: %v", set, e)
			}
		}
	})
}

// The kernel rejects these names late, or creates another name.
func TestAddRejectsReservedInterfaceNames(t *testing.T) {
	for _, name := range []string{"default", "all", "lo", "eth%d", ".", "..", "a:b", "a b", "a234567890123456"} {
		e := runIn(t, t.TempDir(), "CNI_COMMAND=ADD", "CNI_IFNAME="+name) // without an agent the code would be 11
		if e == nil || e.Code != 4 {
			t.Errorf("%q: %v", name, e)
		}
	}
}

// An error may quote an annotation of 16 KiB.
func TestErrorsAreBounded(t *testing.T) {
	dir := t.TempDir()
	agent := &cnitest.Agent{
		Error: &weftv1.Error{
			Code:    103,
			Msg:     "pod a/b: " + strings.Repeat("€", 6000),
			Details: strings.Repeat("x", 20000),
		},
	}
	agent.Behave(cnitest.Refuse)
	agent.Listen(t, filepath.Join(dir, "agent.sock"))
	for _, verb := range []string{"ADD", "CHECK", "DEL"} {
		e := runIn(t, dir, "CNI_COMMAND="+verb)
		if e == nil || len(e.Msg) > 2048 || len(e.Details) > 2048 || !utf8.ValidString(e.Msg) ||
			strings.ContainsRune(e.Msg, utf8.RuneError) {
			t.Fatalf("%s: %d and %d bytes", verb, len(e.Msg), len(e.Details))
		}
		if e.Code != 103 || !strings.HasPrefix(e.Msg, "pod a/b: €") || !strings.HasSuffix(e.Msg, " bytes cut)") {
			t.Errorf("%s: %v", verb, e)
		}
	}
}
