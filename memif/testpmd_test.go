package memif

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weftnet/weft/test/pages"
	"github.com/weftnet/weft/test/peers"
)

// testpmdStart is the timeout of DPDK's start.
const testpmdStart = time.Minute

var testpmds atomic.Int64

// requireTestpmd finds DPDK's testpmd. Without it the test is skipped, or fails if the comma-separated list
// WEFT_REQUIRE contains dpdk.
func requireTestpmd(t *testing.T) peers.Program {
	t.Helper()
	p, err := peers.Testpmd()
	switch {
	case err == nil:
	case slices.Contains(strings.Split(os.Getenv("WEFT_REQUIRE"), ","), "dpdk"):
		t.Fatalf("required (WEFT_REQUIRE) and not available: %v", err)
	default:
		t.Skipf("needed: %v", err)
	}
	return p
}

// testpmd is a running testpmd. kill ends it with SIGKILL.
type testpmd struct {
	commands io.Writer
	said     *said
	kill     func()
	ended    <-chan struct{}
}

// said collects a program's output for concurrent readers.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// startTestpmd starts a testpmd that is a client and echoes packets.
func startTestpmd(t *testing.T, options string, arguments ...string) *testpmd {
	t.Helper()
	prefix := fmt.Sprintf("weft%d-%d", os.Getpid(), testpmds.Add(1))
	args := []string{
		"--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--log-level=pmd.net.memif:debug", "--file-prefix",
		prefix, "--lcores", "0@(0-1),1@(0-1)",
		"--vdev", "net_memif0,role=client,socket-abstract=no," + options,
	}
	args = append(args, arguments...)
	return runTestpmd(t,
		append(args, "--", "-i", "--total-num-mbufs=20000", "--mbcache=256", "--auto-start", "--no-lsc-interrupt",
			"--nb-cores=1", "--no-flush-rx", "--forward-mode=io"))
}

// runTestpmd starts a testpmd with these arguments.
func runTestpmd(t *testing.T, args []string) *testpmd {
	t.Helper()
	program := requireTestpmd(t)
	ctx, cancel := context.WithCancel(t.Context())
	command := program.Command(ctx, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Env = append(command.Env, "XDG_RUNTIME_DIR="+t.TempDir())
	commands, err := command.StdinPipe()
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	output := &said{}
	command.Stdout = output
	command.Stderr = output
	if err := command.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	p := &testpmd{commands: commands, said: output, ended: ended, kill: func() {
		cancel()
		<-ended
	}}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("testpmd %v:\n%s", args, output.String())
		}
	})
	return p
}

// stop is the first command, and returns when testpmd no longer uses the rings: DPDK's driver unmaps them when the
// other end disconnects, even if they are in use.
func (p *testpmd) stop(t *testing.T) {
	t.Helper()
	_, _ = io.WriteString(p.commands, "stop\n")
	const prompts = 2 // of this command, and the next
	eventually(t, "testpmd stops", func() bool { return strings.Count(p.said.String(), "testpmd> ") == prompts })
}

// restartPort makes DPDK's driver connect again: release 22.11 does so only when the port starts.
func (p *testpmd) restartPort() {
	_, _ = io.WriteString(p.commands, "port stop 0\nport start 0\nstart\n")
}

// echo sends packets to the other end, which echoes them, and compares: they must arrive unchanged and in order. Both
// ends poll, so this takes long on a busy machine; echo fails only when no more packets arrive.
func echo(t *testing.T, c *Conn, count int) {
	t.Helper()
	rx := c.RxQueues()[0]
	tx := c.TxQueues()[0]
	size := func(n int) int { return 60 + n*37%1455 }
	p := make([]byte, 2048)
	got := buffers(64)
	sent := 0
	back := 0
	for last := time.Now(); back < count; {
		for sent < count && sent-back < 128 {
			fillPattern(p[:size(sent)], sent)
			if !tx.Append(p[:size(sent)]) {
				break
			}
			sent++
		}
		tx.Flush()
		for _, b := range got[:rx.Receive(got)] {
			if len(b) != size(back) || !hasPattern(b, back) {
				t.Fatalf("echo of packet %d has other data and %d bytes", back, len(b))
			}
			back++
			last = time.Now()
		}
		for i := range got {
			got[i] = got[i][:0]
		}
		if time.Since(last) > testpmdStart {
			t.Fatalf("%d of %d packets were echoed; %v; %+v %+v", back, sent, c.Err(), rx.Stats(), tx.Stats())
		}
	}
}

func (p *testpmd) await(t *testing.T, l *lab) *Conn {
	t.Helper()
	select {
	case <-p.ended:
		t.Fatal("testpmd ended")
		return nil
	case c := <-l.connected:
		t.Cleanup(c.Release)
		return c
	case <-time.After(testpmdStart):
		t.Fatal("testpmd did not connect")
		return nil
	}
}

