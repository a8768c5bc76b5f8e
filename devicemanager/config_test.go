package devicemanager

import (
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/eventloop"
)

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	loop := eventloop.New(eventloop.Config{})
	for _, tt := range []struct {
		name   string
		config Config
		text   string
	}{
		{"no loop", Config{}, "event loop"},
		{"no devices", Config{Loop: loop, Count: -1}, "count -1"},
		{"too many devices", Config{Loop: loop, Count: 1025}, "1 to 1024"},
		{"a relative path", Config{Loop: loop, Root: "run/memif"}, `"run/memif"`},
		{"a path with detours", Config{Loop: loop, PluginDir: "/var/../lib"}, `"/var/../lib"`},
		{"a path too long for sockets", Config{Loop: loop, Root: "/" + strings.Repeat("a", 75)}, "at most 75"},
		{"a time that is none", Config{Loop: loop, Poll: -time.Second}, "poll"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := New(tt.config); err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v, want one with %q", err, tt.text)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	m, err := New(Config{Loop: eventloop.New(eventloop.Config{}), Root: "/" + strings.Repeat("a", 74)})
	if err != nil {
		t.Fatal(err)
	}
	c := m.config
	if c.Count != 100 || c.PluginDir != "/var/lib/kubelet/device-plugins" || c.ContainerPath != "/run/vpp" || c.Poll > within {
		t.Errorf("%+v", c)
	}
	if path := c.Root + "/" + strings.Repeat("x", idLength) + "/memif.sock"; len(path) != 107 {
		t.Errorf("the longest path of a socket has %d bytes", len(path))
	}
}
