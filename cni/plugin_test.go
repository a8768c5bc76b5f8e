package cni

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

func TestTheRoleDependsOnTheNameOfTheProgram(t *testing.T) {
	for argv0, want := range map[string]string{
		"weft-cni": pluginName, "/opt/cni/bin/weft-cni": pluginName, "weft-ipam": ipamName,
		"/opt/cni/bin/weft-ipam": ipamName, "./weft-ipam.old": pluginName, "": pluginName,
	} {
		if got := roleOf(argv0).name(); got != want {
			t.Errorf("%q is %s, want %s", argv0, got, want)
		}
	}
}

func TestADelWithAnInvalidNameIsRecognised(t *testing.T) {
	for name, tt := range map[string]struct {
		container, ifName string
		want              bool
	}{
		"valid names":            {"c1", "eth0", false},
		"an invalid container":   {"../c1", "eth0", true},
		"an invalid interface":   {"c1", "eth0/1", true},
		"no container":           {"", "eth0/1", false},
		"no interface":           {"../c1", "", false},
		"an interface too long":  {"c1", "a234567890123456", true},
		"the longest interface":  {"c1", "a23456789012345", false},
		"a container with a dot": {"c1.example_2", "eth0", false},
	} {
		t.Setenv("CNI_CONTAINERID", tt.container)
		t.Setenv("CNI_IFNAME", tt.ifName)
		if got := isInvalidDel(); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestTheOwnNetworkNamespaceNeedsAnOverride(t *testing.T) {
	for override, want := range map[string]bool{
		"":      false,
		"0":     false,
		"false": false,
		"1":     true,
		"true":  true,
		"TRUE":  true,
	} {
		if got := (&plugin{override: override}).ownNetnsAllowed(); got != want {
			t.Errorf("%s=%q: %t", netnsOverride, override, got)
		}
	}
}

func TestAPanicOfAVerbIsLoggedAndReturned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cni.log")
	c := callOf(role{}, func(c *conf) { c.LogFile = path })
	err := c.run(func(*call) error { panic("index out of range") })
	c.log.close()
	if e, is := errors.AsType[*types.Error](err); !is || e.Code != types.ErrInternal ||
		!strings.Contains(e.Msg, "index out of range") {
		t.Errorf("the error is %v", err)
	}
	if text := readFile(t, path); !strings.Contains(text, "level=ERROR msg=panic") ||
		!strings.Contains(text, "TestAPanicOfAVerb") {
		t.Errorf("the log has no stack: %s", text)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(raw)
}

func TestTheLogHasMessagesFromItsLevel(t *testing.T) {
	for level, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1, "": 3} {
		path := filepath.Join(t.TempDir(), "cni.log")
		c := callOf(role{}, func(c *conf) {
			c.LogFile = path
			c.LogLevel = level
		})
		c.log.Debug("one")
		c.log.Info("two")
		c.log.Warn("three")
		c.log.Error("four")
		c.log.close()
		if got := strings.Count(readFile(t, path), "\n"); got != want {
			t.Errorf("level %q: %d lines, want %d", level, got, want)
		}
	}
}

func TestTrimKeepsTheNewestRotatedFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"cni.log", "cni-2026-01-02T01-00-00.000.log", "cni-2026-01-01T01-00-00.000.log",
		"cni-2026-01-05T01-00-00.000.log", "cni-2026-01-04T01-00-00.000.log",
		"cni-2026-01-03T01-00-00.000.log", "cni-2025.log", "other-2025-01-01T01-00-00.000.log",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trim(filepath.Join(dir, "cni.log"))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	names := strings.ReplaceAll(strings.Join(left, " "), dir+"/", "")
	if want := "cni-2025.log cni-2026-01-03T01-00-00.000.log cni-2026-01-04T01-00-00.000.log cni-2026-01-05T01-00-00.000.log cni.log other-2025-01-01T01-00-00.000.log"; names != want {
		t.Errorf("left are %s", names)
	}
	trim(filepath.Join(dir, "missing", "cni.log"))
}

func TestTheLogFileMustBeARegularFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	link := filepath.Join(dir, "link")
	file := filepath.Join(dir, "file")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.Symlink("/dev/null", link),
		os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, valid := range map[string]bool{
		"":                        true,
		file:                      true,
		filepath.Join(dir, "new"): true,
		fifo:                      false,
		link:                      false,
		dir:                       false,
	} {
		if err := validateLogFile(path); (err == nil) != valid {
			t.Errorf("%q: %v", path, err)
		}
	}
}