func TestTestpmdConnectsAndEchoes(t *testing.T) {
	requireTestpmd(t)
	for _, zeroCopy := range []bool{false, true} {
		for log2 := 8; log2 <= 12; log2++ {
			t.Run(fmt.Sprintf("zero copy %v rings of %d", zeroCopy, 1<<log2), func(t *testing.T) {
				l := newLab(t, ListenOptions{})
				l.add(t, Config{ID: 3, Secret: "open sesame"})
				options := fmt.Sprintf("id=3,secret=open sesame,rsize=%d,socket=%s", log2, l.Path())
				arguments := []string(nil)
				if zeroCopy {
					options = options + ",zero-copy=yes"
					arguments = []string{"--single-file-segments"}
				}
				p := startTestpmd(t, options, arguments...)
				c := p.await(t, l)
				if i := c.Info(); i.RingSize != 1<<log2 || zeroCopy != (i.Regions > 1) {
					t.Errorf("connected with %+v", i)
				}
				echo(t, c, 20000)
				if s := c.RxQueues()[0].Stats(); s.Dropped() != 0 {
					t.Errorf("dropped %+v", s)
				}
			})
		}
	}
}

// The command of docs/functions.md for a pod connects and echoes, with a socket and a secret in the environment.
func TestTestpmdRunsWithTheCommandOfTheDocumentation(t *testing.T) {
	requireTestpmd(t)
	l := newLab(t, ListenOptions{})
	l.add(t, Config{ID: 1, Secret: "open sesame"})
	environment := map[string]string{SocketVariable: l.Path(), SecretVariable: "open sesame"}
	p := runTestpmd(t, documentedTestpmd(t, func(name string) string { return environment[name] }))
	echo(t, p.await(t, l), 20000)
}

// documentedTestpmd returns the arguments of the command dpdk-testpmd of docs/functions.md, with expanded variables.
func documentedTestpmd(t *testing.T, variable func(string) string) (arguments []string) {
	t.Helper()
	const page = "../docs/functions.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	link := ""
	linked := "" // of the socket
	for _, b := range pages.Parse(page, text).Blocks {
		if !b.IsShell() {
			continue
		}
		commands, err := b.Commands()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range commands {
			switch c[0] {
			case "ln":
				link = filepath.Join(t.TempDir(), "s")
				linked = c[3]
				if err := os.Symlink(os.Expand(c[2], variable), link); err != nil {
					t.Fatal(err)
				}
			case "dpdk-testpmd":
				for _, word := range c[1:] {
					arguments = append(arguments, os.Expand(strings.ReplaceAll(word, linked, link), variable))
				}
				return arguments
			}
		}
	}
	t.Fatal(page + " has no command dpdk-testpmd")
	return nil
}

func TestTestpmdWithWrongSecretIsRefused(t *testing.T) {
	requireTestpmd(t)
	for name, c := range map[string]struct{ option, reason string }{
		"wrong by one letter": {",secret=open sesamf", "incorrect secret"},
		"none":                {"", "secret required"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ListenOptions{})
			l.add(t, Config{Secret: "open sesame"})
			startTestpmd(t, "id=0,socket="+l.Path()+c.option)
			select {
			case r := <-l.refused:
				if reasonFrom(r.Err) != c.reason {
					t.Errorf("refused with %v", r.Err)
				}
			case <-time.After(testpmdStart):
				t.Fatal("testpmd did not try")
			}
		})
	}
}

func TestTestpmdAndServerSurviveEachOther(t *testing.T) {
	requireTestpmd(t)
	l := newLab(t, ListenOptions{})
	i := l.add(t, Config{})
	options := "id=0,socket=" + l.Path()
	first := startTestpmd(t, options)
	c := first.await(t, l)
	echo(t, c, 1000)
	first.kill()
	_ = await(t, l.disconnected, "end of the connection")
	c.Release()

	second := startTestpmd(t, options)
	c = second.await(t, l)
	echo(t, c, 1000)
	second.stop(t)
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c.Release()
	again := &lab{connected: l.connected, disconnected: l.disconnected, refused: l.refused}
	var err error
	if again.Listener, err = Listen(l.Path(), ListenOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Close() })
	again.add(t, Config{})
	second.restartPort()
	echo(t, second.await(t, again), 1000)
}

// testpmd listens on an abstract socket, as it does by default. It connects; that it forwards as a server is not
// tested.
func TestTestpmdIsTheServerOfASplice(t *testing.T) {
	requireTestpmd(t)
	name := fmt.Sprintf("weft-test-%d/m1", os.Getpid())
	runTestpmd(t, []string{
		"--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--file-prefix", fmt.Sprintf("wefts%d", os.Getpid()),
		"--lcores", "0@(0-1),1@(0-1)",
		"--vdev", "net_memif0,role=server,id=1,socket=" + name + ",secret=" + string(hostileConfig.Secret),
		"--", "-i", "--total-num-mbufs=20000", "--mbcache=256", "--auto-start", "--no-lsc-interrupt", "--nb-cores=1",
		"--no-flush-rx", "--forward-mode=io",
	})
	splice := spliceTo(t, newBroker(t), "@"+name)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	client, err := Dial(ctx, ClientConfig{Socket: splice.Path(), ID: 7, Secret: clientSecret}, ClientEvents{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if info, connected := client.Info(); !connected || info.RxQueues != 1 || info.TxQueues != 1 {
		t.Errorf("connected %t with %+v", connected, info)
	}
}
