package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestOutputIsRedacted(t *testing.T) {
	const marker = "wholly-private"
	value := struct {
		Name   string
		Secret Text
		Nested []Text
		Map    map[string]Text
	}{"m1", marker, []Text{marker}, map[string]Text{"a": marker}}
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("text", "value", value, "secret", value.Secret)
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("json", "value", value, "secret", value.Secret)
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	shown := logged.String() + string(encoded)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		shown += fmt.Sprintf(verb, value)
	}
	if strings.Contains(shown, marker) || strings.Count(shown, Hidden) < 10 {
		t.Errorf("shown: %s", shown)
	}
}

func TestNoSecretIsTheEmptyText(t *testing.T) {
	if got := fmt.Sprint(Text("")); got != "" {
		t.Errorf("got %q", got)
	}
}
