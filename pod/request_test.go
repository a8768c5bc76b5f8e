package pod

import (
	"errors"
	"testing"
)

func TestTheModeDefinesWhetherWeftCreatesTheMainInterface(t *testing.T) {
	for mode, has := range map[string]bool{
		"":           true,
		ModePrimary:  true,
		ModeDelegate: true,
		ModeChained:  false,
		ModeIPAM:     false,
	} {
		ev := Request{Key: Key{"weft", "c", "eth0"}, Netns: Netns{Path: "/run/netns/a", Inode: 1}, Mode: mode}
		if err := ev.Validate(); err != nil || ev.HasMain() != has {
			t.Errorf("mode %q: error %v, main %t", mode, err, ev.HasMain())
		}
	}
}

func TestAnUnknownModeIsRejected(t *testing.T) {
	ev := Request{Key: Key{"weft", "c", "eth0"}, Netns: Netns{Path: "/run/netns/a", Inode: 1}, Mode: "bridge"}
	var e *Error
	if err := ev.Validate(); !errors.As(err, &e) || e.Code != CodeInvalidConfig {
		t.Errorf("error %v", err)
	}
}

func TestTheAnnotationsOfAnEventAreParsedOnce(t *testing.T) {
	for text, want := range map[string]int{"m1/memif, t1/tap": 2, "no type": 0} {
		ev := &Request{Key: Key{IfName: "eth0"}, Annotations: map[string]string{AnnotationCustom: text}}
		first, firstErr := ev.Extra()
		ev.Annotations[AnnotationCustom] = "t2/tap, t3/tap, t4/tap"
		again, againErr := ev.Extra()
		if len(first) != want || len(again) != want || (firstErr == nil) != (want > 0) ||
			!errors.Is(againErr, firstErr) {
			t.Errorf("%q: %v, %v, then %v, %v", text, first, firstErr, again, againErr)
		}
	}
}
