package splice

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weftnet/weft/wire"
)

func value() wire.MemifSplice {
	return wire.MemifSplice{
		Directory:    wire.FileKey("/run/weft/memif/a"),
		ClientID:     1,
		ClientSecret: "of the client",
		ServerID:     2,
		ServerSecret: "of the server",
		Namespace:    wire.Namespace{Path: "/run/netns/b", Inode: 7, Device: 4}, Server: "@weft/m1",
	}
}

// The journal has the secrets, because the splice is made again from it; all other output has not.
func TestStoredAndRedactedForms(t *testing.T) {
	v := value()
	stored, err := encode(v)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := decode(stored); err != nil || back != v {
		t.Errorf("read back as %#v, %v", back, err)
	}
	if shown := redact(v); strings.Contains(fmt.Sprintln(string(shown.ClientSecret), string(shown.ServerSecret)),
		"of the") || shown.Server != v.Server {
		t.Errorf("redacted: %+v", shown)
	}
}

func TestInvalidSplicesAreRefused(t *testing.T) {
	const socket = "/run/weft/memif/a/d1.sock"
	if err := validate(socket, value()); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*string, *wire.MemifSplice){
		"socket":            func(name *string, _ *wire.MemifSplice) { *name = "d1.sock" },
		"at most 107":       func(name *string, _ *wire.MemifSplice) { *name = "/" + strings.Repeat("x", maxPath) },
		"server":            func(_ *string, v *wire.MemifSplice) { v.Server = "/tmp/socket" },
		"network namespace": func(_ *string, v *wire.MemifSplice) { v.Namespace = wire.Namespace{} },
		"secret":            func(_ *string, v *wire.MemifSplice) { v.ServerSecret = "" },
	} {
		name := socket
		v := value()
		change(&name, &v)
		if err := validate(name, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
