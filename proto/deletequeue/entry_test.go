package deletequeue

import (
	"strings"
	"testing"
	"time"
)

func TestFormatOfAnEntry(t *testing.T) {
	b, err := entryOf("c1").encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"network":"weft","containerID":"c1","ifName":"eth0","time":"2026-03-01T12:00:00Z"}` + "\n"
	if string(b) != want {
		t.Errorf("entry is\n%swant\n%s", b, want)
	}
	// printf weft/c1/eth0 | sha256sum
	const name = "97fe3d8b1c30d1111d00358903546087994756a83945bb8e67f9c81708bd2df8.json"
	if got := keyOf("c1").fileName(); got != name {
		t.Errorf("file is %s, want %s", got, name)
	}
}

func TestInvalidEntriesAreRejected(t *testing.T) {
	tests := map[string]string{
		"empty file":              ``,
		"half a file":             `{"version":1,"network":"we`,
		"newer version":           `{"version":2,"network":"weft","containerID":"c1","ifName":"eth0"}`,
		"no version":              `{"network":"weft","containerID":"c1","ifName":"eth0"}`,
		"no container":            `{"version":1,"network":"weft","ifName":"eth0"}`,
		"slash in the container":  `{"version":1,"network":"weft","containerID":"c/1","ifName":"eth0"}`,
		"interface name too long": `{"version":1,"network":"weft","containerID":"c1","ifName":"a234567890123456"}`,
		"network name too long": `{"version":1,"network":"` + strings.Repeat("a", 257) +
			`","containerID":"c1","ifName":"eth0"}`,
		"negative attempts": `{"version":1,"network":"weft","containerID":"c1","ifName":"eth0","attempts":-1}`,
		"file too long": `{"version":1,"network":"weft","containerID":"c1","ifName":"eth0"}` +
			strings.Repeat(" ", maxEntryBytes),
	}
	for name, content := range tests {
		t.Run(name, func(t *testing.T) {
			if e, err := parse([]byte(content)); err == nil {
				t.Errorf("accepted as %+v", e)
			}
		})
	}
}

func TestUnknownFieldsOfAnEntryAreIgnored(t *testing.T) {
	e, err := parse([]byte(`{"version":1,"network":"weft","containerID":"c1","ifName":"eth0","reason":"drain"}`))
	if err != nil || e.Key() != keyOf("c1") {
		t.Errorf("got %+v, %v", e, err)
	}
}

func FuzzParse(f *testing.F) {
	valid, _ := entryOf("c1").encode()
	f.Add(valid)
	f.Add([]byte(`{"version":1,"network":"a","containerID":"b","ifName":"c","time":"x"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parse(b)
		if err != nil {
			return
		}
		e.Time = e.Time.Truncate(time.Second).UTC()
		if e.Time.Year() > 9999 || e.Time.Year() < 0 {
			return // has no form in JSON
		}
		again, err := e.encode()
		if err != nil {
			t.Fatalf("parsed, but cannot be written: %v", err)
		}
		back, err := parse(again)
		if err != nil || back.Key() != e.Key() || !back.Time.Equal(e.Time) || back.Attempts != e.Attempts {
			t.Fatalf("written as %s, read as %+v (%v), was %+v", again, back, err, e)
		}
		if strings.Contains(e.Key().fileName(), "/") {
			t.Fatalf("file name %q leaves the directory", e.Key().fileName())
		}
	})
}
