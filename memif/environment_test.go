package memif

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const someDescriptions = `{"version":1,"interfaces":[{"name":"m1","id":1,"network":"blue","role":"client","mode":"ethernet",
	"mac":"02:00:00:00:00:07","mtu":1450,"addresses":["10.5.0.7/24","fd00::7/64"],"gateways":["10.5.0.1"],"ringSize":256,
	"bufferSize":1024,"rxQueues":2,"txQueues":3,"ofLater":true},{"name":"m2","id":2,"role":"server","mode":"ip"}]}`

// container makes a container's directory and environment variables.
func container(t *testing.T, secret, description string) (socket string) {
	t.Helper()
	directory := t.TempDir()
	socket = filepath.Join(directory, "memif.sock")
	t.Setenv(SocketVariable, socket)
	for name, content := range map[string]string{SecretFile: secret, DescriptionFile: description} {
		if content == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return socket
}

func TestReadEnvironmentOfAContainer(t *testing.T) {
	socket := container(t, "from the file\n", someDescriptions)
	e, err := ReadEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	if e.Socket != socket || e.Secret != "from the file" || len(e.Interfaces) != 2 {
		t.Fatalf("read %+v", e)
	}
	want := ClientConfig{
		Socket:     socket,
		ID:         1,
		Secret:     "from the file",
		Name:       "m1",
		RxQueues:   2,
		TxQueues:   3,
		RingSize:   256,
		BufferSize: 1024,
		MTU:        1450,
	}
	if got := e.Client(e.Interfaces[0]); got != want {
		t.Errorf("connects with %+v", got)
	}
	d := e.Interfaces[0]
	if d.MAC.String() != "02:00:00:00:00:07" || d.MTU != 1450 || d.Network != "blue" || len(d.Addresses) != 2 ||
		d.Gateways[0].String() != "10.5.0.1" || d.Mode != Ethernet || e.Interfaces[1].Mode != IP {
		t.Errorf("described as %+v", e.Interfaces)
	}
	t.Setenv(SecretVariable, "from the variable")
	if e, err = ReadEnvironment(); err != nil || e.Secret != "from the variable" {
		t.Errorf("with a variable: %v, %v", reflect.ValueOf(e.Secret), err)
	}
}

func TestInterfacesAreSelectedByName(t *testing.T) {
	e := &Environment{Interfaces: []Description{{Name: "m1"}, {Name: "m2"}, {Name: "m3"}}}
	for names, want := range map[string]string{
		"": "m1 m2 m3", "m3,m1": "m1 m3", "m2": "m2", "m2,m4": `interfaces.json has no interface "m4"`,
		"m1,m1": `interfaces.json has no interface "m1"`,
	} {
		selected, err := e.Select(names)
		var got []string
		for _, d := range selected {
			got = append(got, d.Name)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q: %s, want %s", names, text, want)
		}
	}
	all, _ := e.Select("")
	if slices.Reverse(all); e.Interfaces[0].Name != "m1" {
		t.Errorf("the caller's changes are in the environment: %v", e.Interfaces)
	}
}

func TestReadEnvironmentReportsInvalidValues(t *testing.T) {
	for name, c := range map[string]struct{ description, want string }{
		"no file":          {"", "interfaces.json"},
		"no JSON":          {"{", "parse"},
		"a later version":  {`{"version":2}`, "version 2"},
		"an unknown mode":  {`{"version":1,"interfaces":[{"name":"m1","role":"client","mode":"x"}]}`, `"m1": mode "x"`},
		"an unknown role":  {`{"version":1,"interfaces":[{"name":"m1","role":"x","mode":"ip"}]}`, `"m1": role "x"`},
		"no MAC":           {`{"version":1,"interfaces":[{"name":"m1","role":"client","mode":"ip","mac":"x"}]}`, "MAC"},
		"a broken address": {`{"version":1,"interfaces":[{"addresses":["x"]}]}`, "parse"},
	} {
		t.Run(name, func(t *testing.T) {
			container(t, "", c.description)
			if _, err := FromEnv(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("said %v", err)
			}
		})
	}
	t.Setenv(SocketVariable, "")
	if _, err := ReadEnvironment(); err == nil || !strings.Contains(err.Error(), SocketVariable) {
		t.Errorf("said %v", err)
	}
}

func TestFromEnvConnectsAllClients(t *testing.T) {
	socket := container(t, "sesame", strings.ReplaceAll(someDescriptions, `"server"`, `"client"`))
	l, err := Listen(socket, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for id, mode := range map[uint32]Mode{1: Ethernet, 2: IP} {
		if _, err := l.Add(Config{ID: id, Secret: "sesame", Mode: mode}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := FromEnv(deadline(t))
	if err != nil || len(all) != 2 {
		t.Fatalf("%d clients, %v", len(all), err)
	}
	for i, c := range all {
		if info, ok := c.Info(); !ok || info.ID != uint32(i+1) {
			t.Errorf("client %d: %+v", i, info)
		}
		_ = c.Close()
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	s := Secret("open sesame")
	c := ClientConfig{Secret: s}
	for _, shown := range []string{
		s.String(), s.GoString(), s.LogValue().String(), reflectText(c), reflectText(Config{Secret: s}),
	} {
		if strings.Contains(shown, "sesame") {
			t.Errorf("shows %s", shown)
		}
	}
	if b, err := s.MarshalText(); err != nil || strings.Contains(string(b), "sesame") {
		t.Errorf("marshals to %s", b)
	}
}

func reflectText(v any) string { return fmt.Sprintf("%v %+v %#v", v, v, v) }
