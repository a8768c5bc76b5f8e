package pod

import (
	"errors"
	"testing"
)

func TestTheModeSaysWhoMakesTheMainInterface(t *testing.T) {
	for mode, has := range map[string]bool{"": true, ModePrimary: true, ModeDelegate: true, ModeChained: false, ModeIPAM: false} {
		ev := AddPod{Key: Key{"weft", "c", "eth0"}, Netns: Netns{Path: "/run/netns/a", Inode: 1}, Mode: mode}
		if err := ev.Validate(); err != nil || ev.HasMain() != has {
			t.Errorf("mode %q: error %v, main %t", mode, err, ev.HasMain())
		}
	}
}

func TestAnUnknownModeIsRefused(t *testing.T) {
	ev := AddPod{Key: Key{"weft", "c", "eth0"}, Netns: Netns{Path: "/run/netns/a", Inode: 1}, Mode: "bridge"}
	var e *Error
	if err := ev.Validate(); !errors.As(err, &e) || e.Code != CodeInvalidConfig {
		t.Errorf("error %v", err)
	}
}
