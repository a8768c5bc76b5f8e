package service

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell returns the service of a shell script.
func shell(t *testing.T, script string) (s *Service, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	s = New(Daemon{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}, Log: log, Start: (*exec.Cmd).Start})
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s, log
}

// await waits until the log has a text the given number of times.
func await(t *testing.T, log, text string, times int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		content, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(content), text) >= times {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("the log does not have %q %d times: %s", text, times, content)
		case <-tick.C:
		}
	}
}

func TestStopSendsSIGTERMAndRestartKeepsTheLog(t *testing.T) {
	s, log := shell(t, "trap 'echo asked; exit 0' TERM; echo here; while :; do sleep 0.01; done")
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, log, "here", 1)
	if err := s.Says("here"); err != nil {
		t.Error(err)
	}
	if s.Says("there") == nil {
		t.Error("Says finds a text that was not logged")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, log, "asked", 1)
	await(t, log, "here", 2)
	if err := s.Start(); err == nil {
		t.Error("a second Start succeeds")
	}
}

func TestStopKillsADaemonThatIgnoresSIGTERM(t *testing.T) {
	s, log := shell(t, "trap '' TERM; echo here; while :; do sleep 0.01; done")
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, log, "here", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if s.Ended() == nil {
		t.Error("the daemon is still running")
	}
}

func TestEndedHasExitStatusAndLastLine(t *testing.T) {
	s, _ := shell(t, "echo first; echo the reason; exit 7")
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	<-s.current().ended
	if err := s.Ended(); err == nil || !strings.Contains(err.Error(), "exit status 7") ||
		!strings.Contains(err.Error(), "the reason") {
		t.Errorf("got %v", err)
	}
}

func TestStopOfAStoppedDaemonSucceeds(t *testing.T) {
	s, _ := shell(t, "exit 0")
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Freeze(); err == nil {
		t.Error("Freeze of a stopped daemon succeeds")
	}
}

func TestSaysIgnoresOutputBeforeTheLastStart(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	s, log := shell(t, "[ -e "+once+" ] || echo here; touch "+once+"; echo ready; exec sleep 60")
	if s.Says("here") == nil {
		t.Error("Says succeeds for a daemon that was never started")
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, log, "ready", 1)
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, log, "ready", 2)
	if s.Says("here") == nil || s.Says("ready") != nil {
		t.Errorf("here: %v; ready: %v", s.Says("here"), s.Says("ready"))
	}
}
